"""Loading the iptables mode in both variants: state in memory to rules, beside kube-proxy's layout fed to the same program."""

import gc
import subprocess
from typing import Any

from benchmarks import kube_proxy_iptables
from benchmarks.clusters import NODE, POD_RANGE, endpoint_slice, grown, service
from benchmarks.measure import Table, children_watched, in_fresh_namespace, measured, peak_memory
from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family

SIZES = {Variant.LEGACY: (1_000, 10_000), Variant.NFT: (1_000, 10_000)}
PEER_SIZES = {Variant.LEGACY: (1_000, 10_000), Variant.NFT: (1_000,)}
"""In the variant nf_tables kube-proxy's layout takes many minutes for 10,000 Services."""
CHANGES = 10


def run() -> list[Table]:
    """Measure loads, single changes, and reading everything back, and the peer."""
    load = Table("load: N Services x 10 endpoints, state in memory -> kernel (seconds); memory in MiB")
    change = Table("one endpoint added: event -> kernel (milliseconds, median), lines written")
    for variant, sizes in SIZES.items():
        if find_program(variant, Family.IPV4, "restore") is None:
            continue
        for size in sizes:
            ours = in_fresh_namespace(load_ours, variant.value, size)
            row: dict[str, str | float | int] = {"variant": variant.value, "Services": size, **ours["load"]}
            changed: dict[str, str | float | int] = {"variant": variant.value, "Services": size, **ours["change"]}
            if size in PEER_SIZES[variant]:
                peer = in_fresh_namespace(load_peer, variant.value, size)
                row |= {f"kube-proxy layout {name}": value for name, value in peer["load"].items()}
                row["times faster"] = round(peer["load"]["wall"] / float(ours["load"]["wall"]), 1)
                changed |= {f"kube-proxy layout {name}": value for name, value in peer["change"].items()}
                changed["times faster"] = round(peer["change"]["ms"] / float(ours["change"]["ms"]), 1)
            load.rows.append(row)
            change.rows.append(changed)
    return [load, change]


def load_ours(variant: str, size: int) -> dict[str, Any]:
    """Load a cluster and change one endpoint at a time; runs in a namespace of its own."""
    from kproxy_core.config.settings import Settings
    from kproxy_core.engine.changes import ChangeTracker
    from kproxy_core.engine.compile import compile_ports
    from kproxy_core.model.changes import Replaced, Upserted
    from kproxy_core.model.snapshot import Kind
    from kproxy_core.program.delta import diff_ports, diff_programs
    from kproxy_core.program.program import Program, link, replace
    from kproxy_iptables.backend import IptablesBackend

    gc.set_threshold(50_000, 20, 100)
    backend = IptablesBackend(variant=variant)
    tracker = ChangeTracker(Settings(node_name=NODE, cluster_cidrs=(POD_RANGE,)), backend.node_ports_everywhere)
    slices = [endpoint_slice(index) for index in range(size)]
    tracker.apply(
        [
            Replaced(kind=Kind.SERVICE, objects=tuple(service(index) for index in range(size))),
            Replaced(kind=Kind.ENDPOINT_SLICE, objects=tuple(slices)),
        ]
    )
    state = tracker.resolve().state
    with backend.open() as dataplane:
        with children_watched() as largest, measured() as loading:
            compiled = compile_ports(backend, state, state.ports, {}, 1)
            fragments = {port: fragment for port, fragment in compiled.updates.items() if fragment is not None}
            program = link(fragments, backend.scaffold(state.node))
            result = dataplane.apply(backend.plan(Program(), diff_programs(Program(), program)))
        if result.failures:
            raise RuntimeError(str(result.failures))
        loaded = {"peak": peak_memory(), "child's peak": largest[0]}
        with measured() as reading:
            dataplane.read()
        times, lines = [], set()
        for index in range(0, size, size // CHANGES):
            with measured() as changing:
                tracker.apply([Upserted(object=grown(slices[index]))])
                resolution = tracker.resolve()
                compiled = compile_ports(backend, resolution.state, resolution.dirty, program.fragments, 1)
                after = replace(program, compiled.updates)
                result = dataplane.apply(backend.plan(program, diff_ports(program, after, resolution.dirty)))
            if result.failures:
                raise RuntimeError(str(result.failures))
            program = after
            times.append((changing.wall * 1000, (changing.cpu + changing.children) * 1000))
            lines.add(result.done)
    wall, cpu = (sorted(each)[CHANGES // 2] for each in zip(*times, strict=True))
    return {
        "load": {"wall": loading.wall, "own cpu": loading.cpu, "children's cpu": loading.children, **loaded}
        | {"read back wall": reading.wall, "read back cpu": reading.cpu + reading.children},
        "change": {"ms": wall, "cpu ms": cpu, "lines": ", ".join(map(str, sorted(lines)))},
    }


def load_peer(variant: str, size: int) -> dict[str, Any]:
    """Feed kube-proxy's layout to the same program, then some changes; runs in a namespace of its own."""
    program = find_program(Variant(variant), Family.IPV4, "restore")
    pairs = [(service(index), endpoint_slice(index)) for index in range(size)]
    text = kube_proxy_iptables.full_load(pairs, str(POD_RANGE))
    with children_watched() as largest, measured() as loading:
        _restore(program, text)
    times = []
    services = [each for each, _ in pairs]
    for index in range(0, size, size // CHANGES):
        changed = kube_proxy_iptables.one_change(services, (pairs[index][0], grown(pairs[index][1])), str(POD_RANGE))
        with measured() as changing:
            _restore(program, changed)
        times.append((changing.wall * 1000, changing.children * 1000))
    wall, cpu = (sorted(each)[CHANGES // 2] for each in zip(*times, strict=True))
    return {
        "load": {"wall": loading.wall, "cpu": loading.children, "child's peak": largest[0]},
        "change": {"ms": wall, "cpu ms": cpu},
    }


def _restore(program: str | None, text: str) -> None:
    assert program is not None
    subprocess.run([program, "--noflush", "--counters", "--wait=60"], input=text, text=True, check=True)
