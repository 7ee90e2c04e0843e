"""The nftables mode's side of the kernel: reads the tables back, applies transactions, notices others' changes."""

import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from kproxy_core.kernel.errors import KernelError, PermissionDeniedError, netlink_error
from kproxy_core.kernel.nft_watch import ForeignChange, NftWatch
from kproxy_core.kernel.nftables import CommitResult, NftSocket, OperationError
from kproxy_core.model.addresses import Family
from kproxy_core.model.state import ServicePort
from kproxy_core.plugin.backend import ApplyResult, Dataplane, Drift, Failure, Finding, Leftovers, Support
from kproxy_core.plugin.errors import ApplyError, UnsupportedError
from kproxy_core.program.program import Program
from kproxy_core.wire import netlink, nfnetlink, nft_objects
from kproxy_core.wire.errors import MalformedMessageError, WireError
from kproxy_core.wire.nfnetlink import Family as NetlinkFamily
from kproxy_core.wire.nft_constants import MessageKind, SetFlag
from kproxy_core.wire.nft_elements import ElementCodec, decode_elements
from kproxy_core.wire.nft_operations import Operation, add, delete
from kproxy_nftables import numbered, sets
from kproxy_nftables.attribution import attribute, with_shared
from kproxy_nftables.objects import FAMILY_NAMES, HELD, TABLE, Chain, Hook, Key, Owned, Rule, Value, table_value
from kproxy_nftables.plan import phases
from kproxy_nftables.trials import Trial, holding, trials

_IPV6_INTERFACES: Final = Path("/proc/net/if_inet6")
_NO_NF_TABLES: Final = "use a kernel with CONFIG_NF_TABLES, or load the module nf_tables"
_SET_NAME: Final = 2
_FAMILY_NUMBERS: Final = frozenset(int(family) for family in FAMILY_NAMES)
_BULK: Final = 64
"""From this many messages on a commit is not announced to ourselves: the kernel would build a notification per element."""
_READ_SHARE: Final = 0.05
"""How much of a processor's time may go into reading everything back because others keep changing their own tables."""
_TABLE_KINDS: Final = frozenset({MessageKind.NEWTABLE, MessageKind.DELTABLE})
_ELEMENT_KINDS: Final = frozenset({MessageKind.NEWSETELEM, MessageKind.DELSETELEM})
_RETRY_PERIOD: Final = 10.0
"""Seconds after which a family that the kernel refuses is tried again, if nothing else has told that it may work now."""
_PASSING: Final = frozenset({errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN, errno.ERESTART, errno.ETIMEDOUT})
_UNREADABLE: Final = b"unreadable"
"""Set as userdata, makes a set differ from any that is wanted."""


_Marks = frozenset[tuple[int, int]]
"""Of each table of ours the handle, which tells whether it is still the same one, and the port id of who holds it, or 0."""


@frozen(kw_only=True)
class _ReadBack:
    objects: dict[Key, Value]
    marks: _Marks


def probe() -> Support:
    """Try each feature in each family; IPv6 is not asked for where the kernel runs without it.

    What is missing in one family alone is not fatal: the other one is served.
    """
    found: dict[Family, list[Finding]] = {}
    try:
        with NftSocket() as socket:
            for family in _families():
                found[family] = [_finding(trial, socket.commit(trial.operations)) for trial in trials([family])]
    except KernelError as error:
        return Support(findings=(Finding(name="nf_tables", ok=False, message=str(error), remedy=_remedy(error, _NO_NF_TABLES)),))
    is_any_served = any(Support(findings=tuple(findings)).usable for findings in found.values())
    return Support(
        findings=tuple(
            evolve(finding, fatal=finding.fatal and not is_any_served) for findings in found.values() for finding in findings
        )
    )


def _families() -> list[Family]:
    """Return the families that this kernel has; without IPv6 it may refuse its tables, and IPv4 is to be served all the same."""
    return [family for family in Family if family is Family.IPV4 or _IPV6_INTERFACES.exists()]


def _finding(trial: Trial, result: CommitResult) -> Finding:
    if result.ok:
        return Finding(name=trial.name, ok=True, message="works")
    refused = result.errors[0]
    error = netlink_error("refused by the kernel", refused.error, refused.text)
    return Finding(name=trial.name, ok=False, message=str(error), remedy=_remedy(error, trial.remedy), fatal=trial.fatal)


def _remedy(error: KernelError, otherwise: str) -> str:
    if isinstance(error, PermissionDeniedError):
        return "run as root, or with CAP_NET_ADMIN in the network namespace's user namespace"
    return otherwise


