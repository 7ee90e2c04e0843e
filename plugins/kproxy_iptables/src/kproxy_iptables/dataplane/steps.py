"""Carries out the steps of a plan."""

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, assert_never

from attrs import evolve, frozen

from kproxy_core.kernel import sysctl
from kproxy_core.kernel.errors import KernelError, NetlinkError, NotFoundError
from kproxy_core.kernel.failed_texts import FailedTexts
from kproxy_core.kernel.ipset import IpSetSocket
from kproxy_core.kernel.ipset_changes import ChangeResult
from kproxy_core.kernel.ipset_errors import SetBusyError
from kproxy_core.kernel.iptables import IptablesPrograms, Variant
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import Failure
from kproxy_core.wire.errors import WireError
from kproxy_core.wire.ipset import IpSet
from kproxy_iptables.dataplane.node import LOCK_PATIENCE, log
from kproxy_iptables.objects import FAMILIES, SET_PREFIXES, Key
from kproxy_iptables.plan import (
    AddElements,
    ClearVariant,
    DeleteElements,
    DestroySet,
    MakeSet,
    Step,
    WriteSetting,
)
from kproxy_iptables.restore import RestoreTables, write

ROUTE_LOCALNET_CHAIN: Final = "KPROXY-ROUTE-LOCALNET"
"""An empty chain in the filter table that says that route_localnet was 0 before us."""

_LINES_AT_ONCE: Final = 5000
"""For the variant nf_tables, whose program takes time that grows with the square of a transaction."""
_BUSY_PATIENCE: Final = 2.0
"""Seconds for which nf_tables may hold on to a set after the rule is gone; some milliseconds are usual."""
_BUSY_PAUSE: Final = 0.005
_PASSING: Final = frozenset({errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN})


class StepRefusedError(Exception):
    """A step failed: ``failures`` say why."""

    def __init__(self, *failures: Failure) -> None:
        super().__init__("; ".join(failure.message for failure in failures))
        self.failures = failures


class Writing(Protocol):
    """Surrounds the writing of tables, see :meth:`~kproxy_iptables.dataplane.watching.Watch.writing`."""

    def __call__(self, transactions: int, *, hooks: bool) -> AbstractContextManager[None]:
        """Be told what is about to be written."""
        ...


@frozen(kw_only=True)
class Hands:
    """What steps are carried out with.

    ``writing`` surrounds the writing of tables; it is told how many transactions that takes, and whether rules in built-in chains
    are among it. ``unwritable`` gathers kernel settings that may not be written here.
    """

    programs: IptablesPrograms
    ipset: IpSetSocket
    failed_texts: FailedTexts
    writing: Writing
    clear_variant: Callable[[Variant], None]
    unwritable: set[str]


def carry_out(hands: Hands, step: Step) -> int:  # noqa: PLR0911 - one for each kind of step
    """Carry out one step; how many kernel operations that were.

    Raises StepRefusedError.
    """
    match step:
        case MakeSet(wanted, keys, remake):
            return _sets(step, lambda: _make(hands.ipset, wanted, keys, remake=remake))
        case DestroySet(name):
            return _sets(step, lambda: destroy_set(hands.ipset, name))
        case AddElements(target, keys):
            return _sets(step, lambda: _changed(target, hands.ipset.add(target, keys)))
        case DeleteElements(target, keys):
            return _sets(step, lambda: _changed(target, hands.ipset.delete(target, keys)))
        case RestoreTables():
            return _restore(hands, step)
        case WriteSetting(name, value):
            return _write_setting(hands, name, value)
        case ClearVariant(name):
            hands.clear_variant(Variant(name))
            return 1
        case _:
            assert_never(step)


# -- tables


def _restore(hands: Hands, step: RestoreTables) -> int:
    text = write(step.changes, _LINES_AT_ONCE if hands.programs.variant is Variant.NFT else None)
    with hands.writing(text.transactions, hooks=step.touches_hooks):
        done = hands.programs.restore(step.family, text.parts, wait=LOCK_PATIENCE)
    if done.ok:
        return len(step)
    message = " ".join(done.message.split())
    if done.lock_remedy:
        told = f"the lock of the tables cannot be had: {message}; remedy: {done.lock_remedy}"
        raise StepRefusedError(Failure(message=told, retryable=True))
    kept = hands.failed_texts.keep(str(text), done.message)
    key = text.key_at(done.line) if done.line is not None else None
    where = f" ({_at(str(text), done.line)})" if key is not None and done.line is not None else ""
    more = f"; the text is in {kept}" if kept is not None else ""
    raise StepRefusedError(Failure(message=f"{message}{where}{more}", keys=(key,) if key is not None else ()))


