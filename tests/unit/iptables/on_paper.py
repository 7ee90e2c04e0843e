"""Programs on paper: a state compiled, written down as iptables-restore takes it, and read as iptables-save prints it."""

from collections.abc import Iterable, Iterator

from kproxy_core.engine.compile import compile_ports
from kproxy_core.model.addresses import Family
from kproxy_core.model.state import NodeState
from kproxy_core.program.delta import diff_programs
from kproxy_core.program.program import Program, link
from kproxy_core.resolve.node import node_context
from kproxy_core.resolve.resolve import resolve
from kproxy_core.testing.oracle import Scene
from kproxy_core.wire.ipset import IpSet
from kproxy_iptables.backend import IptablesBackend
from kproxy_iptables.codec import read_table
from kproxy_iptables.objects import FAMILIES, SETTING, TABLES, Key, Value
from kproxy_iptables.plan import AddElements, DeleteElements, DestroySet, MakeSet, Step, WriteSetting
from kproxy_iptables.restore import RestoreTables, write

BACKEND = IptablesBackend()

BUILT_IN = {"nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), "filter": ("INPUT", "FORWARD", "OUTPUT")}


def resolved(scene: Scene) -> NodeState:
    """What the core decides for a scene."""
    node = node_context(
        scene.snapshot, scene.site.addresses, scene.settings, node_ports_everywhere=scene.site.node_ports_everywhere
    )
    return resolve(scene.snapshot, node, scene.settings)


def compiled(state: NodeState) -> Program[Key, Value]:
    """The program of a state."""
    made = compile_ports(BACKEND, state, state.ports, {}, 1)
    assert not made.broken, made.broken
    return link({port: fragment for port, fragment in made.updates.items() if fragment}, BACKEND.scaffold(state.node))


def plan_between(before: Program[Key, Value], after: Program[Key, Value]) -> list[Step]:
    """What leads from one program to another."""
    return BACKEND.plan(before, diff_programs(before, after))


class PaperKernel:
    """Tables and sets as programs and kernel keep them, strictly: what is deleted must be there, and so must what is led to."""

    def __init__(self) -> None:
        self.tables = {
            (family, table): {chain: list[str]() for chain in BUILT_IN[table]} for family in Family for table in TABLES
        }
        self.definitions: dict[str, IpSet] = {}
        self.elements: dict[str, set[bytes]] = {}
        self.settings: dict[str, str] = {}

    def carry_out(self, step: Step, lines_at_once: int | None = None) -> None:
        """Carry out one step of a plan."""
        match step:
            case MakeSet(wanted, keys):
                self.definitions[wanted.name] = wanted
                self.elements[wanted.name] = set(keys)
            case DestroySet(name):
                assert not any(f"set {name} " in rule for rule in self._all_rules()), f"{name} is in use"
                del self.definitions[name], self.elements[name]
            case AddElements(target, keys):
                self.elements[target.name].update(keys)
            case DeleteElements(target, keys):
                self.elements[target.name].difference_update(keys)
            case RestoreTables(family, changes):
                for text in str(write(changes, lines_at_once)).split("COMMIT\n")[:-1]:
                    self._restore(family, text.rstrip("\n").split("\n"))
            case WriteSetting(name, None):
                self.settings.pop(name, None)
            case WriteSetting(name, value):
                self.settings[name] = value or ""
            case _:
                raise AssertionError(step)

    def _all_rules(self) -> Iterator[str]:
        yield from (rule for chains in self.tables.values() for rules in chains.values() for rule in rules)

    def _restore(self, family: Family, lines: list[str]) -> None:
        chains = self.tables[family, lines[0].removeprefix("*")]
        for line in lines[1:]:
            verb, _, rest = line.partition(" ")
            chain, _, rule = rest.partition(" ")
            if line.startswith(":"):
                chains[line[1 : line.index(" ")]] = []
                continue
            match verb:
                case "-A":
                    self._check(chains, rule)
                    chains[chain].append(rule)
                case "-I":
                    self._check(chains, rule)
                    chains[chain].insert(0, rule)
                case "-D":
                    chains[chain].remove(rule)
                case "-F":
                    chains[chain].clear()
                case "-X":
                    assert not chains.pop(chain), f"{chain} is not empty"
                    assert not any(rule.endswith(f"-j {chain}") for rules in chains.values() for rule in rules), chain
                case _:
                    raise AssertionError(line)

    def _check(self, chains: dict[str, list[str]], rule: str) -> None:
        words = rule.split(" ")
        target = words[words.index("-j" if "-j" in words else "-g") + 1]
        assert target in chains or not target.startswith("KPROXY-"), rule
        for option in ("--match-set", "--add-set"):
            if option in words:
                assert words[words.index(option) + 1] in self.definitions, rule

    def saved(self, family: Family, table: str) -> str:
        """What iptables-save would print."""
        chains = self.tables[family, table]
        names = [*BUILT_IN[table], *sorted(chain for chain in chains if chain not in BUILT_IN[table])]
        lines = [f":{name} {'ACCEPT' if name in BUILT_IN[table] else '-'} [0:0]" for name in names]
        lines += [f"-A {name} {rule}" for name in names for rule in chains[name]]
        return "\n".join(["# Generated by iptables-save", f"*{table}", *lines, "COMMIT", ""])

    def read(self) -> dict[Key, Value]:
        """The objects, as the dataplane reads them."""
        objects: dict[Key, Value] = {}
        for family in Family:
            for table in TABLES:
                objects.update(read_table(family, table, self.saved(family, table)))
        for version, family in FAMILIES.items():
            prefix = {Family.IPV4: "KPROXY-4-", Family.IPV6: "KPROXY-6-"}[family]
            for name, definition in self.definitions.items():
                if name.startswith(prefix):
                    objects[f"{version} set", name] = definition
                    objects.update(((name, key), b"") for key in self.elements[name])
        objects.update(((SETTING, name), value) for name, value in self.settings.items())
        return objects


def loaded(program: Program[Key, Value]) -> PaperKernel:
    """A kernel that holds a program."""
    kernel = PaperKernel()
    apply(kernel, plan_between(Program(), program))
    return kernel


def apply(kernel: PaperKernel, plan: Iterable[Step], lines_at_once: int | None = None) -> None:
    """Carry out a plan."""
    for step in plan:
        kernel.carry_out(step, lines_at_once)
