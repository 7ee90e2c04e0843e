"""Conversations of a scenario: TCP connections and UDP flows that go on while things change."""

from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.expectations import SURE, not_answered, not_dropped
from kproxy_core.testing.conformance.judgement import Put
from kproxy_core.testing.conformance.scenario import Expect
from kproxy_core.testing.lab import Answer, Dropped, HeldConnection, NotConnectedError, Outcome, Refused, UdpFlow, hold

_SILENCE = 0.1
"""Seconds after which a conversation that is expected to be silent is."""


class Conversation:
    """One conversation; ``put`` is what it began with. Raises ``ValueError`` for SCTP, whose association the lab cannot keep."""

    def __init__(self, put: Put) -> None:
        if put.question.protocol is Protocol.SCTP:
            raise ValueError("open: a conversation is of TCP or UDP; write protocols: tcp udp")
        self.put = put
        self._socket: HeldConnection | UdpFlow | None = None
        self.outcome: Outcome = Dropped()
        self._server = ""

    def open(self) -> None:
        """Begin it."""
        question = self.put.question
        if question.protocol is Protocol.UDP:
            self._socket = UdpFlow(question.host, question.address, question.port, source_address=question.source_address)
            self.go_on(self.put.ask.expect)
            return
        try:
            held = hold(question.host, question.address, question.port, source_address=question.source_address, timeout=SURE)
        except NotConnectedError as error:
            self.outcome = error.outcome
            return
        self._socket, self.outcome = held, held.greeting

    def go_on(self, expect: Expect) -> None:
        """Say something more, and wait as long as makes sense for what is expected."""
        if isinstance(self.outcome, Answer):
            self._server = self.outcome.server
        if self._socket is not None:
            seconds = _SILENCE if expect.fate == "dropped" else SURE
            self.outcome = self._socket.exchange("more", seconds)

    def complaint(self, expect: Expect) -> str:
        """What is wrong with the last outcome."""
        if expect.fate == "answered":
            client = expect.client(self.outcome.server) if isinstance(self.outcome, Answer) else ""
            wrong = not_answered(self.outcome, expect.servers, "" if client == "either" else client)
        elif expect.fate == "refused":
            wrong = "" if isinstance(self.outcome, Refused) else "not refused"
        elif expect.fate == "same":
            wrong = not_answered(self.outcome, {self._server})
        else:
            wrong = not_dropped(self.outcome)
        return f"{wrong}: {self.outcome}" if wrong else ""

    def close(self) -> None:
        """End it."""
        if self._socket is not None:
            self._socket.close()
