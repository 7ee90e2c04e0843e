"""Who runs a test's programs: this user, or nobody in particular, each perhaps as root of a user namespace."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from attrs import frozen

NOBODY = 65534
NO_USER_NAMESPACES = (
    "user namespaces may not be made here (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone or"
    " kernel.apparmor_restrict_unprivileged_userns; and in a chroot they never may)"
)


@frozen(hash=False, eq=False)
class User:
    """A user, and an interpreter that this user may run, in whatever folder that is."""

    interpreter: str
    options: Mapping[str, Any]

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments; it finds what is installed here."""
        return subprocess.run(
            [self.interpreter, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={**os.environ, **self._paths(), **(environment or {})},
            timeout=180,
            **self.options,
        )

    def run_as_root_without_a_network(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Do so as root of a user namespace that is still in the machine's network, which is none of its own."""
        become_root = ["unshare", "--user", "--map-root-user", "--mount", self.interpreter]
        script = f"import os, sys; os.execvp('unshare', {become_root!r} + sys.argv[1:])"
        return self.run("-c", script, *arguments, environment=environment)

    @staticmethod
    def _paths() -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"}

    @functools.cached_property
    def may_make_user_namespaces(self) -> bool:
        """Whether this user may. Tries."""
        return self.run("-m", "kproxy_core.testing.lab", "true").returncode == 0


def this_user() -> User:
    """Whoever runs the tests."""
    return User(sys.executable, {})


def unprivileged_user() -> User | None:
    """This user, or nobody if this one is root; None if there is no interpreter that nobody may run."""
    if os.geteuid() != 0:
        return this_user()
    # Twice, as the demo starts itself: the first start is still root's.
    twice = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import kproxy_core.testing.lab, click'], check=True)"
    for interpreter in (sys.executable, "/usr/bin/python3"):
        user = User(interpreter, {"user": NOBODY, "group": NOBODY, "extra_groups": []})
        try:
            if user.run("-c", twice).returncode == 0:
                return user
        except OSError:
            continue
    return None
