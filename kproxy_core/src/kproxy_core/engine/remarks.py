"""What a mode remarks on Service ports, kept up to date and put with the diagnostics of the state."""

from collections.abc import Iterable

from attrs import evolve

from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeState, ServicePort
from kproxy_core.plugin.backend import AnyBackend


class Remarks:
    """Remembers what has been remarked on, so that only Service ports that change are asked about again."""

    def __init__(self, backend: AnyBackend) -> None:
        self._backend = backend
        self._by_port: dict[ServicePortKey, tuple[Diagnostic, ...]] = {}
        self._resolved: tuple[Diagnostic, ...] = ()
        self._all: tuple[Diagnostic, ...] = ()

    def added_to(self, state: NodeState, dirty: Iterable[ServicePortKey]) -> NodeState:
        """Return the state with the mode's remarks; ``dirty`` are the Service ports that differ from the last state's.

        As long as no diagnostic changes, the tuple of them is the same object.
        """
        before = dict(self._by_port)
        for key in dirty:
            port = state.ports.get(key)
            self._by_port.pop(key, None)
            if port is not None and (told := self._ask(port)):
                self._by_port[key] = told
        if not self._by_port:
            return state
        if self._by_port != before or state.diagnostics is not self._resolved:
            self._resolved = state.diagnostics
            self._all = (*state.diagnostics, *(each for key in sorted(self._by_port) for each in self._by_port[key]))
        return evolve(state, diagnostics=self._all)

    def _ask(self, port: ServicePort) -> tuple[Diagnostic, ...]:
        try:
            return tuple(self._backend.remarks(port))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not end the daemon
            subject = f"Service {port.name.namespace}/{port.name.name}"
            message = f"mode {self._backend.name} cannot tell what it thinks of it: {error!r}"
            return (Diagnostic(severity=Severity.WARNING, subject=subject, message=message),)
