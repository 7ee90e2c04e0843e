"""Shows a program as text for people: the sets as ipset saves them, then each family's tables as iptables-restore takes them."""

from collections.abc import Iterator, Mapping

from kproxy_core.program.delta import Delta
from kproxy_core.program.program import Program, objects
from kproxy_core.wire.ipset import IpSet
from kproxy_iptables import sets
from kproxy_iptables.objects import SETTING, VERSIONS, Key, Value
from kproxy_iptables.plan import plan
from kproxy_iptables.restore import RestoreTables, write


def render(program: Program[Key, Value]) -> str:
    """Return the whole program as text, the same for the same objects."""
    everything = dict(sorted(objects(program).items(), key=lambda item: (item[0][0], _sortable(item[0][1]))))
    loads = [step for step in plan(Program(), Delta(added=everything)) if isinstance(step, RestoreTables)]
    lines = [line for family in VERSIONS for line in _sets(sets.place(family), everything)]
    lines += [f"# {name!s} = {value!s}" for (place, name), value in everything.items() if place == SETTING]
    for load in loads:
        program_name = "iptables-restore" if load.family.bits == 32 else "ip6tables-restore"
        lines += [f"# {program_name} --noflush", str(write(load.changes, None)).rstrip("\n")]
    return "".join(f"{line}\n" for line in lines)


def _sortable(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.hex()


def _sets(place: str, everything: Mapping[Key, Value]) -> Iterator[str]:
    for (where, _), value in everything.items():
        if where == place and isinstance(value, IpSet):
            family = "" if value.family == 2 else " family inet6"
            timeout = "" if value.timeout is None else f" timeout {value.timeout}"
            yield f"create {value.name} {value.type.value}{family}{timeout} maxelem {value.max_elements}"
            yield from (
                f"add {value.name} {value.form.text(name)}"
                for (set_name, name) in everything
                if set_name == value.name and isinstance(name, bytes)
            )
