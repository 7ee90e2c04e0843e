"""What may come of asking a server: an answer, or one of four ways not to get one, told apart."""

import json
from collections import Counter
from collections.abc import Iterable

from attrs import frozen

from kproxy_core.model.names import Protocol


@frozen(kw_only=True)
class Answer:
    """A server answered. ``client`` and ``client_port`` are what it saw, ``source`` and ``source_port`` what the client had.

    ``local`` is the address at which the server was reached, ``seconds`` what the answer took (since the connection was begun, or
    the line sent), ``said`` the line that it answers.
    """

    server: str
    port: int
    protocol: Protocol
    client: str
    client_port: int
    local: str
    source: str
    source_port: int
    seconds: float
    said: str = ""

    @property
    def masqueraded(self) -> bool:
        """Whether the server saw another address than the client's."""
        return self.client != self.source


@frozen(kw_only=True)
class Refused:
    """Told at once that nobody listens: by ``rst`` (TCP), ``icmp`` (port unreachable) or ``abort`` (SCTP).

    ``sender`` is who sent the ICMP error, as the client sees it. ``at_once`` is false when the client's kernel did not end a TCP
    connect upon the ICMP error, because the socket was locked just then: a blocking connect goes on until it sends its SYN again.
    """

    by: str
    sender: str = ""
    at_once: bool = True


@frozen(kw_only=True)
class Dropped:
    """Nothing came back within the time allowed.

    ``connected``: a TCP connection was established, only the answer is missing. ``locally``: the client's own kernel said that
    rules of its host dropped the packet (EPERM).
    """

    connected: bool = False
    locally: bool = False


@frozen(kw_only=True)
class Unreachable:
    """A router, or the client's own routing table, knows no way: ``reason`` is the name of an errno or of the ICMP error."""

    reason: str
    sender: str = ""


@frozen(kw_only=True)
class Closed:
    """A TCP connection was established, then ended without an answer: by ``fin`` or ``rst``."""

    by: str


Outcome = Answer | Refused | Dropped | Unreachable | Closed


def tally(outcomes: Iterable[Outcome]) -> Counter[str]:
    """How often each server answered; what was no answer counts under the name of its class (``Refused``, ``Dropped``, ...)."""
    return Counter(one.server if isinstance(one, Answer) else type(one).__name__ for one in outcomes)


def parse_answer(line: bytes, source: tuple[str, int], seconds: float) -> Answer:
    """A server's JSON line as a value. Raises ``ValueError`` for anything else."""
    try:
        facts = json.loads(line)
        return Answer(
            server=facts["server"],
            port=facts["port"],
            protocol=Protocol[facts["protocol"]],
            client=facts["client"],
            client_port=facts["client_port"],
            local=facts["local"],
            source=source[0],
            source_port=source[1],
            seconds=seconds,
            said=facts["said"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not the answer of a server of the lab: {line[:80]!r}") from error
