"""The nftables mode as the core sees it: the contract's pure side, put together from this package's modules."""

from collections.abc import Iterable, Mapping
from typing import Final

from kproxy_core.model.addresses import Family
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import Backend, Capability, Support
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Fragment, Program
from kproxy_core.wire.nft_operations import Operation
from kproxy_nftables.actions import MAX_STICKY_SLOTS
from kproxy_nftables.canonical import Canonical, canonical
from kproxy_nftables.compile import compile_port, without_traffic
from kproxy_nftables.dataplane import NftablesDataplane, probe
from kproxy_nftables.objects import Key, Value
from kproxy_nftables.plan import plan
from kproxy_nftables.render import render
from kproxy_nftables.scaffold import scaffold

MODE: Final = "nftables"


class NftablesBackend(Backend[Key, Value]):
    """Services as elements of a constant number of sets, picked from by a constant number of rules."""

    name: Final = MODE
    capabilities: Final = frozenset(
        {
            Capability.SCTP,
            Capability.SOURCE_RANGES,
            Capability.AFFINITY_TIMEOUT,
            Capability.WEIGHTS,
            Capability.CLIENT_ADDRESS_KEPT,
            Capability.UNUSED_PORTS_REJECTED,
            Capability.TCP_RESET,
            Capability.ATOMIC,
            Capability.SURVIVES_CRASH,
            Capability.DRIFT_NOTIFIED,
            Capability.DRIFT_CERTAIN,
        }
    )
    node_ports_everywhere: Final = False

    def __init__(self) -> None:
        self._dataplane: NftablesDataplane | None = None

    @property
    def table_flags(self) -> int:
        """The flags of our tables, which depend on what the kernel can do; none before ``open``."""
        return 0 if self._dataplane is None else self._dataplane.table_flags

    @property
    def _families(self) -> frozenset[Family]:
        return frozenset(Family) if self._dataplane is None else self._dataplane.families

    def probe(self) -> Support:
        """Try each kind of object in a transaction that is taken back."""
        return probe()

    def compile(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
    ) -> Fragment[Key, Value]:
        """Render one Service port into elements, and the chains that its actions need; into nothing without its family."""
        if port.family not in self._families:
            return Fragment()
        return compile_port(port, node, previous, fresh_id)

    def remarks(self, port: ServicePort) -> Iterable[Diagnostic]:
        """Tell of endpoints that get no connections."""
        left_out = without_traffic(port)
        if left_out:
            yield Diagnostic(
                severity=Severity.ERROR,
                subject=f"Service {port.name.namespace}/{port.name.name}",
                field="spec.sessionAffinity",
                message=f"{left_out} {port.family.label} endpoints get no connections: "
                f"mode {MODE} uses {MAX_STICKY_SLOTS:,} where clients stick to theirs",
                remedy="have fewer endpoints, or no session affinity",
            )

    def scaffold(self, node: NodeContext) -> Mapping[Key, Value]:
        """Render tables, sets and base chains."""
        return scaffold(node, self._families, self.table_flags)

    def canonical(self, program: Program[Key, Value]) -> Canonical:
        """Return the objects modulo ids and slots."""
        return canonical(program)

    def plan(self, before: Program[Key, Value], delta: Delta[Key, Value]) -> list[Operation]:
        """Order a delta into the messages of up to five transactions."""
        return plan(before, delta)

    def render(self, program: Program[Key, Value]) -> str:
        """Return the tables as text, much as nft lists them."""
        return render(program)

    def open(self) -> NftablesDataplane:
        """Open netlink in the current network namespace; from then on what it offers counts: families, and flags of tables."""
        self._dataplane = NftablesDataplane()
        return self._dataplane
