"""Scenario files are read strictly: each mistake is told with its line and what may have been meant."""

import re
import textwrap
from pathlib import Path

import attrs
import pytest

from kproxy_core.model.addresses import Family
from kproxy_core.model.names import Protocol
from kproxy_core.testing.conformance import reader
from kproxy_core.testing.conformance.corpus import corpus
from kproxy_core.testing.conformance.reader import FATES, ScenarioError, read, read_file
from kproxy_core.testing.conformance.scenario import (
    Again,
    Answers,
    Api,
    Apply,
    Ask,
    Delete,
    EndpointsNote,
    Expect,
    Flush,
    Give,
    Open,
    Packets,
    Restart,
    Run,
    Scenario,
    ServiceNote,
    Target,
    Wait,
)

ROOT = Path(__file__).parents[3]

WHOLE = """\
name: whole
why: To see everything once.
cases: S1 D26
needs: SCTP
lacks: [WEIGHTS]
settings: {detectLocalMode: NodeCIDR, modeSection: {masqueradeAll: true}}
steps:
  - apply:
      - {service: web, number: 1, at: cluster external, endpoints: a1 b1/terminating, ranges: ["{a2 ipv4}/32"]}
      - {endpoints: web, hosts: a2/zone=east, suffix: "-2"}
      - node: {zone: east}
      - ranges: ["{services ipv4}"]
      - object: {apiVersion: v1, kind: Service, metadata: {name: raw, namespace: default}, spec: {}}
  - packets:
      - {from: everywhere, to: [cluster 1, "address {node2 ipv4} fd00::1"], expect: [a1 masqueraded, b1]}
      - {from: a2, to: host b1, port: 9, protocols: tcp, families: ipv6, source: each, times: 3, every: true, expect: refused}
  - open: {name: c, from: a2, to: cluster 1, protocols: tcp, alike: x, expect: a1}
  - again: {name: c, expect: same}
  - give: {to: node, addresses: 192.0.2.1/24, interface: lo}
  - run: {on: outside, command: "ip route add {a1 ipv4} dev lo", undo: ip route}
  - wait: 1.5
  - flush: rules
  - restart: daemon
  - cut: api
  - join: api
  - delete: [service web, endpoints web -2]
"""


def problems(text: str) -> list[str]:
    """What is told, one line each."""
    with pytest.raises(ScenarioError) as caught:
        read(text, "x.yaml")
    return str(caught.value).splitlines()


