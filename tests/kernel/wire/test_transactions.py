"""Transactions on the real kernel: all or nothing, errors at the operation and element that caused them, cut where allowed."""

import errno
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kproxy_core.kernel.errors import NetlinkError
from kproxy_core.kernel.netlink_socket import NetlinkSocket
from kproxy_core.kernel.nftables import NftSocket, OperationError
from kproxy_core.testing.lab import command_in_user_namespace
from kproxy_core.wire import nftables as nft_wire
from kproxy_core.wire.errors import EncodingError
from kproxy_core.wire.netlink import Protocol
from kproxy_core.wire.nftables import (
    BaseChain,
    Chain,
    DataType,
    Element,
    ElementCodec,
    Family,
    Lookup,
    Nat,
    Numgen,
    Operation,
    Register,
    Rule,
    Set,
    SetFlag,
    Table,
    cut_before,
    jump,
    verdict,
)

pytestmark = pytest.mark.kernel

IPV4, IPV6 = Family.IPV4, Family.IPV6
TABLE = Table(family=IPV4, name="kproxy")
MAP = Set(
    family=IPV4,
    table="kproxy",
    name="services",
    key_type=DataType.IPV4_ADDR,
    key_length=4,
    data_type=DataType.MARK,
    data_length=4,
    flags=SetFlag.MAP,
)
CODEC = ElementCodec.of(MAP)


def pairs(count: int, start: int = 0) -> list[tuple[bytes, bytes]]:
    return [(struct.pack("!I", number), struct.pack("=I", number)) for number in range(start, start + count)]


def scaffold() -> list[Operation]:
    return [nft_wire.add(TABLE), nft_wire.add(MAP)]


def rule(chain: str, *expressions: nft_wire.AnyExpression) -> Operation:
    return nft_wire.add(Rule(family=IPV4, table="kproxy", chain=chain, expressions=expressions))


def test_a_check_says_what_a_commit_would_and_changes_nothing(nftables: NftSocket) -> None:
    assert nftables.commit([nft_wire.add(TABLE), nft_wire.add(MAP)]).ok
    before = nftables.generation()
    good = [*CODEC.add(pairs(100)), nft_wire.add(Table(family=IPV6, name="kproxy"))]
    assert nftables.check(good) == ()
    (error,) = nftables.check([*good, nft_wire.create(MAP)])
    assert (error.index, error.error) == (len(good), errno.EEXIST)
    assert nftables.check([]) == ()
    assert nftables.generation() == before
    assert nftables.elements(CODEC) == []
    assert [table.family for table in nftables.tables()] == [IPV4]
    assert nftables.commit(good).ok, "and nothing is left in the socket"


def test_one_refused_operation_undoes_all(nftables: NftSocket) -> None:
    missing = Chain(family=IPV4, table="elsewhere", name="c")
    result = nftables.commit([*scaffold(), *CODEC.add(pairs(5)), nft_wire.add(missing)])
    (error,) = result.errors
    assert (result.done, result.transactions, result.ok) == (0, 0, False)
    assert (error.index, error.error) == (3, errno.ENOENT)
    assert error.operation is not None
    assert error.operation.kind == nft_wire.MessageKind.NEWCHAIN
    assert nftables.tables() == ()


def test_nothing_to_do_is_no_transaction(nftables: NftSocket) -> None:
    before = nftables.generation()
    assert nftables.commit([]).ok
    assert nftables.generation() == before


def test_every_refused_operation_is_told(nftables: NftSocket) -> None:
    assert nftables.commit(scaffold()).ok
    bad = [rule("nowhere"), *CODEC.add(pairs(1)), rule("nowhere"), *CODEC.delete([b"\7\7\7\7"])]
    result = nftables.commit(bad)
    assert [(error.index, error.error) for error in result.errors] == [
        (0, errno.ENOENT),
        (2, errno.ENOENT),
        (3, errno.ENOENT),
    ]
    assert nftables.elements(CODEC) == []


