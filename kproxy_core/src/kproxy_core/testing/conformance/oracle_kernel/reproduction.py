"""Writes what went wrong in a run as a scenario, so that it can be seen again, and kept."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from kproxy_core.config.settings import DetectLocalMode, NodePortScope, Settings
from kproxy_core.model.changes import WatchedObject
from kproxy_core.model.packet import Delivered, Dropped, Refused
from kproxy_core.testing.conformance.oracle_kernel.atlas import Atlas, Sent
from kproxy_core.testing.conformance.oracle_kernel.failure import Failure
from kproxy_core.testing.conformance.oracle_kernel.telling import Step, steps_between
from kproxy_core.testing.conformance.oracle_kernel.transposition import SECOND
from kproxy_core.testing.conformance.scenario import (
    DROPPED,
    REFUSED,
    UNCLAIMED,
    Answers,
    Apply,
    Ask,
    Delete,
    Expect,
    Give,
    ObjectNote,
    Packets,
    Run,
    Scenario,
    Target,
)
from kproxy_core.testing.conformance.scenario import Step as ScenarioStep
from kproxy_core.testing.conformance.writer import write
from kproxy_core.testing.manifests import manifest, objects_in

_TIMES = 8


def write_scenario(failure: Failure, atlas: Atlas, folder: Path, seed: int) -> Path:
    """Write the scenario of a failure into a folder."""
    path = folder / f"oracle-{seed}.yaml"
    path.write_text(write(scenario_of(failure, atlas, path.stem)), encoding="utf-8")
    return path


def scenario_of(failure: Failure, atlas: Atlas, name: str) -> Scenario:
    """The scenario that goes wrong as the failure did."""
    story = failure.story
    settings = story.scene.settings
    told = list(_told(failure))
    packets = (Packets(asks=(_ask(failure.sent, atlas),)),) if failure.sent is not None else ()
    again = "" if failure.again else "\nTold alone, it did not go wrong again."
    return Scenario(
        name=name,
        why=f"{failure.complaint}{again}{_untold(settings)}",
        settings=_configuration(settings),
        steps=(
            Give(host="node", addresses=SECOND),
            *_routes(failure.sent, atlas),
            Delete(names=("node", "ranges")),
            *told,
            *packets,
        ),
    )


def _told(failure: Failure) -> Iterator[ScenarioStep]:
    after, before = failure.story.scene.snapshot, failure.story.before
    if before is None:
        yield _apply(objects_in(after))
        return
    yield _apply(objects_in(before))
    for step in steps_between(before, after, failure.story.seed):
        yield _step(step)


def _step(step: Step) -> ScenarioStep:
    return _apply(step.objects) if step.puts else Delete(names=tuple(map(_name, step.objects)))


def _apply(objects: tuple[WatchedObject, ...]) -> Apply:
    return Apply(notes=tuple(ObjectNote(object=manifest(each)) for each in objects))


def _name(each: WatchedObject) -> str:
    return f"object {type(each).__name__} {each.name}"


def _ask(sent: Sent, atlas: Atlas) -> Ask:
    packet = sent.packet
    return Ask(
        origins=(sent.origin.name,),
        to=(Target("address", str(packet.destination)),),
        port=str(packet.port),
        protocols=(packet.protocol,),
        families=(packet.source.family,),
        source=str(packet.source),
        times=_TIMES,
        expect=_expected(sent, atlas),
    )


def _expected(sent: Sent, atlas: Atlas) -> Expect:
    match sent.verdict:
        case Delivered():
            answers = tuple(Answers((server,), client) for server, client in atlas.answers(sent))
            return Expect("answered", answers) if answers else DROPPED
        case Dropped():
            return DROPPED
        case Refused():
            return REFUSED
    return UNCLAIMED


def _routes(sent: Sent | None, atlas: Atlas) -> Iterator[Run]:
    """The way by the node that the lab does not have by itself."""
    if sent is None:
        return
    for network, via in atlas.more_ways(sent):
        ip = "ip -6" if ":" in network else "ip"
        yield Run(
            host=sent.origin.name, command=f"{ip} route replace {network} via {via}", undo=f"{ip} route del {network} via {via}"
        )


def _configuration(settings: Settings) -> Mapping[str, Any]:
    """Settings as fields of KubeProxyConfiguration."""
    parameters = {
        DetectLocalMode.BRIDGE_INTERFACE: settings.bridge_interface,
        DetectLocalMode.INTERFACE_NAME_PREFIX: settings.interface_name_prefix,
    }
    if not parameters.get(settings.detect_local_mode, "none needed"):
        # No file may leave the parameter out. Nothing is told then, as by ranges of which there are none.
        settings = evolve(settings, detect_local_mode=DetectLocalMode.CLUSTER_CIDR, cluster_cidrs=())
    made: dict[str, Any] = {
        "clusterCIDR": ",".join(map(str, settings.cluster_cidrs)),
        "detectLocalMode": settings.detect_local_mode.value,
        "detectLocal": {
            "bridgeInterface": settings.bridge_interface,
            "interfaceNamePrefix": settings.interface_name_prefix,
        },
        "nodePortAddresses": _node_port_addresses(settings),
        "modeSection": {"masqueradeAll": settings.masquerade_all},
    }
    if settings.bind_address is not None:
        made["bindAddress"] = str(settings.bind_address)
    if not settings.external_ips_allowed:
        made["featureGates"] = {"AllowServiceExternalIPs": False}
    return made


def _node_port_addresses(settings: Settings) -> list[str]:
    chosen = settings.node_port_addresses
    if chosen is None:
        return []
    return [chosen.value] if isinstance(chosen, NodePortScope) else [str(network) for network in chosen]


def _untold(settings: Settings) -> str:
    """What no configuration file says."""
    if settings.protected_ports == Settings().protected_ports:
        return ""
    return f"\nSettings had also: protected_ports={set(settings.protected_ports) or '{}'}, which no configuration file can say."
