"""Scenarios as values: a cluster in a few words, what happens to it, and what packets must meet meanwhile.

``reader`` makes them from YAML files, ``writer`` writes them again. docs/reference/scenarios.md says what each key means;
the names here are those of the keys.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol

FRONTENDS = ("cluster", "nodePort", "external", "balancer")
"""The kinds of address that a Service can have, as ``at`` of a Service and ``to`` of packets name them."""

CLIENTS = ("kept", "masqueraded", "either")
"""What an endpoint may see as the client's address: its own, one of the node's, no matter which."""

SERVED = "t=80 u=80/udp s=80/sctp"
BEHIND = "t=8080 u=8080/udp s=8080/sctp"
SERVICE_PORT = 80
NODE_PORT = 32000
"""The NodePort of the Service with number N is this and N."""


# -- objects


@frozen(kw_only=True)
class ServiceNote:
    """A dual-stack Service whose addresses have its ``number``; ``at`` says which kinds of address it has.

    ``ports`` and ``behind`` (the ports of its endpoints) are lists like ``[name=]port[/protocol][@nodePort]``. ``endpoints`` are
    hosts (see :class:`EndpointsNote`), None when its slices are written by themselves. ``affinity`` is in seconds. ``spec``,
    ``labels`` and ``annotations`` are added to those that follow from the rest.
    """

    service: str
    number: int
    at: tuple[str, ...] = ("cluster",)
    ports: str = SERVED
    endpoints: str | None = None
    behind: str = BEHIND
    external_policy: str = ""
    internal_policy: str = ""
    affinity: int = 0
    ranges: tuple[str, ...] | None = None
    ip_mode: str = ""
    created: str = ""
    spec: Mapping[str, Any] = field(factory=dict)
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class EndpointsNote:
    """The slices of a Service, one a family: hosts, each with what is to be said of it, as in ``a1 b1/terminating a2/zone=east``.

    Conditions: ``unready``, ``terminating`` (still serving), ``gone`` (serves no more), ``nil`` (nothing is given).
    ``zone=`` and ``node=`` are hints. ``suffix`` tells several slices apart.
    """

    endpoints: str
    hosts: str
    ports: str = BEHIND
    suffix: str = ""
    labels: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class NodeNote:
    """The Node object of the node under test, other than it is at first: in a zone."""

    zone: str = ""


@frozen(kw_only=True)
class RangesNote:
    """The ServiceCIDR, other than it is at first."""

    ranges: tuple[str, ...]


@frozen(kw_only=True)
class ObjectNote:
    """A Kubernetes object as the API has it; text in it may have placeholders."""

    object: Mapping[str, Any]


Note = ServiceNote | EndpointsNote | NodeNote | RangesNote | ObjectNote


# -- packets


@frozen
class Answers:
    """These servers may answer, and see the client's address so."""

    servers: tuple[str, ...]
    client: str = "either"


@frozen
class Expect:
    """What must come of a packet: ``fate`` is answered, refused, dropped or unclaimed (as if there were no proxy)."""

    fate: str
    answers: tuple[Answers, ...] = ()

    @property
    def servers(self) -> frozenset[str]:
        """Everybody who may answer."""
        return frozenset(server for each in self.answers for server in each.servers)

    def client(self, server: str) -> str:
        """What a server may see as the client's address."""
        return next((each.client for each in self.answers if server in each.servers), "either")


SAME = Expect("same")
"""Of conversations that go on: answered by the same server as at the last time."""
REFUSED, DROPPED, UNCLAIMED = Expect("refused"), Expect("dropped"), Expect("unclaimed")


def answered(servers: str, client: str = "either") -> Expect:
    """Answered by one of these."""
    return Expect("answered", (Answers(tuple(servers.split()), client),))


@frozen
class Target:
    """Where packets go: ``kind`` is a kind of frontend, ``loopback`` (a NodePort there), ``host`` or ``address``.

    ``what`` is the Service's number, the host's name, or an address, which may be a placeholder.
    """

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


