"""Loading the nftables mode: state in memory to rules in the kernel, beside kube-proxy's layout through ``nft -f -``."""

import gc
import shutil
import subprocess
from typing import Any

from benchmarks import kube_proxy_layout
from benchmarks.clusters import NODE, POD_RANGE, endpoint_slice, grown, service
from benchmarks.measure import Table, in_fresh_namespace, measured, peak_memory

SIZES = (1_000, 10_000, 50_000)
PEER_SIZES = (1_000, 10_000)
CHANGES = 50
PEER_BATCH = 500


def run() -> list[Table]:
    """Measure loads and single changes at several sizes, and the peer where ``nft`` is installed."""
    load = Table("load: N Services x 10 endpoints, state in memory -> kernel (seconds)")
    change = Table("one endpoint added: event -> kernel (milliseconds of processor time, median), operations and bytes sent")
    for size in SIZES:
        ours = in_fresh_namespace(load_ours, size)
        row: dict[str, str | float | int] = {"Services": size, **ours["load"]}
        changed: dict[str, str | float | int] = {"Services": size, **ours["change"]}
        if size in PEER_SIZES and shutil.which("nft"):
            peer = in_fresh_namespace(load_peer, size)
            row |= {"kube-proxy layout wall": peer["wall"], "kube-proxy layout cpu": peer["cpu"]}
            row["times faster"] = round(peer["wall"] / float(ours["load"]["wall"]), 1)
            changed["kube-proxy layout ms"] = peer["change"]
        load.rows.append(row)
        change.rows.append(changed)
    return [load, change]


def load_ours(size: int) -> dict[str, Any]:
    """Load a cluster and change one endpoint at a time; runs in a namespace of its own."""
    from kproxy_core.config.settings import Settings
    from kproxy_core.engine.changes import ChangeTracker
    from kproxy_core.engine.compile import compile_ports
    from kproxy_core.model.changes import Replaced, Upserted
    from kproxy_core.model.snapshot import Kind
    from kproxy_core.program.delta import diff_ports, diff_programs
    from kproxy_core.program.program import Program, link, replace
    from kproxy_nftables.backend import NftablesBackend

    gc.set_threshold(50_000, 20, 100)
    backend = NftablesBackend()
    tracker = ChangeTracker(Settings(node_name=NODE, cluster_cidrs=(POD_RANGE,)), backend.node_ports_everywhere)
    slices = [endpoint_slice(index) for index in range(size)]
    tracker.apply(
        [
            Replaced(kind=Kind.SERVICE, objects=tuple(service(index) for index in range(size))),
            Replaced(kind=Kind.ENDPOINT_SLICE, objects=tuple(slices)),
        ]
    )
    with measured() as resolving:
        state = tracker.resolve().state
    with backend.open() as dataplane:
        with measured() as loading:
            compiled = compile_ports(backend, state, state.ports, {}, 1)
            fragments = {port: fragment for port, fragment in compiled.updates.items() if fragment is not None}
            program = link(fragments, backend.scaffold(state.node))
            plan = backend.plan(Program(), diff_programs(Program(), program))
            with measured() as committing:
                result = dataplane.apply(plan)
        if result.failures:
            raise RuntimeError(str(result.failures))
        times, operations, sizes = [], set(), set()
        for index in range(0, size, size // CHANGES):
            with measured() as changing:
                tracker.apply([Upserted(object=grown(slices[index]))])
                resolution = tracker.resolve()
                compiled = compile_ports(backend, resolution.state, resolution.dirty, program.fragments, size + 1)
                after = replace(program, compiled.updates)
                plan = backend.plan(program, diff_ports(program, after, resolution.dirty))
                result = dataplane.apply(plan)
            program = after
            times.append(changing.cpu * 1000)
            operations.add(len(plan))
            sizes.add(sum(operation.size for operation in plan))
    # The first change makes the chain for one endpoint more; all others find it.
    return {
        "load": {"wall": loading.wall, "cpu": loading.cpu, "of it commit": committing.wall, "resolve before": resolving.wall}
        | {"peak MiB": peak_memory()},
        "change": {"ms": sorted(times)[len(times) // 2], "ms worst": max(times)}
        | {"operations": ", ".join(map(str, sorted(operations))), "bytes": ", ".join(map(str, sorted(sizes)))},
    }


def load_peer(size: int) -> dict[str, float]:
    """Feed kube-proxy's layout to ``nft``, then one change; runs in a namespace of its own."""
    pairs = [(service(index), endpoint_slice(index)) for index in range(size)]
    texts = list(kube_proxy_layout.full_load(pairs, str(POD_RANGE), PEER_BATCH))
    with measured() as loading:
        for text in texts:
            subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    changed = kube_proxy_layout.one_change(pairs[0][0], grown(pairs[0][1]), str(POD_RANGE))
    with measured() as changing:
        subprocess.run(["nft", "-f", "-"], input=changed, text=True, check=True)
    return {"wall": loading.wall, "cpu": loading.children, "change": changing.wall * 1000}
