"""What others may do to our tables: each stranger's deed is a transaction of raw operations on what the kernel holds."""

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from kproxy_core.kernel.nftables import NftSocket
from kproxy_core.wire.nfnetlink import Family
from kproxy_core.wire.nft_constants import DataType, ElementFlag, Hook, MetaKey, Register, SetFlag, TableFlag, VerdictCode
from kproxy_core.wire.nft_data import DROP, Verdict, goto
from kproxy_core.wire.nft_elements import Element, ElementCodec
from kproxy_core.wire.nft_expressions import Lookup, MetaLoad, verdict
from kproxy_core.wire.nft_objects import BaseChain, Chain, Rule, Set, Table
from kproxy_core.wire.nft_operations import Operation, add, delete, flush_chain, flush_set, insert
from kproxy_nftables.objects import TABLE

IP4 = Family.IPV4


@frozen
class Stranger:
    """Another process' view of the IPv4 table."""

    nft: NftSocket

    def set(self, name: str) -> Set:
        """One of our sets, as the kernel has it."""
        return next(each for each in self.nft.sets(IP4, TABLE) if each.name == name)

    def codec(self, name: str) -> ElementCodec:
        """For the elements of it."""
        return ElementCodec.of(self.set(name))

    def elements(self, name: str) -> list[Element]:
        """All elements of one of our sets, sorted."""
        return sorted(self.nft.full_elements(self.codec(name)), key=lambda element: element.key)

    def chain(self, name: str) -> Chain:
        """One of our chains."""
        return next(each for each in self.nft.chains(IP4, TABLE) if each.name == name)

    def commit(self, operations: Iterable[Operation]) -> None:
        """Do it."""
        result = self.nft.commit(tuple(operations))
        assert result.ok, result


Deed = Callable[[Stranger], Iterable[Operation]]


def _drop_first(name: str) -> Deed:
    return lambda stranger: [insert(Rule(family=IP4, table=TABLE, chain=name, expressions=(verdict(DROP),)))]


def _lose(name: str) -> Deed:
    """Delete the first element of a set."""
    return lambda stranger: stranger.codec(name).delete_elements(stranger.elements(name)[:1])


def _lose_all(name: str) -> Deed:
    return lambda stranger: [flush_set(stranger.set(name))]


def _alter(name: str) -> Deed:
    """Give the first element the last one's data, or some that none has."""

    def deed(stranger: Stranger) -> Iterable[Operation]:
        first, *_, last = stranger.elements(name)
        data = last.data if last.data != first.data else bytes(reversed(bytes(first.data)))  # type: ignore[arg-type]
        codec = stranger.codec(name)
        return [*codec.delete_elements([first]), *codec.add_elements([evolve(first, data=data)])]

    return deed


def _add_stray(name: str, key: bytes = b"", data: bytes | Verdict | None = None, comment: str | None = None) -> Deed:
    """Add an element; by default one that differs from the first in the last byte of its key, with the same data."""

    def deed(stranger: Stranger) -> Iterable[Operation]:
        first = stranger.elements(name)[0]
        stray = key or first.key[:-1] + bytes((first.key[-1] ^ 0x55,))
        element = Element(key=stray, data=first.data if data is None else data, comment=comment)
        return stranger.codec(name).add_elements([element])

    return deed


def _catch_all(stranger: Stranger) -> Iterable[Operation]:
    first = stranger.elements("actions")[0]
    return stranger.codec("actions").add_elements([Element(key=b"", data=first.data, flags=ElementFlag.CATCHALL)])


def _rename_owner(stranger: Stranger) -> Iterable[Operation]:
    first, second = [each for each in stranger.elements("services") if each.comment][:2]
    codec = stranger.codec("services")
    return [*codec.delete_elements([first]), *codec.add_elements([evolve(first, comment=second.comment)])]


def _foreign_map(stranger: Stranger) -> Iterable[Operation]:
    """A chain of theirs, a map of verdicts that leads to it and to one of ours, and a rule of ours that asks the map."""
    chain = Chain(family=IP4, table=TABLE, name="theirs")
    target = Set(
        family=IP4,
        table=TABLE,
        name="their-map",
        key_type=DataType.MARK,
        key_length=4,
        data_type=int(DataType.VERDICT),
        data_length=16,
        flags=SetFlag.MAP,
    )
    elements = [Element(key=bytes((number, 0, 0, 0)), data=goto(name)) for number, name in enumerate(("theirs", "refuse"))]
    ask = (MetaLoad(dreg=Register.R0, key=MetaKey.MARK), Lookup(set_name="their-map", sreg=Register.R0, dreg=Register.VERDICT))
    return [
        *(add(thing) for thing in (chain, target)),
        *ElementCodec.of(target).add_elements(elements),
        insert(Rule(family=IP4, table=TABLE, chain="prerouting", expressions=ask)),
    ]


