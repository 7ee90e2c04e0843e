"""Reads scenario files, strictly: every misspelling is told, with its line and what may have been meant, all at once."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import yaml

from kproxy_core.config.positions import Problem
from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.plugin.backend import Capability
from kproxy_core.testing.conformance.fields import Field, Problems, near, split_words
from kproxy_core.testing.conformance.notation import POLICIES, named, objects_of
from kproxy_core.testing.conformance.places import Places
from kproxy_core.testing.conformance.scenario import (
    CLIENTS,
    FRONTENDS,
    REFUSED,
    SAME,
    Again,
    Answers,
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
    Target,
    Wait,
)
from kproxy_core.testing.lab import LabCapability

NODE_PORTS_EVERYWHERE = "NODE_PORTS_EVERYWHERE"
"""Stands among capabilities for a mode whose NodePorts answer on every address unless told otherwise."""

KPROXY_CORE = "KPROXY_CORE"
"""Stands among capabilities for what kproxy's core decides beyond kube-proxy, whatever the mode."""

CAPABILITIES = (*(each.name for each in (*Capability, *LabCapability)), NODE_PORTS_EVERYWHERE, KPROXY_CORE)
"""What ``needs`` and ``lacks`` may name: what a mode can do, what a lab can, a mode's default for nodePortAddresses, the core."""

EVERYWHERE = ("a2", "abr2", "node", "outside")
"""What ``everywhere`` stands for."""

FATES = ("refused", "dropped", "unclaimed")
TARGETS = (*FRONTENDS, "loopback", "host", "address")
_HOSTS = Places()


class ScenarioError(Exception):
    """A scenario that cannot be read; ``problems`` are all that are wrong with it."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}:{problem.line}: {problem.text}" for problem in self.problems))


def read_file(path: Path) -> Scenario:
    """Read a file. Raises :class:`ScenarioError`, ``OSError``."""
    made = read(path.read_text(encoding="utf-8"), path.name)
    if made.name != path.stem:
        raise ScenarioError(
            path.name, [Problem(line=1, field="name", message=f"the file is called {path.stem}, not {made.name}")]
        )
    return made


def read(text: str, name: str = "scenario") -> Scenario:
    """Read a scenario. Raises :class:`ScenarioError`."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = f"this is no YAML: {getattr(error, 'problem', None) or error}"
        raise ScenarioError(name, [Problem(line=mark.line + 1 if mark else 1, field="", message=message)]) from error
    if node is None:
        raise ScenarioError(name, [Problem(line=1, field="", message="the file is empty")])
    problems = Problems()
    made = _scenario(Field(node, "", problems))
    if problems.all():
        raise ScenarioError(name, problems.all())
    return made


def _scenario(field: Field) -> Scenario:
    found = field.fields([each.name for each in attrs.fields(Scenario)], ("name", "why", "steps"))
    return Scenario(
        name=_text(found, "name"),
        why=_text(found, "why").strip(),
        cases=found["cases"].words() if "cases" in found else (),
        needs=found["needs"].choices(CAPABILITIES) if "needs" in found else (),
        lacks=found["lacks"].choices(CAPABILITIES) if "lacks" in found else (),
        settings=_settings(found["settings"]) if "settings" in found else {},
        steps=_all_steps(found["steps"]) if "steps" in found else (),
    )


def _text(found: Mapping[str, Field], name: str, default: str = "") -> str:
    return found[name].text() if name in found else default


def _settings(field: Field) -> Mapping[str, Any]:
    from kproxy_core.testing.conformance.configuration import document, problems_of

    given = field.mapping()
    made = field.check(lambda: document(given, "nftables", _HOSTS)) or {}
    for problem in problems_of(made):
        field.wrong(problem.text)
    return given


# -- steps


def _step(field: Field) -> Step | None:
    one = field.only(_STEPS)
    return _STEPS[one[0]](one[1]) if one else None


def _apply(field: Field) -> Apply:
    return Apply(notes=tuple(note for each in field.items() if (note := _note(each)) is not None))


def _delete(field: Field) -> Delete:
    names = tuple(each.text() for each in field.items())
    for each, name in zip(field.items(), names, strict=True):
        each.check(partial(named, name))
    return Delete(names=names)


def _packets(field: Field) -> Packets:
    return Packets(asks=tuple(_ask(each, ()) for each in field.items()))


def _named_ask(field: Field) -> dict[str, Any]:
    return {"name": _text(field.fields((*_ASK, "name"), ("name",)), "name"), "ask": _ask(field, ("name",))}


