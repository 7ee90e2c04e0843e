"""New TCP connections per second to a Service, beside connections straight to its endpoints, and whether more Services matter.

A ratio is (processor time of a connection by way of a plain node) / (processor time by way of a node with the mode), from making
the client's socket in Python to both ends being closed by RST: the same socket calls and four packets are in both. So the share
of a proxy looks smaller than in the kernel alone, and larger than with a client that also says something.
"""

import gc
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from statistics import median, quantiles

from attrs import field, frozen

from benchmarks import kube_proxy_iptables, kube_proxy_layout
from benchmarks.clusters import NODE, POD_RANGE, endpoint_slice, service
from benchmarks.lane import CLIENT, PORT, Burst, Lane, Target
from benchmarks.measure import Table, in_fresh_namespace
from kproxy_core.config.settings import Settings
from kproxy_core.kernel.iptables import Variant, find_program
from kproxy_core.model.addresses import Family
from kproxy_core.plugin.backend import AnyBackend
from kproxy_core.testing.lab import Host
from kproxy_core.testing.node import NodeUnderTest
from kproxy_iptables.backend import IptablesBackend
from kproxy_nftables.backend import NftablesBackend

SIZES = (1, 1_000, 10_000)
PEER_SIZES = {Variant.LEGACY: (1_000, 10_000), Variant.NFT: (1_000,)}
"""Larger ones, and of kube-proxy's nftables layout, are minutes of loading."""
SECONDS = 90.0
"""How long rounds are run."""
BATCHES = 2
PEER_BATCH = 500

_TRACKING = """
add table ip plugin
add chain ip plugin forward { type filter hook forward priority 0 ; }
add rule ip plugin forward ct state established accept
"""
"""The least that a network plugin does: the node's kernel follows connections, here for the one rule of a filter."""

_LEAVES = 1024
"""Of the iptables mode's tree: an address with the last ten bits set is in the last branch of the last branch."""
_COUNTED = 0.9
"""The share of the clock's time that is processor time in the least disturbed burst, at least, if softirqs count."""

Programming = Callable[[Host, int, ExitStack], None]


@frozen(kw_only=True)
class Round:
    """Bursts next to one another: to the Service, and to its endpoints straight by nodes with and without conntrack."""

    through: Burst
    tracked: Burst
    untracked: Burst


@frozen(kw_only=True)
class Contender:
    """A node of some proxy with so many Services, one of these, and what was measured of it."""

    proxy: str
    size: int
    which: str
    lane: Lane
    target: Target
    rounds: list[Round] = field(factory=list)


def run() -> list[Table]:
    """Measure the modes, in each variant that is installed, at each size, and kube-proxy's layouts at few."""
    return in_fresh_namespace(measure_all, SIZES, SECONDS)


def measure_all(sizes: Sequence[int], seconds: float) -> list[Table]:
    """Program a node for each proxy and size, then measure all of them in turn; runs in a namespace of its own."""
    if shutil.which("nft") is None:
        raise RuntimeError("nft is not installed: connections straight to endpoints are followed by conntrack through it")
    gc.set_threshold(50_000, 20, 100)
    with ExitStack() as stack:
        tracked, untracked = (stack.enter_context(closing(Lane())) for _ in range(2))
        tracked.node.run(["nft", "-f", "-"], input=_TRACKING)
        contenders: list[Contender] = []
        for proxy, size, programming in _nodes(sizes):
            lane = stack.enter_context(closing(Lane()))
            programming(lane.node, size, stack)
            contenders += _contenders(proxy, size, lane)
        with _undisturbed():
            _measure(contenders, (tracked, untracked), seconds)
    return [_rates(contenders), _sizes_compared(contenders)]


# -- what is on the nodes


def _nodes(sizes: Sequence[int]) -> Iterator[tuple[str, int, Programming]]:
    """Each proxy, number of Services, and how that is programmed."""
    variants = [variant for variant in Variant if find_program(variant, Family.IPV4, "restore")]
    backends: dict[str, Callable[[], AnyBackend]] = {"nftables": NftablesBackend}
    backends |= {f"iptables {variant.value}": partial(IptablesBackend, variant=variant.value) for variant in variants}
    for proxy, backend in backends.items():
        for size in sizes:
            yield proxy, size, partial(_program, backend())
    yield "kube-proxy layout, nftables", min(PEER_SIZES[Variant.NFT]), _nft_peer
    for variant in variants:
        for size in PEER_SIZES[variant]:
            yield f"kube-proxy layout, iptables {variant.value}", size, partial(_iptables_peer, variant)


def _program(backend: AnyBackend, host: Host, size: int, stack: ExitStack) -> None:
    node = stack.enter_context(NodeUnderTest(host, backend, Settings(node_name=NODE, cluster_cidrs=(POD_RANGE,))))
    objects = [made for index in range(size) for made in (service(index), endpoint_slice(index))]
    report = node.set(*objects)
    if report is None or not report.ok:
        raise RuntimeError(f"{backend.name} with {size} Services: {report}")


