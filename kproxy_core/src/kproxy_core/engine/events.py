"""What the engine is told and what it asks for: closed unions of frozen values, so that a sync can be tested without a kernel."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.changes import Change
from kproxy_core.model.flows import FrontendKey
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.state import NodeState
from kproxy_core.plugin.backend import ApplyResult, Drift, SyncReport
from kproxy_core.program.program import Program

AnyProgram = Program[Any, Any]


@frozen
class ChangesArrived:
    """A source has something new."""

    changes: tuple[Change, ...]


@frozen
class AddressesSeen:
    """The addresses of the node's interfaces, all of them, at the start and whenever they change."""

    addresses: tuple[Address, ...]


@frozen
class TimePassed:
    """The engine's deadline has come, or may have."""


@frozen
class KernelRead:
    """What :class:`ReadKernel` asked for; ``unserved`` are the IP families that the kernel refuses, and why."""

    program: AnyProgram
    unserved: Mapping[Family, str] = field(factory=dict)


@frozen
class KernelUnreadable:
    """The kernel could not be read now."""

    message: str


@frozen
class PlanApplied:
    """What became of :class:`ApplyPlan`."""

    result: ApplyResult


@frozen
class DriftNoticed:
    """Somebody else changed, or may have changed, what is ours in the kernel."""

    drift: Drift


@frozen
class CheckRequested:
    """The operator wants the kernel compared with what is wanted, now."""


@frozen
class ConntrackCleaned:
    """The cleaning that :class:`CleanConntrack` asked for has ended; ``error`` is empty when it did all its work."""

    error: str = ""


@frozen
class StopRequested:
    """The daemon is to end; the kernel keeps its rules."""


Event = (
    ChangesArrived
    | AddressesSeen
    | TimePassed
    | KernelRead
    | KernelUnreadable
    | PlanApplied
    | DriftNoticed
    | CheckRequested
    | ConntrackCleaned
    | StopRequested
)


@frozen
class ReadKernel:
    """Read what is ours in the kernel; answer with :class:`KernelRead` or :class:`KernelUnreadable`."""


@frozen
class ApplyPlan:
    """Carry out a backend's plan; answer with :class:`PlanApplied`."""

    plan: Sequence[Any]


@frozen(kw_only=True)
class CleanConntrack:
    """Delete stale UDP flows beside the sync; answer with :class:`ConntrackCleaned`.

    ``state`` holds only Service ports that the kernel has as wanted; ``gone_frontends`` are those of vanished Service ports,
    which no reply is valid for any more.
    """

    state: NodeState
    gone_frontends: frozenset[FrontendKey]


@frozen
class AnnounceState:
    """A state was resolved, and is about to be programmed."""

    state: NodeState


@frozen
class AnnounceSync:
    """A sync has ended, well or not."""

    report: SyncReport


@frozen(kw_only=True)
class ReportRefused:
    """The kernel (or the backend) refused a Service port for the first time, or for a new reason. Its earlier rules stay."""

    port: ServicePortKey
    reason: str


@frozen(kw_only=True)
class ReportAccepted:
    """A Service port that was refused before is in the kernel now, or is no longer wanted."""

    port: ServicePortKey


@frozen
class Exit:
    """Nothing more will be asked for."""


Effect = ReadKernel | ApplyPlan | CleanConntrack | AnnounceState | AnnounceSync | ReportRefused | ReportAccepted | Exit