def _repeat(field: Field) -> Repeat:
    found = field.fields(("times", "steps"), ("times", "steps"))
    times = found["times"].number(1, 1000) if "times" in found else 1
    return Repeat(times=times, steps=_all_steps(found["steps"]) if "steps" in found else ())


def _all_steps(field: Field) -> tuple[Step, ...]:
    return tuple(step for each in field.items() if (step := _step(each)) is not None)


def _again(field: Field) -> Again:
    found = field.fields(("name", "expect"), ("name", "expect"))
    expect = found.get("expect")
    if expect is not None and expect.text() == SAME.fate:
        return Again(name=_text(found, "name"), expect=SAME)
    return Again(name=_text(found, "name"), expect=_expect(expect) if expect is not None else REFUSED)


def _addresses(field: Field) -> dict[str, Any]:
    found = field.fields(("to", "from", "addresses", "interface"), ("addresses",))
    host = found.get("to") or found.get("from")
    if host is None:
        field.wrong("to (or from) is missing: the host")
        return {"host": "node", "addresses": ()}
    addresses = found["addresses"].words() if "addresses" in found else ()
    for address in addresses:
        found["addresses"].check(partial(_HOSTS.expand, address))
    return {"host": _host(host), "addresses": addresses, "interface": _text(found, "interface", "eth0")}


def _run(field: Field) -> Run:
    found = field.fields(("on", "command", "undo"), ("on", "command"))
    for name in ("command", "undo"):
        if name in found:
            found[name].check(partial(_HOSTS.expand, found[name].text()))
    host = _host(found["on"]) if "on" in found else "node"
    return Run(host=host, command=_text(found, "command"), undo=_text(found, "undo"))


def _flush(field: Field) -> Flush:
    field.choice(("rules",))
    return Flush()


_STEPS: Mapping[str, Callable[[Field], Step]] = {
    "apply": _apply,
    "delete": _delete,
    "packets": _packets,
    "open": lambda field: Open(**_named_ask(field)),
    "again": _again,
    "clients": lambda field: Clients(**_named_ask(field)),
    "enough": lambda field: Enough(name=field.text()),
    "give": lambda field: Give(**_addresses(field)),
    "take": lambda field: Take(**_addresses(field)),
    "run": _run,
    "wait": lambda field: Wait(seconds=field.seconds()),
    "flush": _flush,
    "restart": lambda field: Restart(what=field.choice(("daemon", "backend"))),
    "cut": lambda field: Api(what={"api": "cut"}[field.choice(("api",))]),
    "join": lambda field: Api(what={"api": "join"}[field.choice(("api",))]),
    "configure": lambda field: Configure(settings=_settings(field)),
    "repeat": _repeat,
}


# -- objects


_SERVICE = {
    "externalTrafficPolicy": "external_policy",
    "internalTrafficPolicy": "internal_policy",
    "ipMode": "ip_mode",
}
"""Keys of a Service that are Kubernetes' own names; all others are called as in :class:`ServiceNote`."""


def _note(field: Field) -> Note | None:
    node = field.node
    keys = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    kind = next((name for name in _NOTES if name in keys), "")
    if "number" in keys:
        kind = "service"  # which may be misspelt, and a Service may have endpoints
    if not kind:
        what = keys[0] if keys else ""
        field.wrong(f"a service, endpoints, node, ranges or object is expected{near(what, ('service', 'endpoints', 'object'))}")
        return None
    note = _NOTES[kind](field)
    field.check(lambda: objects_of(note, _HOSTS))
    return note


def _service_note(field: Field) -> ServiceNote:
    own = {each.name for each in attrs.fields(ServiceNote)} - set(_SERVICE.values())
    found = field.fields((*sorted(own), *_SERVICE), ("service", "number"))
    given: dict[str, Any] = {
        _SERVICE.get(name, name): each.text()
        for name, each in found.items()
        if name in ("service", "ports", "endpoints", "behind", "created", *_SERVICE)
    }
    for name in ("externalTrafficPolicy", "internalTrafficPolicy"):
        if name in found:
            found[name].choice(POLICIES)
    given |= {name: found[name].number(1) for name in ("number", "affinity") if name in found}
    given |= {name: found[name].mapping() for name in ("spec", "labels", "annotations") if name in found}
    if "at" in found:
        given["at"] = found["at"].choices(FRONTENDS)
    if "ranges" in found:
        given["ranges"] = found["ranges"].words()
    given.setdefault("service", "?")
    given.setdefault("number", 1)
    return ServiceNote(**given)