def test_everything_once() -> None:
    scenario = read(WHOLE)
    applied, packets, opened, again, give, run, wait, flush, restart, cut, join, delete = scenario.steps
    assert isinstance(applied, Apply)
    assert isinstance(applied.notes[0], ServiceNote)
    assert applied.notes[0].at == ("cluster", "external")
    assert applied.notes[0].ranges == ("{a2 ipv4}/32",)
    assert isinstance(packets, Packets)
    first, second = packets.asks
    assert first.origins == ("a2", "abr2", "node", "outside")
    assert first.to == (Target("cluster", "1"), Target("address", "{node2 ipv4}"), Target("address", "fd00::1"))
    assert first.expect == Expect("answered", (Answers(("a1",), "masqueraded"), Answers(("b1",), "either")))
    assert second == Ask(
        origins=("a2",),
        to=(Target("host", "b1"),),
        expect=Expect("refused"),
        port="9",
        protocols=(Protocol.TCP,),
        families=(Family.IPV6,),
        source="each",
        times=3,
        every=True,
    )
    assert second.line == 16
    assert isinstance(opened, Open)
    assert again == Again(name="c", expect=Expect("same"))
    assert give == Give(host="node", addresses=("192.0.2.1/24",), interface="lo")
    assert run == Run(host="outside", command="ip route add {a1 ipv4} dev lo", undo="ip route")
    assert (wait, flush, restart) == (Wait(seconds=1.5), Flush(), Restart(what="daemon"))
    assert (cut, join) == (Api(what="cut"), Api(what="join"))
    assert delete == Delete(names=("service web", "endpoints web -2"))


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("cases:", "case:", "x.yaml:3: case: no field of this name; did you mean cases?"),
        ("needs: SCTP", "needs: STCP", "x.yaml:4: needs: 'STCP' is unknown; did you mean SCTP?"),
        ("detectLocalMode", "detectLocalMod", "did you mean detectLocalMode?"),
        ("masqueradeAll", "masqueradeAl", "modeSection.masqueradeAl: no section of a mode has such a field"),
        ("NodeCIDR", "NodeCDIR", "one of ClusterCIDR, NodeCIDR"),
        ("service: web", "servce: web", "x.yaml:9: steps[0].apply[0].servce: no field of this name; did you mean service?"),
        ("at: cluster external", "at: cluster externl", "'externl' is unknown; did you mean external?"),
        ("b1/terminating", "b1/terminatin", "'terminatin' is nothing that can be said of an endpoint"),
        ("endpoints: a1 b1", "endpoints: a1 b9", "no host 'b9' (there are: a1, a2,"),
        ("{a2 ipv4}/32", "{a2}/32", "ipv4 or ipv6 at the end"),
        ("{a2 ipv4}/32", "{aa ipv4}/32", "no host 'aa'"),
        ("from: everywhere", "from: nowhere", "'nowhere' is unknown"),
        ("[cluster 1,", "[clster 1,", "'clster' is no kind of target; did you mean cluster?"),
        ("[cluster 1,", "[cluster,", "cluster: what of it? Write cluster 1, for instance"),
        ("[cluster 1,", "[cluster 0,", "the number of a Service is from 1 to 250"),
        ("a1 masqueraded", "a1 masquraded", "did you mean masqueraded?"),
        ("expect: refused", "expect: [kept]", "who may answer?"),
        ("times: 3", "times: no", "a whole number from 1 to 1000 is expected"),
        ("every: true", "every: yes", "'yes' is unknown"),
        ("protocols: tcp, families", "protocols: tpc, families", "'tpc' is unknown; did you mean tcp?"),
        ("restart: daemon", "restart: demon", "'demon' is unknown; did you mean daemon?"),
        ("  - flush: rules", "  - flsh: rules", "steps[7].flsh: no field of this name; did you mean flush?"),
        ("service web,", "srvice web,", "write service NAME"),
        ("wait: 1.5", "wait: long", "a number of seconds is expected"),
        ("to: node,", "to: nod,", "no host 'nod'; did you mean node?"),
        ("why: To see everything once.", "why: a\nwhy: b", "given twice, first in line 2"),
        ("name: whole\n", "", "name is missing"),
        ("{from: a2, to: host b1", "{frm: a2, to: host b1", "did you mean from?"),
    ],
)
def test_a_mistake_is_told(right: str, wrong: str, told: str) -> None:
    assert right in WHOLE
    assert told in "\n".join(problems(WHOLE.replace(right, wrong, 1)))


def test_all_mistakes_are_told_at_once_in_the_order_of_lines() -> None:
    text = WHOLE.replace("cases:", "case:").replace("wait: 1.5", "wait: long").replace("cut: api", "cut: ap")
    found = problems(text)
    assert len(found) == 3
    assert [line.split(":")[1] for line in found] == ["3", "21", "24"]


@pytest.mark.parametrize(
    ("text", "told"), [("", "the file is empty"), ("a: [", "this is no YAML"), ("- a", "a mapping is expected")]
)
def test_what_is_no_scenario_at_all(text: str, told: str) -> None:
    assert told in problems(text)[0]


def test_a_file_is_called_as_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(WHOLE)
    with pytest.raises(ScenarioError, match="the file is called other, not whole"):
        read_file(path)


def test_the_kit_has_scenarios() -> None:
    assert len(corpus()) > 60


def test_the_reference_shows_a_scenario_and_names_every_key() -> None:
    page = (ROOT / "docs" / "reference" / "scenarios.md").read_text()
    example = textwrap.dedent(page[page.index("    name: my-scenario") : page.index("## The lab")])
    assert read(example).name == "my-scenario"
    keys = {*reader._STEPS, *reader._ASK, *reader._SERVICE, *reader._NOTES}
    keys |= {each.name for kind in (Scenario, EndpointsNote) for each in attrs.fields(kind)}
    keys |= {each.name for each in attrs.fields(ServiceNote)} - set(reader._SERVICE.values())
    words = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", page))))
    assert sorted(keys - words) == []
    assert sorted(set(FATES) - words) == []
