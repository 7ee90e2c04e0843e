"""A mode and the companions beneath it as one backend: the engine programs them together without knowing of it."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from kproxy_core.engine.layers import AnyFragment, AnyProgram, LayeredFragment, LayeredKey, delta_of, layered, part_of, program_of
from kproxy_core.model.addresses import Address
from kproxy_core.model.diagnostics import Diagnostic
from kproxy_core.model.state import Frontend, FrontendRule, NodeContext, Origin, ServicePort
from kproxy_core.plugin.backend import AnyBackend, AnyDataplane, Backend, Capability, Support
from kproxy_core.plugin.division import divide, with_rules
from kproxy_core.plugin.errors import ContractError
from kproxy_core.program.delta import Delta

_OF_ALL: Final = frozenset({Capability.SURVIVES_CRASH, Capability.DRIFT_NOTIFIED, Capability.DRIFT_CERTAIN, Capability.TRACE})
"""What several modes can do together only if each can; the rest is for the one that serves the traffic in question."""


@frozen
class Step:
    """A part of a plan: what one mode is to carry out."""

    mode: str
    plan: Sequence[Any]


class Stack(Backend[LayeredKey, Any]):
    """Modes from the uppermost down; each gets what those above it leave (see ``Backend.claims``).

    Make before break holds between modes as well. What is below is programmed first, so that a companion has a frontend when the
    mode above lets go of it. The other way, when a frontend moves up, the companion keeps it until the mode above has it, and
    lets go of it in a second sync, which a ``provisional`` fragment asks for. Raises ``ContractError`` for modes of one name.
    """

    def __init__(self, modes: Sequence[AnyBackend]) -> None:
        self.modes: Final = tuple(modes)
        names = [mode.name for mode in modes]
        if len(set(names)) < len(names):
            raise ContractError(f"two modes of one name: {', '.join(names)}")

    @property
    def name(self) -> str:
        """The uppermost mode's: the one that was chosen."""
        return self.modes[0].name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the modes can do together. No step is atomic that several have a part in."""
        of_any = frozenset[Capability]().union(*(mode.capabilities for mode in self.modes))
        of_all = of_any.intersection(*(mode.capabilities for mode in self.modes))
        return (of_any - _OF_ALL | of_all & _OF_ALL) - {Capability.ATOMIC}

    @property
    def node_ports_everywhere(self) -> bool:
        """The uppermost mode's default."""
        return self.modes[0].node_ports_everywhere

    def claims(self, port: ServicePort, rule: FrontendRule, origin: Origin) -> bool:
        """Whether any of the modes does."""
        return any(mode.claims(port, rule, origin) for mode in self.modes)

    def probe(self) -> Support:
        """Probe each; findings of a companion carry its name."""
        own, *others = ((mode.name, mode.probe()) for mode in self.modes)
        beneath = [evolve(found, name=f"{mode}: {found.name}") for mode, support in others for found in support.findings]
        return Support(findings=(*own[1].findings, *beneath))

    def compile(self, port: ServicePort, node: NodeContext, previous: AnyFragment | None, fresh_id: int) -> LayeredFragment:
        """Have each mode render its share, and what it may not let go of yet: frontends that a mode above has not got so far."""
        parts: dict[str, AnyFragment] = {}
        frontends: dict[str, frozenset[Frontend]] = {}
        awaited = frozenset[Frontend]()
        provisional = False
        for mode, rules in zip(self.modes, divide(port, self.modes).shares, strict=True):
            before = part_of(previous, mode.name) if previous is not None else None
            share = frozenset(rule.frontend for rule in rules)
            kept = awaited & _known(previous, mode.name, frozenset(rule.frontend for rule in port.rules)) - share
            if share or kept:
                rendered = with_rules(port, tuple(rule for rule in port.rules if rule.frontend in share | kept))
                parts[mode.name] = part = mode.compile(rendered, node, before, fresh_id)
                frontends[mode.name] = share | kept
                # What was read may be a part of what it should be: it counts if every object is there.
                whole = before is not None and part.own.keys() <= before.own.keys()
                awaited |= share - _known(previous, mode.name, share if whole else frozenset())
            provisional |= bool(kept)
        return layered(parts, frontends, provisional)

    def remarks(self, port: ServicePort) -> Iterable[Diagnostic]:
        """Tell what each mode has to remark on its share."""
        for mode, rules in zip(self.modes, divide(port, self.modes).shares, strict=True):
            if rules:
                yield from mode.remarks(with_rules(port, rules))

    def scaffold(self, node: NodeContext) -> Mapping[LayeredKey, Any]:
        """Render the scaffold of each."""
        return {(mode.name, key): value for mode in self.modes for key, value in mode.scaffold(node).items()}

    def canonical(self, program: AnyProgram) -> object:
        """Return the meaning of each mode's part."""
        return tuple((mode.name, mode.canonical(program_of(program, mode.name))) for mode in self.modes)

    def plan(self, before: AnyProgram, delta: Delta[LayeredKey, Any]) -> Sequence[Step]:
        """Make a step for each mode that has something to do, the lowest first."""
        parts = [(mode, delta_of(delta, mode.name)) for mode in reversed(self.modes)]
        return [Step(mode.name, mode.plan(program_of(before, mode.name), part)) for mode, part in parts if part]

    def render(self, program: AnyProgram) -> str:
        """Return each mode's part under its name."""
        return "\n\n".join(f"# mode {mode.name}\n{mode.render(program_of(program, mode.name))}" for mode in self.modes)

    def valid_replies(self, port: ServicePort) -> Iterable[tuple[Address, int]]:
        """Return what any of the modes calls valid for its share."""
        shares = zip(self.modes, divide(port, self.modes).shares, strict=True)
        return {reply for mode, rules in shares if rules for reply in mode.valid_replies(with_rules(port, rules))}

    @abstractmethod
    def open(self) -> AnyDataplane:
        """Open all of them."""


def _known(previous: AnyFragment | None, mode: str, if_read: frozenset[Frontend]) -> frozenset[Frontend]:
    """Tell which frontends a mode has in the kernel; of what was read that is not known, and ``if_read`` says what to assume."""
    if not isinstance(previous, LayeredFragment) or mode not in previous.ids:
        return frozenset()
    return previous.frontends.get(mode, if_read)