def _at(text: str, line: int) -> str:
    return f"it is: {text.splitlines()[line - 1]}"


# -- sets


def _sets(step: MakeSet | DestroySet | AddElements | DeleteElements, work: Callable[[], int]) -> int:
    try:
        return work()
    except (KernelError, WireError) as error:
        passing = isinstance(error, SetBusyError) or (isinstance(error, NetlinkError) and error.error in _PASSING)
        raise StepRefusedError(Failure(message=str(error), keys=_key(step), retryable=passing)) from error


def _key(step: MakeSet | DestroySet | AddElements | DeleteElements) -> tuple[Key, ...]:
    match step:
        case MakeSet(wanted, _, _):
            name = wanted.name
        case DestroySet(name):
            pass
        case _:
            return ()
    return tuple((f"{version} set", name) for version, family in FAMILIES.items() if name.startswith(SET_PREFIXES[family]))


def _make(socket: IpSetSocket, wanted: IpSet, keys: Sequence[bytes], *, remake: bool) -> int:
    if not remake:
        socket.create(wanted, exclusive=False)
        return 1
    new = _begun(socket, wanted)
    _changed(new, socket.add(new, keys))
    try:
        socket.swap(new.name, wanted.name)
    except NetlinkError:
        # Of another type: no rule of ours can be using it, so it can go.
        socket.destroy(wanted.name)
        socket.rename(new.name, wanted.name)
        return 2
    socket.destroy(new.name)
    return 2


def _begun(socket: IpSetSocket, wanted: IpSet) -> IpSet:
    """A new, empty set that is to be swapped for one that is there, which takes no set away from under a rule."""
    new = evolve(wanted, name=f"{wanted.name}-T")
    socket.create(new, exclusive=False)
    socket.flush(new.name)
    return new


def enlarge_set(socket: IpSetSocket, crowded: IpSet) -> None:
    """Give a set four times the buckets. What rules add to it in the meantime, some milliseconds, may get lost.

    Raises NetlinkError.
    """
    new = _begun(socket, evolve(crowded, hash_size=crowded.hash_size * 4))
    socket.add(new, socket.elements(crowded))
    socket.swap(new.name, crowded.name)
    socket.destroy(new.name)


def destroy_set(socket: IpSetSocket, name: str) -> int:
    """Destroy a set, waiting for the kernel to let go of it; how many that were.

    Raises NetlinkError.
    """
    deadline = time.monotonic() + _BUSY_PATIENCE
    while True:
        try:
            socket.destroy(name)
        except NotFoundError:
            return 0
        except SetBusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return 1


def _changed(target: IpSet, result: ChangeResult) -> int:
    if result.refused:
        raise StepRefusedError(*(Failure(message=each.reason, keys=((target.name, each.key),)) for each in result.refused))
    return result.done


# -- settings


def _write_setting(hands: Hands, name: str, value: str | None) -> int:
    """Write a setting. That it may not be written is told once, and is no reason to serve nobody."""
    try:
        if value is None:
            return _take_back(hands, name)
        if sysctl.read(name) == value:
            return 0
        _mark_setting(hands, "add")
        sysctl.write(name, value)
    except KernelError as error:
        hands.unwritable.add(name)
        log.warning("NodePorts do not answer on 127.0.0.1: %s", error)
        return 0
    return 1


def _take_back(hands: Hands, name: str) -> int:
    if not is_written(hands):
        return 0  # it was so before us
    sysctl.write(name, "0")
    _mark_setting(hands, "remove")
    return 1


def is_written(hands: Hands) -> bool:
    """Whether we have changed route_localnet."""
    return f":{ROUTE_LOCALNET_CHAIN} " in hands.programs.save(Family.IPV4, "filter")


def _mark_setting(hands: Hands, verb: str) -> None:
    line = f":{ROUTE_LOCALNET_CHAIN} - [0:0]" if verb == "add" else f"-X {ROUTE_LOCALNET_CHAIN}"
    with hands.writing(1, hooks=False):
        done = hands.programs.restore(Family.IPV4, (f"*filter\n{line}\nCOMMIT\n",), wait=LOCK_PATIENCE)
    if not done.ok:
        raise KernelError(done.message)
