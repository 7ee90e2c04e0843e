"""A mode with a fault in it."""

from collections.abc import Mapping
from typing import Any, cast

from attrs import evolve

from kproxy_core.model.state import NodeContext, NodeState, ServicePort
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.program.program import Fragment
from kproxy_core.testing.conformance.planted.catalogue import Fault


class FaultyBackend:
    """A backend whose compiler gets something else than what was decided; all else is the mode's own."""

    def __init__(self, inner: AnyBackend, fault: Fault) -> None:
        self._inner = inner
        self._node = fault.node
        self._port = fault.remembering() if fault.remembering is not None else fault.port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def compile(
        self, port: ServicePort, node: NodeContext, previous: Fragment[Any, Any] | None, fresh_id: int
    ) -> Fragment[Any, Any]:
        """Render another Service port."""
        return self._inner.compile(self._port(port), self._node(node), previous, fresh_id)

    def scaffold(self, node: NodeContext) -> Mapping[Any, Any]:
        """Render another node."""
        return self._inner.scaffold(self._node(node))


def with_fault(inner: AnyBackend, fault: Fault) -> AnyBackend:
    """The backend with a fault in it."""
    return cast("AnyBackend", FaultyBackend(inner, fault))


def state_with_fault(state: NodeState, fault: Fault) -> NodeState:
    """What such a mode takes the state for, from its first sync on."""
    change = fault.remembering() if fault.remembering is not None else fault.port
    return evolve(state, node=fault.node(state.node), ports={key: change(port) for key, port in state.ports.items()})
