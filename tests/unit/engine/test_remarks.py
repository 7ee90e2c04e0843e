"""A mode's remarks: kept as long as they hold, told once, and no danger to anybody."""

from collections.abc import Iterable

from attrs import frozen

from kproxy_core.engine.remarks import Remarks
from kproxy_core.model.diagnostics import Diagnostic, Severity
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeContext, NodeState, ServicePort
from kproxy_core.testing.memory_backend import MemoryBackend
from kproxy_core.testing.playbook import Playbook
from kproxy_core.testing.sketch import gone, listed, node, port_key, put, service, slice_of

ODD = Diagnostic(severity=Severity.NOTE, subject="Service shop/other", message="odd")


def remark(name: str) -> Diagnostic:
    return Diagnostic(severity=Severity.ERROR, subject=f"Service shop/{name}", message="cannot do that")


@frozen(kw_only=True)
class Grumpy(MemoryBackend):
    """Has something to say about Services whose name begins with b; cannot even think of one."""

    def remarks(self, port: ServicePort) -> Iterable[Diagnostic]:
        """Say it."""
        if port.name.name == "unthinkable":
            raise ZeroDivisionError
        return [remark(port.name.name)] if port.name.name.startswith("b") else []


def state(*names: str, told: tuple[Diagnostic, ...] = ()) -> NodeState:
    keys = [port_key(f"shop/{name}") for name in names]
    ports = {key: ServicePort(name=key.name, family=key.family) for key in keys}
    return NodeState(node=NodeContext(), ports=ports, diagnostics=told)


def keys(*names: str) -> set[ServicePortKey]:
    return {port_key(f"shop/{name}") for name in names}


def test_they_come_after_what_is_told_anyway_and_go_with_their_service_port() -> None:
    remarks = Remarks(Grumpy())
    first = remarks.added_to(state("a", "b2", "b1", told=(ODD,)), keys("a", "b1", "b2"))
    assert first.diagnostics == (ODD, remark("b1"), remark("b2"))
    assert remarks.added_to(state("a", "b1"), keys("b2")).diagnostics == (remark("b1"),)
    nothing = state("a", told=(ODD,))
    assert remarks.added_to(nothing, keys("b1")) is nothing


def test_as_long_as_nothing_changes_they_are_the_same_object() -> None:
    remarks, told = Remarks(Grumpy()), (ODD,)
    first = remarks.added_to(state("b", told=told), keys("b"))
    again = remarks.added_to(state("a", "b", told=told), keys("a", "b"))
    assert again.diagnostics is first.diagnostics
    other = remarks.added_to(state("a", "b", told=(ODD, ODD)), keys("a"))
    assert other.diagnostics == (ODD, ODD, remark("b"))


def test_a_mode_that_fails_to_remark_is_told_of_and_harms_nobody() -> None:
    (told,) = Remarks(Grumpy()).added_to(state("unthinkable"), keys("unthinkable")).diagnostics
    assert "ZeroDivisionError" in told.message
    assert told.subject == "Service shop/unthinkable"


def test_the_engine_tells_them_with_the_state() -> None:
    play = Playbook(Grumpy())
    web = service("shop/bad", "10.96.0.10")
    play >> listed(node("192.0.2.1"), web, slice_of("shop/bad", "10.244.1.1"))
    assert play.engine.state is not None
    assert remark("bad") in play.engine.state.diagnostics
    play.advance(10)
    play >> put(slice_of("shop/bad", "10.244.1.2"))
    assert remark("bad") in play.engine.state.diagnostics
    play.advance(10)
    play >> gone(web)
    assert remark("bad") not in play.engine.state.diagnostics
