"""Flows: what the kernel writes is read, by the quick way and by the thorough one, and garbage is refused."""

import sys
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy_core.wire import ctnetlink, netlink, nfnetlink
from kproxy_core.wire.ctnetlink import FilterFlag, Flow, FlowFilter, FlowTuple
from kproxy_core.wire.errors import EncodingError, MalformedMessageError
from kproxy_core.wire.netlink import MessageFlag
from kproxy_core.wire.nfnetlink import Family, Subsystem

from .strategies import damaged

NEW = nfnetlink.message_type(Subsystem.CTNETLINK, 0)
SIZE = {Family.IPV4: 4, Family.IPV6: 16}
ports = st.integers(0, 0xFFFF)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    family = draw(st.sampled_from([Family.IPV4, Family.IPV6]))
    address = st.binary(min_size=SIZE[family], max_size=SIZE[family])
    protocol = draw(st.sampled_from([6, 17, 132]))
    directions = st.builds(
        FlowTuple, protocol=st.just(protocol), source=address, destination=address, source_port=ports, destination_port=ports
    )
    return Flow(
        family=family,
        original=draw(directions),
        reply=draw(directions),
        status=draw(st.integers(0, 0x3FF)),
        zone=draw(ports),
        id=draw(st.binary(min_size=4, max_size=4)),
        mark=draw(st.integers(0, 2**32 - 1)),
        timeout=draw(st.integers(0, 2**32 - 1)),
    )


def direction(kind: int, family: Family, value: FlowTuple, zone: int | None = None) -> bytes:
    first = 1 if family == Family.IPV4 else 3
    address = netlink.attribute(first, value.source) + netlink.attribute(first + 1, value.destination)
    inner = (
        netlink.attribute(1, bytes((value.protocol,)))
        + netlink.u16be(2, value.source_port)
        + netlink.u16be(3, value.destination_port)
    )
    more = b"" if zone is None else netlink.u16be(3, zone)
    return netlink.nested(kind, netlink.nested(1, address), netlink.nested(2, inner), more)


def payload(flow: Flow, tuple_zone: int | None = None) -> bytes:
    """A flow as the kernel lists it."""
    assert flow.id is not None
    assert flow.timeout is not None
    return b"".join(
        (
            nfnetlink.family_header(flow.family),
            direction(1, flow.family, flow.original, tuple_zone),
            direction(2, flow.family, flow.reply),
            netlink.u32be(3, flow.status),
            netlink.u32be(7, flow.timeout),
            netlink.u32be(8, flow.mark),
            netlink.attribute(12, flow.id),
            netlink.u16be(18, flow.zone),
        )
    )


def buffer(*payloads: bytes) -> bytes:
    return b"".join(netlink.message(NEW, MessageFlag.MULTI, 1, raw) for raw in payloads)


def service(flow: Flow) -> bytes:
    return flow.original.destination + flow.original.destination_port.to_bytes(2, "big")


def responder(flow: Flow) -> bytes:
    return flow.reply.source + flow.reply.source_port.to_bytes(2, "big")


@given(flows())
def test_a_flow_is_read(flow: Flow) -> None:
    found = Flow.decode(payload(flow))
    assert found == flow
    assert found.timeout == flow.timeout


@given(st.lists(flows(), max_size=8), st.sampled_from([6, 17, 132]), st.none() | st.integers(0, 5))
def test_a_dump_is_scanned(all_flows: list[Flow], protocol: int, tuple_zone: int | None) -> None:
    """With a zone in the tuple the layout is another, and the thorough way is taken: the result must be the same."""
    raw = buffer(*(payload(flow, tuple_zone) for flow in all_flows))
    seen: list[tuple[bytes, bytes]] = []

    def select(to: bytes, by: bytes) -> bool:
        seen.append((to, by))
        return to[-1] % 2 == 0

    found = list(ctnetlink.scan(raw, protocol, select))
    right_protocol = [flow for flow in all_flows if flow.original.protocol == protocol]
    assert seen == [(service(flow), responder(flow)) for flow in right_protocol]
    assert found == [flow for flow in right_protocol if flow.original.destination_port % 2 == 0]


