"""Generic netlink families as the kernel tells them."""

import pytest
from hypothesis import given

from kproxy_core.wire import genetlink, netlink
from kproxy_core.wire.errors import MalformedMessageError
from kproxy_core.wire.genetlink import GenericFamily

from .strategies import damaged

ANSWER = (
    genetlink.header(1, 2)
    + netlink.string(2, "IPVS")
    + netlink.attribute(1, b"\x1b\0")
    + netlink.attribute(3, b"\1\0\0\0")
    + netlink.attribute(5, b"\7\0\0\0")
)


def test_a_family() -> None:
    assert GenericFamily.decode(ANSWER) == GenericFamily(name="IPVS", id=27, version=1)


def test_a_request() -> None:
    assert genetlink.family_request("IPVS") == bytes((3, 1, 0, 0)) + netlink.string(2, "IPVS")


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_what_is_missing(missing: int) -> None:
    parts = [netlink.attribute(kind, value) for kind, value in netlink.iter_attributes(ANSWER, 4) if kind != missing]
    with pytest.raises(MalformedMessageError):
        GenericFamily.decode(ANSWER[:4] + b"".join(parts))


@given(damaged(ANSWER))
def test_damage_is_read_as_something_or_refused(raw: bytes) -> None:
    try:
        GenericFamily.decode(raw)
    except MalformedMessageError:
        return
