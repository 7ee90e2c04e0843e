"""Packets on paper: leads them through the rules of a paper kernel, which may change while they are on their way.

So it shows what no real kernel can be made to show at will: every moment at which a packet may meet a commit.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.packet import Packet
from kproxy_core.wire.nft_constants import (
    CompareOp,
    CtKey,
    CtStatus,
    DynsetOp,
    FibResult,
    MetaKey,
    PayloadBase,
    Register,
    RouteType,
    SetFlag,
    VerdictCode,
)
from kproxy_core.wire.nft_constants import Hook as HookNumber
from kproxy_core.wire.nft_data import Verdict
from kproxy_core.wire.nft_elements import Element
from kproxy_core.wire.nft_expressions import (
    AnyExpression,
    Bitwise,
    Compare,
    CtLoad,
    Dynset,
    Fib,
    Immediate,
    Lookup,
    Masquerade,
    MetaLoad,
    MetaSet,
    Nat,
    Numgen,
    PayloadLoad,
    Reject,
)

from .paper_kernel import PaperSet, PaperTable, Tables, overlap

LOCAL = int(RouteType.LOCAL)
UNICAST = int(RouteType.UNICAST)


@frozen
class Translated:
    """The packet goes to an endpoint, from the client's address or from the node's."""

    address: Address
    port: int
    masqueraded: bool


@frozen
class Discarded:
    """Dropped."""


@frozen
class Rejected:
    """Refused: by what, and with which code."""

    type: int
    code: int | None


@frozen
class Passed:
    """Nobody minded it. ``marked`` should never be: the mark must be as before."""

    marked: bool = False


Outcome = Translated | Discarded | Rejected | Passed
States = Callable[[int], Tables]
"""What the kernel holds at the nth look that a packet takes at a set."""

MARK = 0x12340000
"""The mark that packets come with: somebody else's."""


class _EndError(Exception):
    """A packet's way through one hook ends."""

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome


class _BreakError(Exception):
    """A rule does not match, or cannot go on."""


