"""The iptables mode as the core sees it: the contract's pure side, put together from this package's modules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kproxy_core.model.state import NodeContext, ServicePort
from kproxy_core.plugin.backend import Backend, Capability, Support
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Fragment, Program
from kproxy_iptables.compile import compile_port
from kproxy_iptables.dataplane import IptablesDataplane, probe
from kproxy_iptables.objects import Key, Value
from kproxy_iptables.plan import Step, plan
from kproxy_iptables.render import render
from kproxy_iptables.scaffold import Features, scaffold

MODE: Final = "iptables"

_CAPABILITIES: Final = frozenset(
    {
        Capability.SCTP,
        Capability.SOURCE_RANGES,
        Capability.AFFINITY_TIMEOUT,
        Capability.WEIGHTS,
        Capability.CLIENT_ADDRESS_KEPT,
        Capability.LOCALHOST_NODE_PORTS,
        Capability.UNUSED_PORTS_REJECTED,
        Capability.TCP_RESET,
        Capability.SURVIVES_CRASH,
    }
)


class IptablesBackend(Backend[Key, Value]):
    """Services as a few rules each, found by a dispatch tree; what needs no rule of its own is in sets.

    ``variant`` is ``nf_tables`` or ``legacy``, for whoever knows better than to ask the host. ``failed_texts`` is the directory
    in which texts are kept that iptables-restore refused, if not the usual one.
    """

    name: Final = MODE
    node_ports_everywhere: Final = True

    def __init__(self, features: Features | None = None, variant: str | None = None, failed_texts: Path | None = None) -> None:
        self._features = features or Features()
        self._wanted = self._features
        self._variant = variant
        self._failed_texts = failed_texts
        self._is_notified = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do.

        NodePorts of 127.0.0.1 only where the operator wants them; notices of drift where the variant is known to give any.
        """
        without = frozenset() if self._wanted.localhost_node_ports else frozenset({Capability.LOCALHOST_NODE_PORTS})
        more = frozenset({Capability.DRIFT_NOTIFIED}) if self._is_notified else frozenset()
        return (_CAPABILITIES | more) - without

    def probe(self) -> Support:
        """Try each program, set type, match and target; leave nothing behind."""
        return probe(self._variant)

    def compile(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Key, Value] | None, fresh_id: int
    ) -> Fragment[Key, Value]:
        """Render one Service port into chains, rules and elements; into nothing without its family."""
        del previous, fresh_id  # names tell everything
        return compile_port(port, node) if port.family in self._features.families else Fragment()

    def scaffold(self, node: NodeContext) -> Mapping[Key, Value]:
        """Render sets, chains, and what leads into them from the built-in chains."""
        return scaffold(node, self._features)

    def plan(self, before: Program[Key, Value], delta: Delta[Key, Value]) -> list[Step]:
        """Order a delta: sets, tables, sets."""
        return plan(before, delta)

    def render(self, program: Program[Key, Value]) -> str:
        """Return what ipset and iptables-restore would be fed."""
        return render(program)

    def open(self) -> IptablesDataplane:
        """Open the programs and ipset in the current network namespace; from then on only what this node has counts."""
        dataplane = IptablesDataplane(self._wanted, self._variant, self._failed_texts)
        self._features = dataplane.features
        self._is_notified = dataplane.fileno() >= 0
        return dataplane
