"""The typed contract of a proxy mode: a pure Backend, and the Dataplane it opens, which alone meets the kernel.

A mode inherits from both, and so gets what many modes leave as it is; its own docstring says of each such member what it does.

Contract version 0: provisional until five modes have lived in it.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from attrs import field, frozen

from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.packet import Packet, Verdict
from kproxy_core.model.state import FrontendRule, NodeContext, Origin, ServicePort
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Fragment, K, Program, V, objects


class Capability(enum.Enum):
    """What a mode can do beyond the common ground; the value is the sentence shown to people."""

    SCTP = "balances SCTP"
    SOURCE_RANGES = "honours loadBalancerSourceRanges"
    AFFINITY_TIMEOUT = "honours sessionAffinity's timeout to the second"
    WEIGHTS = "honours endpoint weights"
    SCHEDULERS = "lets a Service choose its scheduler"
    CLIENT_ADDRESS_KEPT = "keeps the client's address where the traffic policy asks for it"
    LOCALHOST_NODE_PORTS = "answers on NodePorts of loopback addresses"
    UNUSED_PORTS_REJECTED = "rejects ports that a service address does not serve"
    TCP_RESET = "refuses TCP by RST, which no client misses"
    ATOMIC = "applies each step of a change as a whole or not at all"
    SURVIVES_CRASH = "goes on forwarding when the daemon is killed"
    DRIFT_NOTIFIED = "is told by the kernel when somebody else changes its rules"
    DRIFT_CERTAIN = "cannot miss that somebody else changes its rules, so that it need not compare them every now and then"
    COUNTERS = "counts connections by Service and endpoint"
    TRACE = "tells what its rules do with a packet"


@frozen(kw_only=True)
class Finding:
    """One thing that :meth:`Backend.probe` looked at. ``fatal`` ones keep the mode from running; ``remedy`` says what to do."""

    name: str
    ok: bool
    message: str
    remedy: str = ""
    fatal: bool = True


@frozen(kw_only=True)
class Support:
    """What this node offers to a mode."""

    findings: tuple[Finding, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether nothing fatal is missing."""
        return all(finding.ok or not finding.fatal for finding in self.findings)


@frozen(kw_only=True)
class Failure:
    """Something that the kernel refused.

    ``keys`` are the objects concerned, empty when the kernel did not tell (the engine then finds the culprit by halves).
    ``retryable`` failures are passing ones: out of buffers, interrupted, no memory.
    """

    message: str
    keys: tuple[Any, ...] = ()
    retryable: bool = False


@frozen(kw_only=True)
class ApplyResult:
    """What became of a plan.

    ``done`` counts kernel operations carried out. ``unchanged`` says that, in spite of failures, the kernel is exactly as before
    (an atomic transaction was rolled back); otherwise what it holds after a failure is unknown and is read again. ``wake_at`` is
    the monotonic time at which deferred work, such as draining, wants another sync; None for never.
    """

    done: int = 0
    failures: tuple[Failure, ...] = ()
    unchanged: bool = False
    wake_at: float | None = None


@frozen(kw_only=True)
class Drift:
    """Somebody else changed, or may have changed, what is ours. ``culprit`` is ``name (pid N)`` where the kernel tells it."""

    culprit: str = ""


@frozen(kw_only=True)
class Leftovers:
    """What of a mode is in the kernel: one line each, for people."""

    lines: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)


@frozen(kw_only=True)
class Companion:
    """A mode that another one wants beneath it, for what it does not claim (see :meth:`Backend.claims`).

    ``purpose`` says what for, as the end of "without it nothing ...": ``serves clients outside the node``. Without a
    ``required`` companion the mode cannot run; without another one what it leaves is not served, and the log says so.
    """

    mode: str
    purpose: str
    required: bool = True