def _foreign_base_chain(stranger: Stranger) -> Iterable[Operation]:
    base = BaseChain(type="filter", hook=Hook.PREROUTING, priority=-400)
    chain = Chain(family=IP4, table=TABLE, name="their-filter", base=base)
    return [add(chain), add(Rule(family=IP4, table=TABLE, chain=chain.name, expressions=(verdict(DROP),)))]


def _lose_base_chain(stranger: Stranger) -> Iterable[Operation]:
    chain = stranger.chain("prerouting")
    return [flush_chain(chain), delete(chain)]


def _other_base_chain(stranger: Stranger) -> Iterable[Operation]:
    chain = stranger.chain("postrouting")
    other = evolve(chain, base=BaseChain(type="filter", hook=Hook.POSTROUTING, priority=100))
    return [flush_chain(chain), delete(chain), add(other)]


def _policy_drop(stranger: Stranger) -> Iterable[Operation]:
    chain = stranger.chain("prerouting")
    assert chain.base is not None
    return [add(evolve(chain, base=evolve(chain.base, policy=VerdictCode.DROP)))]


def _other_set(stranger: Stranger) -> Iterable[Operation]:
    """Another version's idea of a set: everything that asks it is removed, and it is made anew in another shape."""
    chains = list(stranger.nft.chains(IP4, TABLE))
    shape = stranger.set("hairpin")
    return [*map(flush_chain, chains), delete(shape), add(evolve(shape, size=77))]


def _lose_set(stranger: Stranger) -> Iterable[Operation]:
    return [*map(flush_chain, stranger.nft.chains(IP4, TABLE)), delete(stranger.set("cluster-ips"))]


def _reorder(stranger: Stranger) -> Iterable[Operation]:
    """Move the first rule of a chain to its end."""
    first = stranger.nft.rules(IP4, TABLE, "prerouting")[0]
    return [delete(first), add(Rule(family=IP4, table=TABLE, chain="prerouting", expressions=first.decoded()))]


def _lose_chain(prefix: str) -> Deed:
    """Empty one of the actions' chains."""
    return lambda stranger: [flush_chain(next(c for c in stranger.nft.chains(IP4, TABLE) if c.name.startswith(prefix)))]


DEEDS: dict[str, Deed] = {
    **{f"element lost from {name}": _lose(name) for name in ("services", "actions", "outside-actions", "node-port-services")},
    **{f"element lost from {name}": _lose(name) for name in ("node-port-actions", "endpoints", "local-endpoints", "hairpin")},
    **{f"element lost from {name}": _lose(name) for name in ("sticky-slots", "sticky-endpoints", "source-ranges", "dispatch")},
    **{f"element lost from {name}": _lose(name) for name in ("cluster-ips", "node-port-ips")},
    **{
        f"{name} emptied": _lose_all(name) for name in ("services", "node-port-services", "endpoints", "actions", "source-ranges")
    },
    **{
        f"element altered in {name}": _alter(name)
        for name in ("actions", "endpoints", "sticky-endpoints", "dispatch", "services")
    },
    **{
        f"stray element in {name}": _add_stray(name)
        for name in ("endpoints", "actions", "cluster-ips", "hairpin", "sticky-slots")
    },
    "stray service without a comment": _add_stray("services"),
    "stray service with a comment": _add_stray("services", data=b"\x63\0\0\0", comment="their/service:x/TCP"),
    "stray service with our id": _add_stray("services", comment="their/service:x/TCP"),
    "stray action": _add_stray("dispatch", key=b"\x63\0\0\0", data=DROP),
    "catch-all element": _catch_all,
    "owner renamed": _rename_owner,
    **{
        f"rule put first in {name}": _drop_first(name) for name in ("prerouting", "output", "postrouting", "node-ports", "refuse")
    },
    "rules reordered": _reorder,
    "an action's chain emptied": _lose_chain("pick-"),
    "foreign map": _foreign_map,
    "foreign base chain": _foreign_base_chain,
    "base chain lost": _lose_base_chain,
    "base chain of another type": _other_base_chain,
    "policy drop": _policy_drop,
    "set of another shape": _other_set,
    "set lost": _lose_set,
    "table dormant": lambda stranger: [add(Table(family=IP4, name=TABLE, flags=TableFlag.DORMANT))],
    "table lost": lambda stranger: [delete(Table(family=IP4, name=TABLE))],
}
"""What may happen, by name."""
