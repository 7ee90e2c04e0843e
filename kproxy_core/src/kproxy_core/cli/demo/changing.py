"""Parts of the demo in which the cluster changes under load: pods are replaced, kproxy is killed, Services lose all endpoints."""

import contextlib
import time
from collections.abc import Iterable

from attrs import evolve

from kproxy_core.cli.demo.services import API, CART, DNS, SERVICES, WEB, DemoPod, DemoService
from kproxy_core.cli.demo.stage import Stage
from kproxy_core.cli.demo.traffic import Counts, sum_of
from kproxy_core.kernel.conntrack import ConntrackSocket
from kproxy_core.model.addresses import parse_address
from kproxy_core.testing.lab import Answer, HeldConnection, NotConnectedError, Question, Refused, ask_all, hold
from kproxy_core.wire.nfnetlink import Family

QUIET = 0.3
"""Seconds without a connection, at the rate of the demo, that show that a pod gets no more."""

HOLD_ATTEMPTS = 40
"""Attempts to get a connection to a certain pod: that none of so many leads to one of three pods happens once in ten millions."""

PATIENT = 3.0
"""Seconds that an open connection is given to answer."""

OUTAGE_ASKED = 10
"""Rounds of connections to Services without endpoints."""


def rolling_update(stage: Stage) -> None:
    """Replace every pod of ``web``, one after another, as a Deployment does."""
    before, since = stage.counts(), time.monotonic()
    replaced, kept, latencies = 0, 0, []
    for number, old in enumerate(WEB.pods, start=len(WEB.pods) + 1):
        held = _hold(stage, WEB, old.name)
        new = evolve(old, name=f"web-{number}")
        took = _replace(stage, old, new)
        if took is not None:
            stage.view.tell(f"{old.name} is replaced by {new.name}, which got its first connection after {took * 1000:.0f} ms")
        with contextlib.closing(held) if held else contextlib.nullcontext():
            kept += held is not None and held.alive(PATIENT)
        _remove(stage, old)
        replaced += took is not None
        latencies += [] if took is None else [took]
        stage.keep_going(0.3 / len(WEB.pods))
    web = stage.counts()[WEB.name].since(before[WEB.name])
    if latencies:
        stage.measured["new_endpoint_used_after_seconds"] = sorted(latencies)[len(latencies) // 2]
    rate = web.asked / (time.monotonic() - since)
    told = f"{replaced} of {len(WEB.pods)}, with {rate:.0f} connections a second going on"
    stage.expect("every pod of web is replaced", replaced == len(WEB.pods), told)
    stage.expect("failed connections in the rolling update", _none_failed(web), _failed(web))
    detail = f"{kept} of {len(WEB.pods)} were alive when their pod had left the Service"
    stage.expect("open connections to a leaving pod go on", kept == len(WEB.pods), detail)
    _expect_undisturbed(stage, before, [service for service in SERVICES if service is not WEB], "rolling update")


def _replace(stage: Stage, old: DemoPod, new: DemoPod) -> float | None:
    """Start the new pod, then let the old one leave.

    Returns the seconds until the new one was used, None when it was not, or the old one went on getting connections.
    """
    cluster = stage.cluster
    cluster.start_pod(WEB, new)
    others = [endpoint for endpoint in cluster.endpoints[WEB.name] if endpoint.pod != old.name]
    arrived = [*others, cluster.endpoint(new)]
    cluster.publish(WEB, [cluster.endpoint(old), *arrived])
    took = stage.watch_for(lambda: stage.traffic.counts(WEB.name).by_pod[new.name] > 0)
    cluster.publish(WEB, [cluster.endpoint(old, terminating=True), *arrived])
    return took if _wait_until_quiet(stage, old) else None


def _wait_until_quiet(stage: Stage, pod: DemoPod) -> bool:
    """Wait until a pod has got no connection for a while; return whether it came to that."""
    count, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal count, since
        now = stage.traffic.counts(WEB.name).by_pod[pod.name]
        if now != count:
            count, since = now, time.monotonic()
        return time.monotonic() - since >= QUIET

    return stage.watch_for(is_quiet) is not None


def _remove(stage: Stage, pod: DemoPod) -> None:
    cluster = stage.cluster
    cluster.publish(WEB, [endpoint for endpoint in cluster.endpoints[WEB.name] if endpoint.pod != pod.name])
    cluster.lab.remove_pod(pod.name)


def _hold(stage: Stage, service: DemoService, pod: str = "") -> HeldConnection | None:
    """Open a connection to a Service and keep it, to a certain pod if one is named; None when that does not succeed."""
    question = stage.cluster.questions(service)[0]
    for _ in range(HOLD_ATTEMPTS):
        try:
            held = hold(question.host, question.address, question.port, timeout=PATIENT, source_address=question.source_address)
        except NotConnectedError:
            continue
        if pod in ("", held.server):
            return held
        held.close()
    return None


def kill(stage: Stage) -> None:
    """Kill the daemon while connections are made, and start it again."""
    before = stage.counts()
    held = _hold(stage, CART)
    stage.daemon.kill()
    stage.view.tell("kproxy has been killed (SIGKILL); the kernel goes on by itself")
    stage.keep_going(0.12)
    alone = sum(one.since(before[name]).answered for name, one in stage.counts().items())
    stage.daemon.start()
    took = stage.watch_for(lambda: bool(stage.daemon.status().get("synced")))
    again = stage.daemon.status().get("last_sync") or {}
    stage.keep_going(0.08)
    if took is not None:
        changed = again.get("operations", "?")
        stage.view.tell(f"kproxy is back after {took:.2f} s; it read what is in the kernel, and had to change {changed} things")
    total = sum_of(one.since(before[name]) for name, one in stage.counts().items())
    detail = f"{_failed(total)}; {alone} were answered while it was dead"
    stage.expect("failed connections while kproxy is killed and started again", _none_failed(total) and alone > 0, detail)
    with contextlib.closing(held) if held else contextlib.nullcontext():
        alive = held is not None and held.alive(PATIENT)
    stage.expect("a connection that was open before the kill", alive, "goes on" if alive else "is broken")


def outage(stage: Stage) -> None:
    """Take all endpoints away from two Services, one of TCP and one of UDP, and give them back."""
    lost = (API, DNS)
    before, endpoints = stage.counts(), dict(stage.cluster.endpoints)
    stage.traffic.pause(*(service.name for service in lost))
    stage.paused = {service.name: "refused" for service in lost}
    asked = [question for service in lost for question in stage.cluster.questions(service)]
    for service in lost:
        stage.cluster.publish(service, ())
    took = stage.watch_for(lambda: _refused(asked) == len(asked))
    if took is not None:
        stage.measured["refused_after_seconds"] = took
    # Stale UDP flows are deleted beside the sync, a moment later; a client that uses an old port again would still meet one.
    stage.watch_for(lambda: not _flows_to_endpoints(stage, DNS))
    since = time.monotonic()
    refused = _refused(asked * OUTAGE_ASKED)
    spent = time.monotonic() - since
    total = len(asked) * OUTAGE_ASKED
    detail = f"{refused} of {total} TCP connections and UDP questions were refused, in {spent * 1000:.0f} ms"
    stage.expect("without endpoints clients are refused at once", refused == total, detail)
    stage.keep_going(0.1)
    for service in lost:
        stage.cluster.publish(service, endpoints[service.name])
    back = stage.watch_for(lambda: all(isinstance(outcome, Answer) for outcome in ask_all(asked)))
    if back is not None:
        stage.measured["served_again_after_seconds"] = back
    stage.paused = {}
    stage.traffic.start()
    stage.keep_going(0.1)
    detail = f"{back * 1000:.0f} ms after their manifests said so" if back is not None else "no answer"
    stage.expect("with endpoints again they are served", back is not None, detail)
    _expect_undisturbed(stage, before, SERVICES, "outage")


def _flows_to_endpoints(stage: Stage, service: DemoService) -> int:
    """Count the UDP flows on the node that still lead from a Service's cluster address to some endpoint."""
    count = 0
    with ConntrackSocket(namespace=stage.cluster.lab.node.namespace.descriptor) as conntrack:
        for family, text in ((Family.IPV4, service.cluster.ipv4), (Family.IPV6, service.cluster.ipv6)):
            address = parse_address(text)
            flows = conntrack.flows(family)
            count += sum(flow.original.destination == address != flow.reply.source for flow in flows)
    return count


def _refused(questions: list[Question]) -> int:
    return sum(isinstance(outcome, Refused) and outcome.at_once for outcome in ask_all(questions))


def _expect_undisturbed(stage: Stage, before: dict[str, Counts], services: Iterable[DemoService], what: str) -> None:
    """Nothing else may have failed meanwhile. A Service without endpoints was not asked by the load."""
    now = stage.counts()
    total = sum_of(now[service.name].since(before[service.name]) for service in services)
    stage.expect(f"failed connections of the others in the {what}", _none_failed(total), _failed(total))


def _none_failed(counts: Counts) -> bool:
    return counts.asked > 0 and counts.failed == 0


def _failed(counts: Counts) -> str:
    why = f" ({counts.failures[0]})" if counts.failed and counts.failures else ""
    return f"{counts.failed} of {counts.asked}{why}"
