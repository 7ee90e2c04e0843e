"""Writes a scenario as the file that would be read as it."""

from collections.abc import Mapping
from typing import Any

import attrs
import yaml

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance.scenario import (
    Again,
    Api,
    Apply,
    Ask,
    Clients,
    Configure,
    Delete,
    EndpointsNote,
    Enough,
    Expect,
    Flush,
    Give,
    NodeNote,
    Note,
    ObjectNote,
    Open,
    Packets,
    RangesNote,
    Repeat,
    Restart,
    Run,
    Scenario,
    ServiceNote,
    Step,
    Take,
    Wait,
)

_LINE = 120


class _Row(dict[str, Any]):
    """A mapping that is written in one line."""


class _Dumper(yaml.SafeDumper):
    """Writes rows in one line each, and texts of several lines as such."""


def _row(dumper: yaml.SafeDumper, row: _Row) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", row, flow_style=True)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(_Row, _row)
_Dumper.add_representer(str, _text)


def write(scenario: Scenario) -> str:
    """The text of a scenario's file."""
    head = {"name": scenario.name, "why": scenario.why}
    head |= _filled(cases=" ".join(scenario.cases), needs=" ".join(scenario.needs), lacks=" ".join(scenario.lacks))
    document = head | _filled(settings=dict(scenario.settings)) | {"steps": [_step(step) for step in scenario.steps]}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE)


def _filled(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value not in (None, "", (), {}, [])}


def _step(step: Step) -> dict[str, Any]:
    made: dict[str, Any]
    match step:
        case Packets(asks=asks):
            made = {"packets": [_ask(ask) for ask in asks]}
        case Open(name=name, ask=ask) | Clients(name=name, ask=ask):
            made = {"open" if isinstance(step, Open) else "clients": _Row({"name": name, **_ask(ask)})}
        case Again(name=name, expect=expect):
            made = {"again": _Row(name=name, expect=_alone(parts(expect)))}
        case Enough(name=name):
            made = {"enough": name}
        case Repeat(times=times, steps=steps):
            made = {"repeat": {"times": times, "steps": [_step(each) for each in steps]}}
        case Give() | Take():
            word, end = ("give", "to") if isinstance(step, Give) else ("take", "from")
            interface = {} if step.interface == "eth0" else {"interface": step.interface}
            made = {word: _Row({end: step.host, "addresses": list(step.addresses), **interface})}
        case Run(host=host, command=command, undo=undo):
            made = {"run": {"on": host, "command": command, **_filled(undo=undo)}}
        case Wait(seconds=seconds):
            made = {"wait": seconds}
        case _:
            made = _event(step)
    return made


def _event(step: Step) -> dict[str, Any]:
    """What happens to the proxy."""
    made: dict[str, Any] = {}
    match step:
        case Apply(notes=notes):
            made = {"apply": [_note(note) for note in notes]}
        case Delete(names=names):
            made = {"delete": list(names)}
        case Flush():
            made = {"flush": "rules"}
        case Restart(what=what):
            made = {"restart": what}
        case Api(what=what):
            made = {what: "api"}
        case Configure(settings=settings):
            made = {"configure": dict(settings)}
    return made


def _note(note: Note) -> Mapping[str, Any]:
    match note:
        case ServiceNote():
            return _service(note)
        case EndpointsNote():
            return _Row(_changed(note))
        case NodeNote():
            return {"node": _filled(zone=note.zone)}
        case RangesNote():
            return {"ranges": list(note.ranges)}
        case ObjectNote():
            return {"object": dict(note.object)}


def _service(note: ServiceNote) -> Mapping[str, Any]:
    given = _changed(note)
    keys = {"external_policy": "externalTrafficPolicy", "internal_policy": "internalTrafficPolicy", "ip_mode": "ipMode"}
    made = {keys.get(name, name): value for name, value in given.items()}
    if "at" in made:
        made["at"] = " ".join(note.at)
    if note.ranges is not None:
        made["ranges"] = list(note.ranges)
    return _Row(made)


def _changed(value: Any) -> dict[str, Any]:
    """The fields that are not as they are by default, and those that have no default."""
    found = {}
    for field in attrs.fields(type(value)):
        default = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
        if getattr(value, field.name) != default:
            found[field.name] = getattr(value, field.name)
    return found


def _ask(ask: Ask) -> dict[str, Any]:
    given = _filled(port=ask.port, source=ask.source, alike=ask.alike, unlike=ask.unlike)
    if ask.protocols != tuple(Protocol):
        given["protocols"] = " ".join(protocol.name.lower() for protocol in ask.protocols)
    if ask.families != tuple(Family):
        given["families"] = " ".join(family.label.lower() for family in ask.families)
    if ask.times != 1:
        given["times"] = ask.times
    if ask.every:
        given["every"] = True
    if ask.shares:
        given["shares"] = " ".join(f"{server}={share}" for server, share in ask.shares)
    to = [str(target) for target in ask.to]
    return _Row({"from": " ".join(ask.origins), "to": _alone(to), **given, "expect": _alone(parts(ask.expect))})


def _alone(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts


def parts(expect: Expect) -> list[str]:
    """An expectation in words, a text for each group of servers."""
    if expect.fate != "answered":
        return [expect.fate]
    return [" ".join((*each.servers, *(() if each.client == "either" else (each.client,)))) for each in expect.answers]