@define
class Walk:
    """One packet's way, with every choice made in advance; ``moduli`` tells of how many each was."""

    states: States
    packet: Packet
    local: frozenset[Address]
    choices: Sequence[int]
    affinity: dict[bytes, bytes]
    moduli: list[int] = field(factory=list)
    looks: int = 0
    mark: int = MARK
    target: tuple[Address, int] | None = None
    masqueraded: bool = False
    _registers: dict[int, bytes] = field(factory=dict)

    @property
    def family(self) -> Family:
        return self.packet.destination.family

    def go(self) -> Outcome:
        """Walk through all hooks."""
        first = HookNumber.OUTPUT if self.packet.from_this_node else HookNumber.PREROUTING
        for hook in (first, HookNumber.POSTROUTING):
            outcome = self._hook(hook)
            if outcome is not None:
                return outcome
        if self.target is None:
            return Passed(marked=self.mark != MARK)
        assert self.mark == MARK, "the mark is as it came"
        return Translated(*self.target, masqueraded=self.masqueraded)

    def _hook(self, hook: int) -> Outcome | None:
        # The generation of rules is chosen at the beginning; sets are as they are whenever they are asked.
        table = self.states(self.looks).get(self.family)
        chains = () if table is None else table.chains.values()
        for each in chains:
            if each.chain.base is not None and each.chain.base.hook == hook:
                try:
                    self._chain(table, each.chain.name)  # type: ignore[arg-type]
                except _EndError as end:
                    return end.outcome
        return None

    def _chain(self, table: PaperTable, name: str) -> None:
        chain = table.chains.get(name)  # one that this generation does not have yet is empty
        for expressions, _ in chain.rules if chain is not None else ():
            self._registers = {}
            try:
                verdict = self._rule(expressions)
            except _BreakError:
                continue
            if verdict is None:
                continue
            if verdict.code == VerdictCode.DROP:
                raise _EndError(Discarded())
            if verdict.code == VerdictCode.RETURN:
                return
            self._chain(table, str(verdict.chain))
            if verdict.code == VerdictCode.GOTO:
                return

    def _rule(self, expressions: Sequence[AnyExpression]) -> Verdict | None:
        for expression in expressions:
            verdict = self._step(expression)
            if verdict is not None:
                return verdict
        return None

    def _step(self, expression: AnyExpression) -> Verdict | None:
        match expression:
            case Immediate(data=Verdict() as verdict):
                return verdict
            case Lookup():
                return self._lookup(expression)
            case Dynset():
                self._remember(expression)
            case Nat():
                self._translate(expression)
            case Masquerade():
                self.masqueraded = True
                raise _EndError(None)
            case Reject():
                raise _EndError(Rejected(expression.type, expression.code))
            case _:
                self._compute(expression)
        return None

    def _compute(self, expression: Any) -> None:
        match expression:
            case MetaLoad(dreg=dreg, key=key):
                self._store(dreg, self._meta(key))
            case MetaSet(key=MetaKey.MARK, sreg=sreg):
                self.mark = int.from_bytes(self._load(sreg, 4), sys.byteorder)
            case PayloadLoad(dreg=dreg, base=base, offset=offset, length=length):
                self._store(dreg, self._header(base)[offset : offset + length])
            case CtLoad(dreg=dreg, key=CtKey.STATUS):
                self._store(dreg, (CtStatus.DNAT if self.target else 0).to_bytes(4, sys.byteorder))
            case Bitwise(sreg=sreg, dreg=dreg, mask=mask, xor=xor):
                found = zip(self._load(sreg, len(mask)), mask, xor, strict=True)
                self._store(dreg, bytes(byte & keep ^ flip for byte, keep, flip in found))
            case Compare(sreg=sreg, op=op, data=data):
                if (self._load(sreg, len(data)) == data) != (op == CompareOp.EQ):
                    raise _BreakError
            case Fib(dreg=dreg, result=FibResult.ADDRTYPE):
                self._store(dreg, (LOCAL if self.packet.destination in self.local else UNICAST).to_bytes(4, sys.byteorder))
            case Numgen(dreg=dreg, modulus=modulus):
                choice = self.choices[len(self.moduli)] if len(self.moduli) < len(self.choices) else 0
                self.moduli.append(modulus)
                self._store(dreg, choice.to_bytes(4, sys.byteorder))
            case _:
                raise NotImplementedError(expression)

    def _meta(self, key: int) -> bytes:
        match key:
            case MetaKey.MARK:
                return self.mark.to_bytes(4, sys.byteorder)
            case MetaKey.L4PROTO:
                return bytes((self.packet.protocol,))
            case MetaKey.IIFNAME:
                return self.packet.interface.encode().ljust(16, b"\0")
        raise NotImplementedError(key)

    def _header(self, base: int) -> bytes:
        destination, port = self.target or (self.packet.destination, self.packet.port)
        if base == PayloadBase.TRANSPORT:
            return bytes(2) + port.to_bytes(2, "big")
        return bytes(12 if self.family is Family.IPV4 else 8) + self.packet.source + destination

    def _store(self, register: int, data: bytes) -> None:
        for start in range(0, len(data), 4):
            self._registers[register + start // 4] = data[start : start + 4].ljust(4, b"\0")

    def _load(self, register: int, length: int) -> bytes:
        parts = []
        for number in range(register, register + (length + 3) // 4):
            assert number in self._registers, f"register {number} is read before this rule has set it"
            parts.append(self._registers[number])
        assert register + (length + 3) // 4 - 1 <= Register.R15
        return b"".join(parts)[:length]

    def _set(self, name: str) -> PaperSet | None:
        table = self.states(self.looks).get(self.family)
        self.looks += 1
        return None if table is None else table.sets.get(name)

    def _lookup(self, lookup: Lookup) -> Verdict | None:
        target = self._set(lookup.set_name)
        found = None if target is None else self._find(target, lookup)
        if (found is None) != (lookup.flags == 1):
            raise _BreakError
        if found is None or lookup.dreg is None:
            return None
        if lookup.dreg == Register.VERDICT:
            assert isinstance(found.data, Verdict)
            return found.data
        assert isinstance(found.data, bytes)
        self._store(lookup.dreg, found.data)
        return None

    def _find(self, target: PaperSet, lookup: Lookup) -> Element | None:
        key = self._load(lookup.sreg, target.shape.key_length)
        if target.shape.flags & SetFlag.TIMEOUT:
            data = self.affinity.get(key)
            return None if data is None else Element(key=key, data=data)
        if not target.shape.flags & SetFlag.INTERVAL:
            return target.elements.get(key)
        point = Element(key=key)
        return next((element for element in target.elements.values() if overlap(target.shape, point, element)), None)

    def _remember(self, dynset: Dynset) -> None:
        target = self._set(dynset.set_name)
        assert target is not None
        key = self._load(dynset.key, target.shape.key_length)
        if dynset.op == DynsetOp.DELETE:
            self.affinity.pop(key, None)
        elif key not in self.affinity and len(self.affinity) >= target.shape.size:
            raise _BreakError
        else:
            # An update refreshes the time and keeps the value.
            self.affinity.setdefault(key, self._load(dynset.data or 0, 4))

    def _translate(self, nat: Nat) -> None:
        assert nat.address is not None
        assert nat.port is not None
        address = Address(self._load(nat.address, self.family.bits // 8))
        self.target = address, int.from_bytes(self._load(nat.port, 2), "big")
        raise _EndError(None)


def outcomes(
    states: States, packet: Packet, local: frozenset[Address] = frozenset(), affinity: Mapping[bytes, bytes] | None = None
) -> frozenset[Outcome]:
    """Everything that may become of a packet, over all choices of the random numbers."""
    found: set[Outcome] = set()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        choices = waiting.pop()
        walk = Walk(states, packet, local, choices, dict(affinity or {}))
        found.add(walk.go())
        for index in range(len(choices), len(walk.moduli)):
            taken = (*choices, *(0,) * (index - len(choices)))
            waiting += [(*taken, choice) for choice in range(1, walk.moduli[index])]
    return frozenset(found)


def always(tables: Tables) -> States:
    """A kernel that does not change."""
    return lambda _look: tables


def committed_at(before: Tables, after: Tables, look: int) -> States:
    """A kernel that changes just before a packet's nth look at a set."""
    return lambda number: after if number >= look else before
