"""How much hypothesis tries: little by default, so that a run stays short, and much when asked for.

``HYPOTHESIS_PROFILE=deep`` tries a few hundred times as many examples, each run others; ``KPROXY_EXAMPLES=n`` sets the number.
The default is the same examples each time, so that a change that did not cause a failure does not meet it.
"""

import atexit
import functools
import os
import resource
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from kproxy_core.testing.guest.ipvs import kernel_has_ipvs
from kproxy_core.testing.guest.items import GuestItems
from kproxy_core.testing.lab import can_return, enter_own_network, in_user_namespace

from .users import NO_USER_NAMESPACES, User, this_user, unprivileged_user

# Examples are clusters and take a while to draw; on a busy machine none of that says anything about the code.
settings.register_profile(
    "fast",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "deep",
    parent=settings.get_profile("fast"),
    max_examples=int(os.environ.get("KPROXY_EXAMPLES", "20000")),
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say above the last line what ``run-tests`` found before it started pytest: its exit status will be that of a failure."""
    if os.environ.get("KPROXY_CHECKS_FAILED"):
        terminalreporter.section("a check before the tests failed: see lint, types and docs above", red=True, bold=True)


def pytest_configure(config: pytest.Config) -> None:
    """Allow as many open files as the system does: labs hold thousands of connections, and shells start with 1024.

    And have tests marked `ipvs` run where there is IPVS.
    """
    config.pluginmanager.register(GuestItems(kernel_has_ipvs))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what installs from the package index go first: tests that use the kernel may leave the machine's network for good."""
    items.sort(key=needs_own_network)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Move into a network of our own before the first test that makes others, where root is one of a user namespace.

    Such a root may go back only to networks of its user namespace, and the machine's is none of them.
    """
    if needs_own_network(item):
        own_network_in_a_user_namespace()


def needs_own_network(item: pytest.Item) -> bool:
    """Whether a test enters network namespaces itself, and does not need the machine's."""
    kernel = item.get_closest_marker("kernel") or item.get_closest_marker("e2e")
    return kernel is not None and item.get_closest_marker("index") is None


@functools.cache
def own_network_in_a_user_namespace() -> None:
    """Do so, once; with a lock of iptables' of our own, since the machine's is its root's."""
    if os.geteuid() != 0 or not in_user_namespace():
        return
    if not can_return():
        enter_own_network()
    folder = tempfile.mkdtemp(prefix="kproxy-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.setdefault("XTABLES_LOCKFILE", f"{folder}/xtables.lock")


@pytest.fixture(scope="session")
def user_namespaces() -> None:
    """Skips the test where this user may not make user namespaces."""
    if not this_user().may_make_user_namespaces:
        pytest.skip(NO_USER_NAMESPACES)


@pytest.fixture(scope="session")
def unprivileged() -> User:
    """A user who is not root."""
    user = unprivileged_user()
    if user is None:
        pytest.skip("needs to become another user (root, with that user's id mapped), and an interpreter that this user may run")
    return user


@pytest.fixture(scope="session")
def unprivileged_with_namespaces(unprivileged: User) -> User:
    """A user who is not root and may become root of a user namespace."""
    if not unprivileged.may_make_user_namespaces:
        pytest.skip(NO_USER_NAMESPACES)
    return unprivileged
