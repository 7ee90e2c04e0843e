"""A host of the lab: a node, a pod or the outside client; a network namespace with addresses, and ways to act inside it."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kproxy_core.testing.lab.namespaces import Namespace
from kproxy_core.testing.lab.plan import UPLINK, AddressPair, PodPlan

if TYPE_CHECKING:
    from pyroute2 import IPRoute

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SYSCTLS = Path("/proc/sys")


class Host:
    """One host. ``addresses`` are all it has, ``ipv4`` and ``ipv6`` the ones by which it is known.

    ``pod`` is the plan of a pod and None for nodes and the outside client.
    """

    def __init__(self, name: str, namespace: Namespace, addresses: AddressPair, pod: PodPlan | None = None) -> None:
        self.name = name
        self.namespace = namespace
        self.ipv4 = addresses.ipv4
        self.ipv6 = addresses.ipv6
        self.pod = pod
        self._addresses: list[str] = [addresses.ipv4, addresses.ipv6]

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.ipv4} {self.ipv6}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address, loopback and link-local ones aside; those of bridges and added ones included."""
        return tuple(self._addresses)

    def address(self, ipv6: bool) -> str:
        """The host's address in one family."""
        return self.ipv6 if ipv6 else self.ipv4

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Have the calling thread live inside, see :meth:`Namespace.enter`."""
        with self.namespace.enter():
            yield

    def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function inside, in this thread."""
        with self.enter():
            return function(*args, **kwargs)

    def run(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program inside and wait. Like :func:`subprocess.run`, but text, captured and checked unless told otherwise."""
        defaults: dict[str, Any] = {"text": True}
        check: bool = options.pop("check", True)
        if not options.keys() & {"stdout", "stderr", "capture_output"}:
            defaults["capture_output"] = True
        with self.enter():
            done: subprocess.CompletedProcess[str] = subprocess.run(argv, check=False, **(defaults | options))
        if check and done.returncode:
            failed = subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
            failed.add_note(f"in {self.name}: {done.stderr}")
            raise failed
        return done

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program inside. Its end is the caller's business, before the lab is closed."""
        with self.enter():
            started: subprocess.Popen[str] = subprocess.Popen(argv, **({"text": True} | options))
            return started

    def sysctl(self, name: str, value: int | str | None = None) -> str:
        """A kernel parameter of this host, ``net.ipv4.ip_forward`` for example; set first when a value is given.

        A device's name in it must not have a dot in it. Raises ``OSError``.
        """
        path = _SYSCTLS / name.replace(".", "/")
        with self.enter():
            if value is not None:
                path.write_text(f"{value}\n")
            return path.read_text().strip()

    @contextmanager
    def iproute(self) -> Iterator["IPRoute"]:
        """A pyroute2 ``IPRoute`` that sees this host's links, addresses and routes."""
        from pyroute2.iproute import IPRoute

        with self.enter():
            ipr = IPRoute()
        try:
            yield ipr
        finally:
            ipr.close()

    def note_addresses(self, pair: AddressPair) -> None:
        """For the lab's own use: it has given these addresses too."""
        self._addresses += [pair.ipv4, pair.ipv6]

    def add_address(self, address: str, interface: str = UPLINK) -> None:
        """Give the host one more address, ``192.0.2.7/24`` or with a prefix length of one address."""
        self._change_address("add", address, interface)
        self._addresses.append(address.partition("/")[0])

    def remove_address(self, address: str, interface: str = UPLINK) -> None:
        """Take an address away that :meth:`add_address` or the lab gave."""
        self._change_address("del", address, interface)
        self._addresses.remove(address.partition("/")[0])

    def _change_address(self, command: str, address: str, interface: str) -> None:
        from kproxy_core.testing.lab import links

        with self.iproute() as ipr:
            links.change_address(ipr, command, links.index(ipr, interface), address)
