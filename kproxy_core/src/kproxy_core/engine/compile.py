"""Compiles the Service ports that an update made dirty, each on its own, so that a backend's fault on one harms no other."""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen

from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.program.program import Fragment

AnyFragment = Fragment[Any, Any]


@frozen(kw_only=True)
class Compiled:
    """What came out. ``updates`` maps each Service port to its fragment, or to None if it is not wanted any more.

    ``broken`` tells why a Service port could not be compiled. ``next_id`` is above every id given out.
    """

    updates: Mapping[ServicePortKey, AnyFragment | None] = field(factory=dict)
    broken: Mapping[ServicePortKey, str] = field(factory=dict)
    next_id: int


def compile_ports(
    backend: AnyBackend,
    state: NodeState,
    dirty: Iterable[ServicePortKey],
    previous: Mapping[ServicePortKey, AnyFragment],
    next_id: int,
) -> Compiled:
    """Compile ``dirty`` Service ports of a state; ids and slots are those of ``previous``, new ids count up from ``next_id``."""
    updates: dict[ServicePortKey, AnyFragment | None] = {}
    broken: dict[ServicePortKey, str] = {}
    for key in dirty:
        port = state.ports.get(key)
        if port is None:
            updates[key] = None
            continue
        before = previous.get(key)
        try:
            fragment = backend.compile(port, state.node, before, next_id)
            fragment.check_id(before, next_id)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not stop the others
            broken[key] = f"mode {backend.name} cannot render it: {error!r}"
            continue
        updates[key] = fragment
        next_id = max(next_id, fragment.id + 1)
    return Compiled(updates=updates, broken=broken, next_id=next_id)