def _endpoints_note(field: Field) -> EndpointsNote:
    found = field.fields([each.name for each in attrs.fields(EndpointsNote)], ("endpoints", "hosts"))
    given: dict[str, Any] = {name: each.text() for name, each in found.items() if name != "labels"}
    if "labels" in found:
        given["labels"] = found["labels"].mapping()
    given.setdefault("endpoints", "?")
    given.setdefault("hosts", "")
    return EndpointsNote(**given)


def _node_note(field: Field) -> NodeNote:
    inner = field.fields(("node",))["node"].fields(("zone",))
    return NodeNote(zone=_text(inner, "zone"))


def _ranges_note(field: Field) -> RangesNote:
    return RangesNote(ranges=field.fields(("ranges",))["ranges"].words())


def _object_note(field: Field) -> ObjectNote:
    return ObjectNote(object=field.fields(("object",))["object"].mapping())


_NOTES: Mapping[str, Callable[[Field], Note]] = {
    "service": _service_note,
    "endpoints": _endpoints_note,
    "node": _node_note,
    "ranges": _ranges_note,
    "object": _object_note,
}


# -- packets

_ASK = ("from", "to", "port", "protocols", "families", "source", "times", "expect", "every", "shares", "alike", "unlike")


def _ask(field: Field, more: Iterable[str]) -> Ask:
    found = field.fields((*_ASK, *more), ("from", "to", "expect"))
    given: dict[str, Any] = {name: found[name].text() for name in ("port", "source", "alike", "unlike") if name in found}
    if "times" in found:
        given["times"] = found["times"].number(1, 1000)
    if "every" in found:
        given["every"] = found["every"].truth()
    if "shares" in found:
        given["shares"] = tuple(share for word in found["shares"].words() if (share := _share(found["shares"], word)))
    if "protocols" in found:
        known = {protocol.name.lower(): protocol for protocol in Protocol}
        given["protocols"] = tuple(known[word] for word in found["protocols"].choices(known))
    if "families" in found:
        families = {family.label.lower(): family for family in Family}
        given["families"] = tuple(families[word] for word in found["families"].choices(families))
    return Ask(
        origins=_origins(found["from"]) if "from" in found else (),
        to=_targets(found["to"], given.get("port", "")) if "to" in found else (),
        expect=_expect(found["expect"]) if "expect" in found else REFUSED,
        line=field.line,
        **given,
    )


def _share(field: Field, word: str) -> tuple[str, int] | None:
    server, _, weight = word.partition("=")
    if server.partition(":")[0] not in _HOSTS.hosts or not weight.isdecimal():
        field.wrong(f"{word!r}: write a server and its share, as in a1=3{near(server, _HOSTS.hosts)}")
        return None
    return server, int(weight)


def _host(field: Field) -> str:
    name = field.text()
    if name not in _HOSTS.hosts:
        field.wrong(f"no host {name!r}{near(name, _HOSTS.hosts)}")
    return name


def _origins(field: Field) -> tuple[str, ...]:
    words = field.choices((*_HOSTS.hosts, "everywhere"))
    return tuple(host for word in words for host in (EVERYWHERE if word == "everywhere" else (word,)))


def _targets(field: Field, port: str) -> tuple[Target, ...]:
    """Targets, each a kind and what there is of it: ``cluster 1 2`` and ``host a1``."""
    made = []
    for part in field.parts():
        kind, _, rest = part.partition(" ")
        if kind not in TARGETS:
            field.wrong(f"{kind!r} is no kind of target{near(kind, TARGETS)}")
            continue
        whats = split_words(rest)
        if not whats:
            field.wrong(f"{kind}: what of it? Write {kind} 1, for instance")
        for what in whats:
            target = Target(kind, what)
            field.check(partial(_located, target, port))
            made.append(target)
    return tuple(made)


def _located(target: Target, port: str) -> None:
    """Raise ``ValueError`` when the target is nowhere."""
    for family in Family:
        _HOSTS.address(target, family)
    _HOSTS.port(target, port)


def _expect(field: Field) -> Expect:
    parts = field.parts()
    if len(parts) == 1 and parts[0] in FATES:
        return Expect(parts[0])
    answers = []
    for part in parts:
        words = part.split()
        client = words.pop() if words and words[-1] in CLIENTS else "either"
        for word in words:
            host = word.partition(":")[0]
            if host not in _HOSTS.hosts:
                field.wrong(f"{word!r} is neither a host nor a word{near(word, (*_HOSTS.hosts, *CLIENTS, *FATES))}")
        answers.append(Answers(tuple(words), client))
    if not all(each.servers for each in answers):
        field.wrong("who may answer? Write hosts, or refused, dropped or unclaimed")
    return Expect("answered", tuple(answers))
