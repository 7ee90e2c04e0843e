"""The nftables mode with a kernel of paper, for engines that are to meet its transactions, and the faults in them."""

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from kproxy_core.model.state import ServicePort
from kproxy_core.plugin.backend import ApplyResult, Dataplane, Failure, Leftovers
from kproxy_core.program.program import Program
from kproxy_core.wire.nft_operations import Operation
from kproxy_nftables.attribution import attribute
from kproxy_nftables.backend import NftablesBackend
from kproxy_nftables.objects import Key, Value
from kproxy_nftables.plan import phases

from .on_paper import read
from .paper_kernel import RefusedError, Tables, commit

Fault = Callable[[int], bool]
"""Whether the nth operation of the kernel's life is refused."""


def no_fault(_number: int) -> bool:
    """Refuse nothing."""
    return False


@define
class Paper:
    """What outlives processes: the tables, how much was done to them, and what goes wrong."""

    tables: Tables = field(factory=dict)
    operations: int = 0
    transactions: int = 0
    fault: Fault = no_fault
    states: list[Tables] = field(factory=list)
    """Every state the kernel has been in."""


class PaperBackend(NftablesBackend):
    """The mode, for any number of processes one after another."""

    def __init__(self, paper: Paper | None = None, *, everywhere: bool = False) -> None:
        super().__init__()
        self.paper = paper or Paper()
        self.node_ports_everywhere = everywhere  # type: ignore[misc]

    def open(self) -> "PaperDataplane":  # type: ignore[override]
        """Open the paper."""
        return PaperDataplane(self.paper)


class PaperDataplane(Dataplane[Key, Value]):
    """What the real dataplane does, without a kernel; it is never told of drift."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper

    def read(self) -> Program[Key, Value]:
        """Read and attribute."""
        return attribute(read(self._paper.tables))

    def apply(self, plan: Sequence[Operation]) -> ApplyResult:
        """Commit phase by phase; an injected fault refuses the transaction it falls into."""
        done = 0
        for phase in phases(plan):
            try:
                self._commit(phase)
            except RefusedError as refused:
                return ApplyResult(done=done, failures=(Failure(message=str(refused)),), unchanged=done == 0)
            done += len(phase)
        return ApplyResult(done=done)

    def _commit(self, phase: Sequence[Operation]) -> None:
        paper = self._paper
        for index, operation in enumerate(phase):
            paper.operations += 1
            if paper.fault(paper.operations):
                raise RefusedError(17, index, operation)
        paper.tables = commit(paper.tables, phase)
        paper.states.append(paper.tables)
        paper.transactions += 1

    def lookup(self, port: ServicePort) -> Mapping[Key, Value]:
        """What the paper holds for a Service port."""
        return self.read().fragments[port.key].own

    def leftovers(self) -> Leftovers:
        """How many tables."""
        return Leftovers(lines=tuple(str(family) for family in self._paper.tables))

    def cleanup(self) -> Leftovers:
        """Take a new sheet."""
        left, self._paper.tables = self.leftovers(), {}
        return left