@pytest.mark.parametrize("wrong", [0, 1, 77, 499])
def test_the_refused_element_is_told(wrong: int, nftables: NftSocket) -> None:
    assert nftables.commit([*scaffold(), *CODEC.add(pairs(500))]).ok
    keys = [key for key, _ in pairs(500)]
    keys[wrong] = b"\xff\xff\xff\xff"
    result = nftables.commit([*CODEC.add(pairs(1, start=1000)), *CODEC.delete(keys)])
    (error,) = result.errors
    assert (error.index, error.error, error.element) == (1, errno.ENOENT, wrong)
    assert len(nftables.elements(CODEC)) == 500


def test_the_refused_element_is_told_in_a_later_message(nftables: NftSocket) -> None:
    """The elements fill three messages; the index tells the message, the element its place there."""
    items = pairs(5000)
    assert nftables.commit([*scaffold(), *CODEC.add(items[4000:4001])]).ok
    add = CODEC.add(items, exclusive=True)
    (error,) = nftables.commit(add).errors
    assert error.error == errno.EEXIST
    assert error.index is not None
    assert error.element is not None
    per_message = (65535 - 4) // (4 + 8 + 4 + 8 + 4)
    assert error.index * per_message + error.element == 4000


def test_another_value_for_a_key_is_refused_unless_it_is_deleted_first(nftables: NftSocket) -> None:
    assert nftables.commit([*scaffold(), *CODEC.add(pairs(3))]).ok
    key = pairs(1)[0][0]
    other = [(key, b"\xaa\xaa\xaa\xaa")]
    (error,) = nftables.commit(CODEC.add(other)).errors
    assert error.error in (errno.EEXIST, errno.EBUSY)
    assert nftables.commit([*CODEC.delete([key]), *CODEC.add(other)]).ok
    assert dict(nftables.elements(CODEC))[key] == other[0][1]


def test_a_fault_of_the_whole_is_told(nftables: NftSocket) -> None:
    """A loop of chains shows only when the kernel checks the whole."""
    chains = [Chain(family=IPV4, table="kproxy", name=name) for name in ("a", "b")]
    base = Chain(family=IPV4, table="kproxy", name="in", base=BaseChain(type="filter", hook=0, priority=0))
    result = nftables.commit(
        [
            nft_wire.add(TABLE),
            *map(nft_wire.add, (*chains, base)),
            rule("in", verdict(jump("a"))),
            rule("a", verdict(jump("b"))),
            rule("b", verdict(jump("a"))),
        ]
    )
    assert errno.EMLINK in {error.error for error in result.errors}
    assert nftables.tables() == ()


def test_the_kernels_own_words_come_through(nftables: NftSocket) -> None:
    """Where the kernel has a text it is kept; EBUSY for a chain in use has none, but the operation is known."""
    chain = Chain(family=IPV4, table="kproxy", name="used")
    other = Chain(family=IPV4, table="kproxy", name="other")
    things = [nft_wire.add(TABLE), nft_wire.add(chain), nft_wire.add(other), rule("other", verdict(jump("used")))]
    assert nftables.commit(things).ok
    (error,) = nftables.commit([nft_wire.delete(chain)]).errors
    assert (error.index, error.error) == (0, errno.EBUSY)


def test_a_condition_on_the_generation(namespace: int, nftables: NftSocket) -> None:
    before = nftables.generation()
    with NftSocket(namespace=namespace) as other:
        assert other.commit([nft_wire.add(Table(family=IPV4, name="other"))]).ok
    (error,) = nftables.commit(scaffold(), generation=before).errors
    assert (error.index, error.error) == (None, errno.ERESTART)
    assert nftables.commit(scaffold(), generation=nftables.generation()).ok


def test_a_commit_tells_its_generation(nftables: NftSocket) -> None:
    before = nftables.generation()
    result = nftables.commit(scaffold())
    assert result.generations == (before + 1,)
    assert nftables.generation() == before + 1
    assert nftables.commit([nft_wire.add(TABLE)]).generations == (None,)
    assert nftables.generation() == before + 1
    assert nftables.commit(CODEC.add(pairs(1))).generations == (before + 2,)


def test_both_families_in_one_transaction(nftables: NftSocket) -> None:
    result = nftables.commit([nft_wire.add(Table(family=family, name="kproxy")) for family in (IPV4, IPV6)])
    assert result.transactions == 1
    assert {table.family for table in nftables.tables()} == {IPV4, IPV6}