class NftablesDataplane(Dataplane[Key, Value]):
    """nf_tables of the network namespace it was opened in."""

    def __init__(self) -> None:
        try:
            self._socket = NftSocket()
            self._watch = NftWatch([self._socket.port])
        except KernelError as error:
            raise UnsupportedError(f"nf_tables cannot be used: {_remedy(error, str(error))}") from error
        self._available: Final = frozenset(_families())
        self._refused: Mapping[Family, str] = {}
        self._try_again_at = 0.0
        self.table_flags: Final = self._flags_to_be_had()
        """What our tables are to have: nothing, where the kernel does not let anybody hold a table for longer than they live."""
        self._marks: _Marks = frozenset()
        self._is_untouchable = False
        self._suspects: tuple[ForeignChange, ...] = ()
        self._read_cost = 0.0
        self._read_at = 0.0

    @property
    def families(self) -> frozenset[Family]:
        """The families that can be served."""
        return self._available - self._refused.keys()

    @property
    def unserved(self) -> Mapping[Family, str]:
        """The families that the kernel has, and refuses."""
        return self._refused

    def _flags_to_be_had(self) -> int:
        try:
            return 0 if self._socket.check(holding(Family.IPV4).operations) else int(HELD)
        except KernelError as error:
            raise UnsupportedError(f"nf_tables cannot be used: {error}") from error

    # -- reading

    def read(self) -> Program[Key, Value]:
        """Read both tables, attribute elements by the comments in ``services``, and take that as the state to watch from."""
        started = time.thread_time()
        try:
            if self._refused:
                self._refused = self._refusals()
            self._watch.drain()
            found, _ = self._socket.consistently(self._read)
        except (KernelError, WireError) as error:
            raise ApplyError(f"nf_tables cannot be read: {error}") from error
        self._marks = found.marks
        self._is_untouchable = self._are_held(found.marks)
        self._suspects = ()
        self._read_at = time.monotonic()
        self._read_cost = time.thread_time() - started
        return attribute(found.objects)

    def _read(self) -> _ReadBack:
        objects: dict[Key, Value] = {}
        tables = self._kept_tables()
        for table in tables:
            family = Family(table.family)
            if family in self._refused:
                continue
            stranger = 0 if table.owner in (None, self._socket.port) else table.owner
            objects[FAMILY_NAMES[family], "table"] = table_value(table.flags, stranger or 0)
            self._read_chains(family, objects)
            self._read_sets(family, objects)
            self._read_what_is_never_ours(family, objects)
        return _ReadBack(objects=objects, marks=_marks(tables))

    def _read_chains(self, family: Family, objects: dict[Key, Value]) -> None:
        place = f"{FAMILY_NAMES[family]} chain"
        rules: dict[str, list[Rule]] = {}
        for dumped in self._socket.rules(NetlinkFamily(family), TABLE):
            rule = Rule(expressions=dumped.decoded(), comment=dumped.comment or "")
            rules.setdefault(dumped.chain, []).append(rule)
        for chain in self._socket.chains(NetlinkFamily(family), TABLE):
            base, hook = chain.base, None
            if base is not None:
                hook = Hook(number=base.hook, priority=base.priority, type=base.type, policy=base.policy)
            objects[place, chain.name] = Chain(rules=tuple(rules.get(chain.name, ())), hook=hook)

    def _read_sets(self, family: Family, objects: dict[Key, Value]) -> None:
        wanted = sets.shapes(family)
        place = f"{FAMILY_NAMES[family]} set"
        for found in self._socket.sets(NetlinkFamily(family), TABLE):
            if found.flags & SetFlag.ANONYMOUS:
                continue  # part of a rule, and goes with it
            objects[place, found.name] = found
            # What is in a set of another shape goes with it: plan() makes the table anew.
            if found == wanted.get((place, found.name)) and found.name != sets.AFFINITY:
                try:
                    self._read_elements(f"{FAMILY_NAMES[family]} {found.name}", found, objects)
                except MalformedMessageError:
                    # Somebody's catch-all element, say: no key of ours has such a form.
                    objects[place, found.name] = evolve(found, userdata=_UNREADABLE)

    def _read_elements(self, place: str, shape: nft_objects.Set, objects: dict[Key, Value]) -> None:
        codec = ElementCodec.of(shape)
        if shape.name in (sets.SERVICES, sets.NODE_PORT_SERVICES):
            for key, data, comment in self._socket.elements_with_comments(codec):
                objects[place, key] = Owned(data, comment or "")
        elif shape.name in (sets.DISPATCH, sets.NODE_PORT_DISPATCH, sets.SOURCE_RANGES):
            for element in self._socket.full_elements(codec):
                if not element.key:
                    raise MalformedMessageError("a catch-all element")
                if shape.name == sets.SOURCE_RANGES:
                    objects[place, element.key + (element.key_end or element.key)] = b""
                else:
                    objects[place, element.key] = element.data if element.data is not None else b""
        elif place in numbered.PLACES:
            found = self._socket.collected(codec, numbered.gathered)
            objects.update(((place, identity), packed) for identity, packed in found.items())
        else:
            objects.update(((place, key), data) for key, data in self._socket.elements(codec))

    def _read_what_is_never_ours(self, family: Family, objects: dict[Key, Value]) -> None:
        name = FAMILY_NAMES[family]
        for each in self._socket.named_objects(NetlinkFamily(family), TABLE):
            objects[f"{name} named object", f"{each.name} {each.type}"] = each
        for found in self._socket.flowtables(NetlinkFamily(family), TABLE):
            objects[f"{name} flowtable", found.name] = found

    # -- writing

    def apply(self, plan: Sequence[Operation]) -> ApplyResult:
        """Commit the plan, phase by phase (in more transactions only where the kernel grants no buffer for it)."""
        bulk = len(plan) > _BULK
        if bulk:
            self._watch.leave()
        generations: Iterable[int | None] = ()
        try:
            result = self._commit(plan)
            generations = result.generations
        except (KernelError, WireError) as error:
            return ApplyResult(failures=(Failure(message=str(error), retryable=True),))
        finally:
            if bulk:
                self._watch.join(generations)
        if any(operation.kind in _TABLE_KINDS for operation in plan):
            self._marks = _marks(self._kept_tables())
            self._is_untouchable &= self._are_held(self._marks)
        applied = _apply_result(result)
        if applied.failures and (self._are_others_suspected() or self._is_a_family_to_blame(result)):
            # No Service port's fault: what the plan was made for may not be there any more. It is read again.
            return evolve(applied, failures=tuple(evolve(each, retryable=True) for each in applied.failures), unchanged=False)
        return applied

    def _is_a_family_to_blame(self, result: CommitResult) -> bool:
        """Look, if it may be so, whether the kernel refuses a family as a whole; from the next ``read`` on it is left out."""
        if all(error.operation is not None and error.operation.kind in _ELEMENT_KINDS for error in result.errors) and not any(
            error.error == errno.EPERM for error in result.errors
        ):
            return False
        try:
            before, self._refused = self._refused, self._refusals()
        except KernelError:
            return False
        return self._refused != before

    def _refusals(self) -> dict[Family, str]:
        """Try each family; tell which are refused, and why. If all are, this is no matter of families, and nothing is told."""
        self._try_again_at = time.monotonic() + _RETRY_PERIOD
        tables = {Family(table.family): table for table in self._kept_tables()}
        found = {family: self._refusal(family, tables.get(family)) for family in self._available}
        return {family: why for family, why in found.items() if why} if not all(found.values()) else {}

    def _refusal(self, family: Family, table: nft_objects.Table | None) -> str:
        name = f"table {FAMILY_NAMES[family]} {TABLE}"
        if table is not None and table.owner not in (None, self._socket.port):
            return f"{name} is held by another process"
        flags = self.table_flags if table is None else table.flags
        mine = nft_objects.Table(family=NetlinkFamily(family), name=TABLE, flags=flags)
        for what, operations in (
            (name, (add(mine),)),
            *((each.name, each.operations) for each in trials([family]) if each.fatal),
        ):
            errors = self._socket.check(operations)
            if errors:
                return f"{what}: {os.strerror(errors[0].error)}"
        return ""

    def _commit(self, plan: Sequence[Operation]) -> CommitResult:
        whole = CommitResult(done=0, transactions=0)
        for phase in phases(plan):
            result = self._socket.commit(phase)
            whole = CommitResult(
                done=whole.done + result.done,
                transactions=whole.transactions + result.transactions,
                errors=result.errors,
                generations=whole.generations + result.generations,
            )
            if not result.ok:
                break
        return whole

    def _kept_tables(self) -> list[nft_objects.Table]:
        return [table for table in self._socket.tables() if _is_ours(table) and Family(table.family) in self._available]

    def _are_held(self, marks: _Marks) -> bool:
        """Tell whether nobody else can change what is in these tables."""
        return all(holder == self._socket.port for _, holder in marks)

    # -- watching

    def fileno(self) -> int:
        """Return the descriptor that tells of commits to nf_tables."""
        return self._watch.fileno()

    def drift(self) -> Drift | None:
        """Say whether others changed our tables.

        Every commit of others is a suspicion. A table that is gone or new is certain at once; else everything must be read back,
        which is asked for at once too, but only as often as it takes a twentieth of the time: hosts exist on which something
        changes its own tables several times a second. Tables that only we could change ever since they were read need no look.
        """
        try:
            if self._refused and time.monotonic() >= self._try_again_at and self._refusals() != self._refused:
                return Drift()
            if not self._are_others_suspected():
                return None
            certain = _marks(self._kept_tables()) != self._marks
        except (KernelError, WireError) as error:
            raise ApplyError(f"nf_tables cannot be watched: {error}") from error
        if not certain and self._is_untouchable:
            self._suspects = ()
            return None
        due = self._read_at + self._read_cost / _READ_SHARE
        if not certain and time.monotonic() < due:
            return None
        named = [f"{change.process} (pid {change.pid})" for change in self._suspects if change.process]
        self._suspects = ()
        return Drift(culprit=named[-1] if named else "")

    def _are_others_suspected(self) -> bool:
        self._suspects += self._watch.drain()
        return bool(self._suspects)

    # -- for people

    def lookup(self, port: ServicePort) -> Mapping[Key, Value]:
        """Return what the kernel holds for one Service port; reads everything."""
        return with_shared(self.read(), port.key)

    def leftovers(self) -> Leftovers:
        """Tell which of the two tables are there."""
        return Leftovers(lines=tuple(self._describe(table) for table in self._own_tables()))

    def cleanup(self) -> Leftovers:
        """Remove both tables in one transaction."""
        tables = self._own_tables()
        if any(table.owner not in (None, self._socket.port) for table in tables):
            raise ApplyError("the tables are held by a process that still runs: stop the kproxy of this network namespace first")
        lines = tuple(self._describe(table) for table in tables)
        result = self._socket.commit([delete(table) for table in tables])
        if not result.ok:
            raise ApplyError(f"the tables could not be removed: {_describe_error(result.errors[0])}")
        self._marks = frozenset()
        return Leftovers(lines=lines)

    def _own_tables(self) -> list[nft_objects.Table]:
        try:
            return [table for table in self._socket.tables() if _is_ours(table)]
        except KernelError as error:
            raise ApplyError(f"nf_tables cannot be read: {error}") from error

    def _describe(self, table: nft_objects.Table) -> str:
        chains = len(self._socket.chains(table.family, TABLE))
        rules = len(self._socket.rules(table.family, TABLE))
        return f"table {FAMILY_NAMES[Family(table.family)]} {TABLE} ({chains} chains, {rules} rules)"

    def close(self) -> None:
        """Close the sockets."""
        self._watch.close()
        self._socket.close()


