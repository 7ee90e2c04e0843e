"""A stack of modes at work: the dataplanes of several modes as one."""

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from kproxy_core.engine.layers import LayeredKey, layered_program
from kproxy_core.engine.stack import Stack, Step
from kproxy_core.model.addresses import Address, Family
from kproxy_core.model.names import ServicePortKey
from kproxy_core.model.packet import Packet, Untouched
from kproxy_core.model.state import ServicePort
from kproxy_core.plugin.backend import (
    AnyDataplane,
    ApplyResult,
    Capability,
    Counters,
    Dataplane,
    Drift,
    Failure,
    Leftovers,
    Trace,
    Traffic,
)
from kproxy_core.plugin.errors import UnsupportedError
from kproxy_core.program.program import Program
from kproxy_core.runtime.descriptors import JoinedDescriptors


class StackedBackend(Stack):
    """A stack whose modes are opened all at once."""

    def open(self) -> "StackedDataplane":
        """Open each in the current network namespace. Raises ``UnsupportedError`` when one of them does."""
        return StackedDataplane(self)


class StackedDataplane(Dataplane[LayeredKey, Any]):
    """The dataplanes of a stack, from the uppermost mode's down."""

    def __init__(self, stack: Stack) -> None:
        self._capabilities = {mode.name: mode.capabilities for mode in stack.modes}
        with contextlib.ExitStack() as opened:
            self._dataplanes: dict[str, AnyDataplane] = {}
            for mode in stack.modes:
                self._dataplanes[mode.name] = dataplane = mode.open()
                opened.callback(dataplane.close)
            self._descriptors = JoinedDescriptors([dataplane.fileno for dataplane in self._dataplanes.values()])
            opened.callback(self._descriptors.close)
            self._opened = opened.pop_all()

    def read(self) -> Program[LayeredKey, Any]:
        """Read what each has in the kernel."""
        return layered_program({mode: dataplane.read() for mode, dataplane in self._dataplanes.items()})

    @property
    def unserved(self) -> Mapping[Family, str]:
        """The families that any of them cannot serve."""
        return {family: f"{mode}: {why}" for mode, each in self._dataplanes.items() for family, why in each.unserved.items()}

    def apply(self, plan: Sequence[Step]) -> ApplyResult:
        """Carry out step after step; the rest waits after one that fails, for what is above relies on what is below."""
        whole = ApplyResult()
        for number, step in enumerate(plan):
            result = self._dataplanes[step.mode].apply(step.plan)
            wakes = [wake for wake in (whole.wake_at, result.wake_at) if wake is not None]
            whole = ApplyResult(
                done=whole.done + result.done,
                failures=tuple(_layered(failure, step.mode) for failure in result.failures),
                unchanged=result.unchanged and number == 0,
                wake_at=min(wakes, default=None),
            )
            if whole.failures:
                break
        return whole

    def fileno(self) -> int:
        """Readable when one of them tells of a change."""
        return self._descriptors.fileno()

    def drift(self) -> Drift | None:
        """Ask each; tell who did it, if any of them knows."""
        told = [drift for dataplane in self._dataplanes.values() if (drift := dataplane.drift()) is not None]
        return max(told, key=lambda drift: bool(drift.culprit), default=None)

    def lookup(self, port: ServicePort) -> Mapping[LayeredKey, Any]:
        """Return what each has of a Service port."""
        return {(mode, key): value for mode, each in self._dataplanes.items() for key, value in each.lookup(port).items()}

    def counters(self) -> Counters:
        """Add up what those count that can."""
        whole: defaultdict[ServicePortKey, dict[tuple[Address, int], Traffic]] = defaultdict(dict)
        for mode, dataplane in self._dataplanes.items():
            if Capability.COUNTERS in self._capabilities[mode]:
                for port, endpoints in dataplane.counters().items():
                    for endpoint, traffic in endpoints.items():
                        before = whole[port].get(endpoint)
                        whole[port][endpoint] = traffic if before is None else _sum(before, traffic)
        return whole

    def trace(self, packet: Packet) -> Trace:
        """Follow a packet from the uppermost mode down, to the first that does not let it pass."""
        lines: list[str] = []
        for mode, dataplane in self._dataplanes.items():
            if Capability.TRACE not in self._capabilities[mode]:
                raise UnsupportedError(f"mode {mode} cannot follow a packet")
            trace = dataplane.trace(packet)
            lines += [f"{mode}: {line}" for line in trace.lines]
            if trace.verdict != Untouched():
                return Trace(lines=tuple(lines), verdict=trace.verdict)
        return Trace(lines=tuple(lines), verdict=Untouched())

    def leftovers(self) -> Leftovers:
        """Tell what each has in the kernel."""
        return Leftovers(lines=tuple(line for dataplane in self._dataplanes.values() for line in dataplane.leftovers().lines))

    def cleanup(self) -> Leftovers:
        """Clean up after each."""
        return Leftovers(lines=tuple(line for dataplane in self._dataplanes.values() for line in dataplane.cleanup().lines))

    def close(self) -> None:
        """Close each."""
        self._opened.close()


def _layered(failure: Failure, mode: str) -> Failure:
    return evolve(failure, message=f"{mode}: {failure.message}", keys=tuple((mode, key) for key in failure.keys))


def _sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        connections=one.connections + other.connections,
        bytes_to_endpoint=_known_sum(one.bytes_to_endpoint, other.bytes_to_endpoint),
        bytes_to_client=_known_sum(one.bytes_to_client, other.bytes_to_client),
    )


def _known_sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