def test_other_messages_in_a_dump_are_passed_over() -> None:
    done = netlink.message(netlink.ControlType.DONE, MessageFlag.MULTI, 1, bytes(4))
    assert list(ctnetlink.scan(done, 17, lambda *_: True)) == []
    assert list(ctnetlink.scan(b"", 17, lambda *_: True)) == []


@given(flows())
def test_a_deletion_names_the_answers_and_the_identity(flow: Flow) -> None:
    raw = ctnetlink.delete_request(flow)
    found = netlink.attributes(raw, 4)
    assert raw[0] == flow.family
    assert found[12] == flow.id
    assert (18 in found) == bool(flow.zone)
    assert 1 not in found
    as_listed = netlink.attributes(payload(flow), 4)[2]
    assert found[2] == as_listed


def test_an_address_of_the_other_family_is_refused() -> None:
    side = FlowTuple(protocol=17, source=bytes(4), destination=bytes(4))
    with pytest.raises(EncodingError, match="IPV6"):
        ctnetlink.delete_request(Flow(family=Family.IPV6, original=side, reply=side))


def filter_flags(wanted: FlowFilter) -> FilterFlag:
    masks = netlink.attributes(netlink.attributes(wanted.encode())[25])
    return FilterFlag(int.from_bytes(masks[1], sys.byteorder))


def test_a_filter_compares_only_what_it_names() -> None:
    v4 = FlowFilter(family=Family.IPV4, destination=bytes(4), destination_port=53)
    assert filter_flags(FlowFilter(family=Family.IPV4)) == FilterFlag.PROTOCOL
    assert filter_flags(v4) == FilterFlag.PROTOCOL | FilterFlag.DESTINATION | FilterFlag.DESTINATION_PORT
    assert v4.exact


def test_an_ipv6_address_is_never_sent_as_a_filter() -> None:
    """The kernel compares it the wrong way round: a deletion would hit all flows but the wanted ones."""
    v6 = FlowFilter(family=Family.IPV6, destination=bytes(16), destination_port=53)
    assert filter_flags(v6) == FilterFlag.PROTOCOL | FilterFlag.DESTINATION_PORT
    assert not v6.exact
    with pytest.raises(EncodingError, match="IPv6"):
        ctnetlink.delete_matching_request(v6)
    assert FlowFilter(family=Family.IPV6, destination_port=53).exact


@given(flows())
def test_a_filter_matches_what_it_describes(flow: Flow) -> None:
    exact = FlowFilter(
        family=flow.family,
        protocol=flow.original.protocol,
        destination=flow.original.destination,
        destination_port=flow.original.destination_port,
    )
    assert exact.matches(flow)
    for change in (
        {"protocol": 99},
        {"destination": b"elsewhere"},
        {"destination_port": flow.original.destination_port ^ 1},
        {"family": Family.INET},
    ):
        assert not attrs.evolve(exact, **change).matches(flow)


READERS: list[Callable[[bytes], object]] = [
    Flow.decode,
    lambda raw: list(ctnetlink.scan(raw, 17, lambda *_: True)),
    lambda raw: list(ctnetlink.scan(buffer(raw), 17, lambda *_: True)),
]


@pytest.mark.parametrize("read", READERS)
@given(raw=st.binary(max_size=120))
def test_any_bytes_are_read_or_malformed(read: Callable[[bytes], object], raw: bytes) -> None:
    try:
        read(raw)
    except MalformedMessageError:
        return


@pytest.mark.parametrize("read", READERS)
@given(flow=flows(), data=st.data())
def test_damaged_flows_are_read_or_malformed(read: Callable[[bytes], object], flow: Flow, data: st.DataObject) -> None:
    raw = data.draw(damaged(payload(flow)))
    try:
        read(raw)
    except MalformedMessageError:
        return
