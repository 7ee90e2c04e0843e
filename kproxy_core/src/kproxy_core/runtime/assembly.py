"""From changes to a program without a kernel: what ``kproxy render`` prints, and a first sync of the daemon puts there."""

from collections.abc import Iterable

from kproxy_core.config.settings import Settings
from kproxy_core.engine.changes import ChangeTracker
from kproxy_core.engine.compile import compile_ports
from kproxy_core.engine.events import AnyProgram
from kproxy_core.engine.remarks import Remarks
from kproxy_core.model.addresses import Address
from kproxy_core.model.changes import Change
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.plugin.errors import ContractError
from kproxy_core.program.program import link


def program_for(
    backend: AnyBackend, changes: Iterable[Change], settings: Settings, interface_addresses: Iterable[Address]
) -> tuple[NodeState, AnyProgram]:
    """Resolve and compile what the changes lead to, whether or not every kind has been listed. Pure; needs no root.

    Raises ``ContractError`` naming the Service port when the backend cannot render one: the daemon would serve the others.
    """
    tracker = ChangeTracker(settings, backend.node_ports_everywhere)
    tracker.set_interface_addresses(interface_addresses)
    tracker.apply(changes)
    state = tracker.resolve().state
    state = Remarks(backend).added_to(state, state.ports)
    # In the order of their names, so that the same manifests give the same ids, and text, each time.
    compiled = compile_ports(backend, state, sorted(state.ports), {}, 1)
    for port, reason in compiled.broken.items():
        raise ContractError(f"{port}: {reason}")
    fragments = {port: fragment for port, fragment in compiled.updates.items() if fragment is not None}
    return state, link(fragments, backend.scaffold(state.node))