def _nft_peer(host: Host, size: int, _stack: ExitStack) -> None:
    pairs = [(service(index), endpoint_slice(index)) for index in range(size)]
    for text in kube_proxy_layout.full_load(pairs, str(POD_RANGE), PEER_BATCH):
        host.run(["nft", "-f", "-"], input=text)


def _iptables_peer(variant: Variant, host: Host, size: int, _stack: ExitStack) -> None:
    program = find_program(variant, Family.IPV4, "restore")
    assert program is not None
    pairs = [(service(index), endpoint_slice(index)) for index in range(size)]
    host.run([program, "--noflush", "--wait=60"], input=kube_proxy_iptables.full_load(pairs, str(POD_RANGE)))


def _contenders(proxy: str, size: int, lane: Lane) -> Iterator[Contender]:
    """Some Services of a node, each asked once whether connections arrive where they should."""
    chosen = {"last": size - 1} if size == 1 else {"first": 0, "last": size - 1}
    if proxy.startswith("iptables") and size >= _LEAVES:
        chosen["farthest"] = size // _LEAVES * _LEAVES - 1
    for which, index in chosen.items():
        target = (str(service(index).cluster_ips[0]), 80)
        reached = lane.reached(target)
        if reached not in {(address, CLIENT) for address, _ in _endpoints(index)}:
            raise RuntimeError(f"{proxy}, {size} Services: {target[0]} led to {reached[0]} as {reached[1]}")
        yield Contender(proxy=proxy, size=size, which=which, lane=lane, target=target)


def _endpoints(index: int) -> list[Target]:
    return [(str(endpoint.address), PORT) for endpoint in endpoint_slice(index).endpoints]


# -- measuring


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Stay on one processor, and collect no garbage."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(processors)})
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        os.sched_setaffinity(0, processors)


def _measure(contenders: list[Contender], plain: tuple[Lane, Lane], seconds: float) -> None:
    """Ask everyone in turn, in another order each time, and each between the plain lanes, in either order."""
    chance = random.Random(1)
    endpoints = _endpoints(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for each in chance.sample(contenders, len(contenders)):
            bursts: dict[str, Callable[[], Burst]] = {
                "tracked": partial(plain[0].burst, endpoints, BATCHES),
                "through": partial(each.lane.burst, [each.target], BATCHES),
                "untracked": partial(plain[1].burst, endpoints, BATCHES),
            }
            order = list(bursts) if chance.random() < 0.5 else list(reversed(bursts))
            each.rounds.append(Round(**{name: bursts[name]() for name in order}))


# -- what came out


def _rates(contenders: Sequence[Contender]) -> Table:
    table = Table(
        "new TCP connections per second of processor time (client, path and server together), and as a ratio of those direct to\n"
        "the endpoints, median of the rounds; conntrack follows direct ones, too, save those called untracked"
    )
    most = max(one.through.whole / one.through.wall for each in contenders for one in each.rounds)
    if most < _COUNTED:
        table.title += f"\nsoftirqs are not in it (CONFIG_IRQ_TIME_ACCOUNTING; {most:.0%}): believe the column by the clock alone"
    for each in contenders:
        ratios = [round_.tracked.whole / round_.through.whole for round_ in each.rounds]
        low, middle, high = quantiles(ratios, n=4)
        table.rows.append(
            {
                "proxy": each.proxy,
                "Services": each.size,
                "asked": each.which,
                "per second": round(1 / median(round_.through.whole for round_ in each.rounds)),
                "direct": round(1 / median(round_.tracked.whole for round_ in each.rounds)),
                "of direct": round(middle, 3),
                "quartiles": f"{low:.3f}-{high:.3f}",
                "by the clock": round(median(one.tracked.wall / one.through.wall for one in each.rounds), 3),
                "of direct, untracked": round(median(one.untracked.whole / one.through.whole for one in each.rounds), 3),
                "connect() alone": round(median(one.tracked.opening / one.through.opening for one in each.rounds), 3),
                "rounds": len(each.rounds),
            }
        )
    return table


def _sizes_compared(contenders: Sequence[Contender]) -> Table:
    """How the last Service of the largest number fares beside the only one."""
    table = Table("the last Service of the largest number beside the only one (1.0: no difference)")
    for proxy in dict.fromkeys(each.proxy for each in contenders):
        last = {each.size: each for each in contenders if each.proxy == proxy and each.which == "last"}
        if len(last) > 1:
            rates = [[one.tracked.whole / one.through.whole for one in last[size].rounds] for size in (min(last), max(last))]
            paired = [large / small for small, large in zip(*rates, strict=True)]
            low, middle, high = quantiles(paired, n=4)
            sizes = f"{max(last)} : {min(last)}"
            table.rows.append(
                {"proxy": proxy, "Services": sizes, "ratio": round(middle, 3), "quartiles": f"{low:.3f}-{high:.3f}"}
            )
    return table
