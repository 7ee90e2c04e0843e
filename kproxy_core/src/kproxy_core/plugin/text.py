"""A base for modes that feed a program with text, all of a change at once: their operations are lines."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from kproxy_core.model.state import NodeContext
from kproxy_core.plugin.backend import Backend, Dataplane, Finding, Support
from kproxy_core.plugin.errors import ApplyError, UnsupportedError
from kproxy_core.program.delta import Delta
from kproxy_core.program.program import K, Program, V, objects


class TextDataplane(Dataplane[K, V], Protocol[K, V]):
    """A dataplane that is fed with lines; :class:`~kproxy_core.kernel.text.FedProgram` does so by a program."""

    def complaint(self, plan: Sequence[str]) -> str:
        """Return what would be said against a plan, empty if nothing; changes nothing."""
        ...


class TextBackend(Backend[K, V], Protocol[K, V]):
    """A mode whose plans are lines of text.

    ``dataplane`` is the class of what it opens, ``remedy`` says what a node needs on which the scaffold is refused.
    """

    dataplane: ClassVar[type[TextDataplane[Any, Any]]]
    remedy: ClassVar[str]

    @abstractmethod
    def plan(self, before: Program[K, V], delta: Delta[K, V]) -> Sequence[str]:
        """Order a delta into lines, all of which are fed at once."""
        ...

    def open(self) -> TextDataplane[K, V]:
        """Open the dataplane in the current network namespace."""
        return self.dataplane()

    def probe(self) -> Support:
        """Have the program look at what is there without any Service, and not take it."""
        try:
            with self.open() as dataplane:
                said = dataplane.complaint(self.plan(Program(), Delta(added=self.scaffold(NodeContext()))))
        except (ApplyError, UnsupportedError) as error:
            said = str(error)
        return Support(findings=(Finding(name=self.name, ok=not said, message=said or "works", remedy=self.remedy),))

    def render(self, program: Program[K, V]) -> str:
        """Return all the lines that make a program where nothing is."""
        return "\n".join(self.plan(Program(), Delta(added=objects(program))))