def test_megabytes_go_in_one_transaction(nftables: NftSocket) -> None:
    operations = [*scaffold(), *CODEC.add(pairs(50_000))]
    assert sum(operation.size for operation in operations) > 1_000_000
    result = nftables.commit(operations)
    if result.transactions > 1:
        pytest.skip("needs CAP_NET_ADMIN in the first user namespace to send megabytes at once")
    assert result.ok
    assert len(nftables.elements(CODEC)) == 50_000


def test_a_rule_that_the_kernel_refuses(nftables: NftSocket) -> None:
    """Not only its errno but which of several rules it is."""
    chain = Chain(family=IPV4, table="kproxy", name="c")
    result = nftables.commit(
        [
            *scaffold(),
            nft_wire.add(chain),
            rule("c", Numgen(dreg=Register.R0, modulus=2)),
            rule("c", Numgen(dreg=Register.R0, modulus=0)),
            rule("c", Numgen(dreg=Register.R0, modulus=2), Lookup(set_name="nosuch", sreg=Register.R0)),
        ]
    )
    assert [(error.index, error.error) for error in result.errors] == [(4, errno.ERANGE), (5, errno.ENOENT)]


def test_dnat_outside_a_nat_chain_is_refused(nftables: NftSocket) -> None:
    chain = Chain(family=IPV4, table="kproxy", name="c", base=BaseChain(type="filter", hook=0, priority=0))
    nat = rule("c", nft_wire.Immediate(dreg=Register.R0, data=b"\1\1\1\1"), Nat(family=IPV4, address=Register.R0))
    (error,) = nftables.commit([*scaffold(), nft_wire.add(chain), nat]).errors
    assert (error.index, error.error) == (3, errno.EOPNOTSUPP)


def test_a_datagram_beyond_the_buffer_is_an_error(namespace: int) -> None:
    with NetlinkSocket(Protocol.NETFILTER, namespace=namespace) as socket, pytest.raises(NetlinkError, match="EMSGSIZE"):
        socket.send(bytes(socket.send_room + 1), "too much")


CHILD = Path(__file__).with_name("unprivileged.py")


def in_a_user_namespace(case: str) -> dict[str, Any]:
    """Run a case of unprivileged.py in a user namespace, where SO_SNDBUFFORCE is refused."""
    command = command_in_user_namespace([sys.executable, str(CHILD), case])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("user_namespaces")
def test_without_privilege_a_large_transaction_is_cut() -> None:
    found = in_a_user_namespace("cut")
    assert found["room"] < found["bytes"]
    assert found["transactions"] > 1
    assert found["done"] == found["operations"]
    assert found["elements"] == found["wanted"]


@pytest.mark.usefixtures("user_namespaces")
def test_without_privilege_a_cut_transaction_stops_at_its_first_failing_part() -> None:
    found = in_a_user_namespace("fail")
    assert found["transactions"] >= 1
    assert found["index"] == found["operations"] - 1
    assert found["error"] == errno.ENOENT
    assert 0 < found["done"] < found["operations"]
    assert 0 < found["elements"] < found["wanted"]


@pytest.mark.usefixtures("user_namespaces")
def test_without_privilege_what_may_not_be_cut_is_refused_before_anything_is_done() -> None:
    assert in_a_user_namespace("whole") == {"error": "EncodingError", "tables": 0}


@pytest.mark.usefixtures("user_namespaces")
def test_without_privilege_many_errors_are_all_told_or_the_outcome_is_known_to_be_failure() -> None:
    found = in_a_user_namespace("errors")
    assert found["done"] == 0
    assert found["tables"] == 0


def test_an_error_is_a_value(nftables: NftSocket) -> None:
    (error,) = nftables.commit([nft_wire.delete(TABLE)]).errors
    assert error == OperationError(index=0, error=errno.ENOENT, operation=nft_wire.delete(TABLE), text=error.text, element=None)
    with pytest.raises(EncodingError, match="handle"):
        nft_wire.replace(Rule(family=IPV4, table="t", chain="c", expressions=()))
    assert cut_before([]) == []
    assert CODEC.add_elements([Element(key=b"1234", data=b"5678")])[0].kind == nft_wire.MessageKind.NEWSETELEM