@frozen(kw_only=True)
class Traffic:
    """What an endpoint has got through one Service port: connections (or UDP flows), and bytes each way, None where not known.

    Counted since the kernel's objects were made: a reader takes a smaller number for a new beginning, as Prometheus does.
    """

    connections: int
    bytes_to_endpoint: int | None = None
    bytes_to_client: int | None = None


Counters = Mapping[ServicePortKey, Mapping[tuple[Address, int], Traffic]]
"""Traffic by Service port and by the endpoint's address and port."""


@frozen(kw_only=True)
class Trace:
    """What the kernel's objects do with the first packet of a connection, told step by step, one line each, for people.

    ``verdict`` is :class:`~kproxy_core.model.packet.Untouched` where the packet passes the mode by, None where it cannot be told.
    """

    lines: tuple[str, ...]
    verdict: Verdict | None = None


class Dataplane(Protocol[K, V]):
    """The kernel's side of a mode, in the network namespace it was opened in. Called from one thread only."""

    def read(self) -> Program[K, V]:
        """Read what is ours in the kernel, attributed to Service ports, with ids and slots as a fresh process finds them.

        Raises :class:`~kproxy_core.plugin.errors.ApplyError` when the kernel cannot be read now.
        """
        ...

    @property
    def unserved(self) -> Mapping[Family, str]:
        """The IP families for which the kernel refuses everything, as of the last ``read``, and why; never all there are.

        The mode renders nothing for these, so that the others go on being served; whenever this changes, all is rendered anew. A
        family that the kernel does not have at all is none of them.
        """
        return {}

    def apply(self, plan: Sequence[Any]) -> ApplyResult:
        """Carry out a plan. Never raises for what the kernel refuses: that is in the result."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the kernel tells of a change, or -1 when it never does: the default."""
        return -1

    def drift(self) -> Drift | None:
        """Say whether somebody else changed what is ours since the last ``read`` or ``apply``; cheap, drains ``fileno``.

        Called when the descriptor is readable, and at least once a second. Never says so unless a mode does better; what others
        do is then seen when the kernel is compared, every sync period.
        """
        return None

    def lookup(self, port: ServicePort) -> Mapping[K, V]:
        """Return what the kernel holds now for one Service port (its own objects, and the shared ones it needs).

        What ``read`` attributes to it, unless a mode does better.
        """
        fragment = self.read().fragments.get(port.key)
        return {} if fragment is None else {**fragment.shared, **fragment.own}

    def counters(self) -> Counters:
        """Return what the kernel has counted. Asked only of a mode with the capability ``COUNTERS``; for metrics, at each scrape.

        Raises ``UnsupportedError`` unless a mode does better, :class:`~kproxy_core.plugin.errors.ApplyError` when the kernel
        cannot be read now.
        """
        raise UnsupportedError("this mode does not count")

    def trace(self, packet: Packet) -> Trace:
        """Follow a packet through what the kernel holds, without sending one. Asked only of a mode with the capability ``TRACE``.

        Raises ``UnsupportedError`` unless a mode does better, :class:`~kproxy_core.plugin.errors.ApplyError` when the kernel
        cannot be read now.
        """
        raise UnsupportedError(f"this mode cannot follow a packet (to {packet.destination})")

    def leftovers(self) -> Leftovers:
        """Tell what of this mode is in the kernel; changes nothing."""
        ...

    def cleanup(self) -> Leftovers:
        """Remove everything of this mode and touch nothing else; idempotent. Returns what was removed."""
        ...

    def close(self) -> None:
        """Close descriptors, if there are any; the kernel keeps the rules."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Backend(Protocol[K, V]):
    """A proxy mode. Everything but ``probe`` and ``open`` is pure."""

    @property
    def name(self) -> str:
        """The mode's name, as in its entry point."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the common ground."""
        ...

    @property
    def node_ports_everywhere(self) -> bool:
        """Its default for ``nodePortAddresses``: every local address, or the primary ones (kube-proxy differs by mode).

        The primary ones, unless a mode says otherwise.
        """
        return False

    @property
    def companions(self) -> tuple[Companion, ...]:
        """The modes it wants beneath it, for what it does not claim; never itself, not even by way of others."""
        return ()

    def claims(self, port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
        """Say whether it serves all traffic of ``origin`` to the frontend of ``rule``; what it leaves, its companions serve.

        Pure, and asked for every origin of every rule. The mode gets each rule of which it claims anything, its companion each
        rule of which anything is left, both of them the whole rule. So two things are the mode's part: to let traffic pass that
        it does not claim, and to meet what it claims before its companion does. Nor may a mode with companions refuse what it
        does not know, such as another port of a cluster address, which a companion may serve: it leaves at least one origin of
        every ClusterIP, so that the companion knows which addresses are in use.
        """
        del port, rule, origin
        return True

    def probe(self) -> Support:
        """Try what the mode needs in the current network namespace and leave nothing behind. Tries; never compares versions."""
        ...

    def compile(self, port: ServicePort, node: NodeContext, previous: Fragment[K, V] | None, fresh_id: int) -> Fragment[K, V]:
        """Render one Service port.

        ``previous`` is what this Service port has now, possibly read from the kernel: ids and slots are taken from it. If
        there is none, ``fresh_id`` is an id nobody uses. The result modulo ids and slots depends on ``port`` and ``node`` alone.
        """
        ...

    def remarks(self, port: ServicePort) -> Iterable[Diagnostic]:
        """Tell what a Service port asks for and the mode does not do, beyond what its capabilities say; by default nothing.

        Pure, and asked whenever a Service port changes, so it should be quick where there is nothing to tell.
        """
        del port
        return ()

    def scaffold(self, node: NodeContext) -> Mapping[K, V]:
        """Render what is there once per node."""
        ...

    def canonical(self, program: Program[K, V]) -> object:
        """Return the program's meaning, equal for equal meaning: modulo ids, slots and generations.

        The objects as they are, unless a mode has such.
        """
        return objects(program)

    def plan(self, before: Program[K, V], delta: Delta[K, V]) -> Sequence[Any]:
        """Order the kernel operations of a delta: make before break, in few atomic steps where the mechanism has them."""
        ...

    def render(self, program: Program[K, V]) -> str:
        """Return the program as text in the mechanism's usual notation, for people; needs no root."""
        ...

    def valid_replies(self, port: ServicePort) -> Iterable[tuple[Address, int]]:
        """Return from where replies to established UDP flows of this Service port are still right.

        Every serving endpoint, terminating ones and all scopes included, unless a mode that relays says otherwise.
        """
        return ((Address(address), kind.port) for address, kind in port.serving.pairs())

    def open(self) -> Dataplane[K, V]:
        """Open the kernel in the current network namespace. Raises ``UnsupportedError``."""
        ...


AnyBackend = Backend[Any, Any]
AnyDataplane = Dataplane[Any, Any]


@frozen(kw_only=True)
class SyncReport:
    """What one sync did.

    Durations are in seconds by phase (resolve, compile, diff, apply). ``failed`` names each Service port that the kernel refused
    and why. ``trigger_times`` are those of the EndpointSlices that this sync made effective, for the programming latency.
    ``full`` says that the kernel was read and compared as a whole; ``drifted`` counts the objects that somebody else had changed,
    ``culprit`` names who did, where the kernel tells it. ``unserved`` are the IP families that the kernel refuses, and why.
    """

    started: float
    finished: float
    full: bool
    operations: int = 0
    changed_ports: int = 0
    durations: Mapping[str, float] = field(factory=dict)
    failed: Mapping[ServicePortKey, str] = field(factory=dict)
    error: str = ""
    trigger_times: tuple[float, ...] = ()
    drifted: int = 0
    culprit: str = ""
    unserved: Mapping[Family, str] = field(factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything wanted is in the kernel."""
        return not self.failed and not self.error and not self.unserved
