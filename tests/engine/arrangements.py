"""What the engine's laws hold for: the in-memory mode alone, and one above another in the same kernel."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from attrs import frozen

from kproxy_core.model.state import FrontendKind, FrontendRule, Origin, ServicePort
from kproxy_core.plugin.backend import AnyBackend, Companion
from kproxy_core.runtime.stack import StackedBackend
from kproxy_core.testing.memory_backend import TABLE, MemoryBackend, MemoryKernel, Objects

Claims = Callable[[ServicePort, FrontendRule, Origin], bool]
UPPER_TABLE = "kproxy-upper"


@frozen
class Arrangement:
    """How modes share a kernel. ``tables`` are theirs, in the order in which packets meet them."""

    name: str
    tables: tuple[str, ...]
    build: Callable[[MemoryKernel, bool, bool], AnyBackend]

    def kernel(self, **foreign: Objects) -> MemoryKernel:
        """A kernel in which others have tables, too."""
        return MemoryKernel(tables={name: dict(table) for name, table in foreign.items()}, hooks=self.tables)

    def backend(self, kernel: MemoryKernel, *, atomic: bool = False, everywhere: bool = False) -> AnyBackend:
        """The backend for the engine."""
        return self.build(kernel, atomic, everywhere)

    def ours(self, kernel: MemoryKernel) -> dict[tuple[str, Any], Any]:
        """All objects of ours, by table and key."""
        return {(table, key): value for table in self.tables for key, value in kernel.tables.get(table, {}).items()}

    def __str__(self) -> str:
        return self.name


def some(port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
    """Claim about half of everything, and something else of a Service port when it changes.

    The origin outside of a ClusterIP is left in any case, as the contract has it.
    """
    if rule.frontend.kind is FrontendKind.CLUSTER_IP and origin is Origin.OUTSIDE:
        return False
    return crc32(f"{rule.frontend} {origin} {len(port.serving)} {port.affinity_timeout}".encode()) % 2 == 0


def stacked(kernel: MemoryKernel, atomic: bool = False, everywhere: bool = False, claims: Claims = some) -> StackedBackend:
    """The in-memory mode with claims above the in-memory mode."""
    beneath = Companion(mode="memory", purpose="serves the rest")
    upper = MemoryBackend(kernel, atomic, everywhere, "upper", UPPER_TABLE, (beneath,), claims)
    return StackedBackend([upper, MemoryBackend(kernel, atomic, everywhere)])


SINGLE = Arrangement("single", (TABLE,), MemoryBackend)
STACKED = Arrangement("stacked", (UPPER_TABLE, TABLE), stacked)