@frozen(kw_only=True)
class Ask:
    """Packets that must meet the same: from each host to each target, in each family and protocol.

    ``port`` is empty for the target's own. ``source`` is which of the outside client's addresses is used (from 0), ``each`` of
    them, addresses, or a network of them. ``every`` wants each of the servers expected to answer at least once, ``shares`` as
    often as they say (of one sum, no matter which). A client is answered by the same server in all packets with the same name
    ``alike``, as long as that one is among those expected; with ``unlike`` at least one is answered by another than under that
    name.
    ``line`` is where it is written.
    """

    origins: tuple[str, ...]
    to: tuple[Target, ...]
    expect: Expect
    port: str = ""
    protocols: tuple[Protocol, ...] = tuple(Protocol)
    families: tuple[Family, ...] = tuple(Family)
    source: str = ""
    times: int = 1
    every: bool = False
    shares: tuple[tuple[str, int], ...] = ()
    alike: str = ""
    unlike: str = ""
    line: int = field(default=0, eq=False)


# -- steps


@frozen(kw_only=True)
class Apply:
    """Create or replace objects."""

    notes: tuple[Note, ...]


@frozen(kw_only=True)
class Delete:
    """Delete objects, each named as ``service web``, ``endpoints web``, ``endpoints web -2``, ``node`` or ``ranges``.

    Others by kind and name: ``object EndpointSlice default/web-abcde``.
    """

    names: tuple[str, ...]


@frozen(kw_only=True)
class Packets:
    """Put all questions at once."""

    asks: tuple[Ask, ...]


@frozen(kw_only=True)
class Open:
    """Begin conversations (TCP connections, UDP flows) that go on through later steps."""

    name: str
    ask: Ask


@frozen(kw_only=True)
class Again:
    """Go on with conversations; ``expect`` is who must answer now. TCP that has been closed or goes unanswered is no answer."""

    name: str
    expect: Expect


@frozen(kw_only=True)
class Clients:
    """Begin a steady flow of new connections, datagrams and INITs, which goes on while other steps are taken; none may fail."""

    name: str
    ask: Ask


@frozen(kw_only=True)
class Enough:
    """End it."""

    name: str


@frozen(kw_only=True)
class Give:
    """Give a host more addresses, each with its prefix length; they are taken away at the end at the latest."""

    host: str
    addresses: tuple[str, ...]
    interface: str = "eth0"


@frozen(kw_only=True)
class Take:
    """Take addresses away again."""

    host: str
    addresses: tuple[str, ...]
    interface: str = "eth0"


@frozen(kw_only=True)
class Run:
    """Run a command in a host; ``undo`` is run there at the end."""

    host: str
    command: str
    undo: str = ""


@frozen(kw_only=True)
class Wait:
    """Let time pass."""

    seconds: float


@frozen(kw_only=True)
class Flush:
    """Somebody else removes everything of ours from the kernel."""


@frozen(kw_only=True)
class Restart:
    """``daemon``: killed (kill -9) and started again. ``backend``: ended in good order and started again."""

    what: str


@frozen(kw_only=True)
class Api:
    """``cut`` makes the API server unreachable, ``join`` ends that."""

    what: str


@frozen(kw_only=True)
class Configure:
    """Start again with other settings, which replace those of the scenario."""

    settings: Mapping[str, Any]


@frozen(kw_only=True)
class Repeat:
    """Take some steps several times."""

    times: int
    steps: tuple["Step", ...]


Step = (
    Apply
    | Delete
    | Packets
    | Open
    | Again
    | Clients
    | Enough
    | Give
    | Take
    | Run
    | Wait
    | Flush
    | Restart
    | Api
    | Configure
    | Repeat
)


def flat(steps: Iterable[Step]) -> Iterator[Step]:
    """All steps, those that are repeated once."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from flat(step.steps)
        else:
            yield step


def asks_of(step: Step) -> tuple[Ask, ...]:
    """The questions of a step."""
    match step:
        case Packets(asks=asks):
            return asks
        case Open(ask=ask) | Clients(ask=ask):
            return (ask,)
    return ()


@frozen(kw_only=True)
class Scenario:
    """A scenario. ``needs`` and ``lacks`` name capabilities that a subject must have, or must not have, for it to make sense.

    ``cases`` are ids of known faults that it would show. ``settings`` are fields of KubeProxyConfiguration; those below
    ``modeSection`` belong to the section of whatever mode it is that is tested.
    """

    name: str
    why: str
    cases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(factory=dict)
    steps: tuple[Step, ...] = ()