def _is_ours(table: nft_objects.Table) -> bool:
    return table.name == TABLE and int(table.family) in _FAMILY_NUMBERS


def _marks(tables: Iterable[nft_objects.Table]) -> _Marks:
    return frozenset((table.handle or 0, table.owner or 0) for table in tables)


def _apply_result(result: CommitResult) -> ApplyResult:
    if result.ok:
        return ApplyResult(done=result.done)
    failures = tuple(
        Failure(message=_describe_error(error), keys=_keys(error), retryable=error.error in _PASSING) for error in result.errors
    )
    return ApplyResult(done=result.done, failures=failures, unchanged=result.done == 0)


def _describe_error(error: OperationError) -> str:
    what = error.operation.kind.name.lower() if error.operation is not None else "transaction"
    keys = "".join(f" {place} {name!r}" for place, name in _keys(error))
    words = f": {error.text}" if error.text else ""
    return f"nf_tables refused {what}{keys}: {os.strerror(error.error)}{words}"


def _keys(error: OperationError) -> tuple[Key, ...]:
    """Return the element that the kernel pointed at, if it did."""
    operation = error.operation
    if operation is None or error.element is None:
        return ()
    try:
        payload = nfnetlink.family_header(operation.family) + operation.attributes
        element = decode_elements(payload)[error.element]
        name = netlink.decode_string(netlink.attributes(operation.attributes)[_SET_NAME])
    except (WireError, IndexError, KeyError):
        return ()
    key = element.key
    if name == sets.SOURCE_RANGES:
        key += element.key_end or element.key
    elif name in sets.NUMBERED:
        key = key[:4]
    return ((f"{FAMILY_NAMES[Family(operation.family)]} {name}", key),)
