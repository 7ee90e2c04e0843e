"""Parts of the demo: kproxy starts, and connections are spread over the endpoints as each Service wants it."""

from attrs import evolve

from kproxy_core.cli.demo.report import evenly
from kproxy_core.cli.demo.services import CART, MAIL, NODE, SERVICES
from kproxy_core.cli.demo.stage import PATIENCE, Stage
from kproxy_core.cli.demo.traffic import Counts, described
from kproxy_core.testing.lab import Answer, Outcome, Question, ask_all, tally

LOST_AFTER = 0.3
"""Seconds to wait for an answer that is not to come."""

AFFINITY_ASKED = 12
"""How often each client asks the sticky Service: 3 pods by chance would give one pod 12 times in a row once in 200,000 times."""


def start(stage: Stage) -> None:
    """Start the daemon and wait until every Service is served in every family."""
    questions = [question for service in SERVICES for question in stage.cluster.questions(service)]
    before = ask_all([evolve(questions[0], timeout=LOST_AFTER)])
    lost = f"no answer within {LOST_AFTER:g} s"
    stage.expect(
        "without kproxy a Service's address leads nowhere", not _answered(before), "an answer" if _answered(before) else lost
    )
    stage.daemon.start()
    took = stage.watch_for(lambda: bool(stage.daemon.status().get("synced")), PATIENCE * 2)
    if took is not None:
        stage.measured["start_seconds"] = took
    silent = [outcome for outcome in ask_all(questions) if not isinstance(outcome, Answer)]
    detail = f"{took:.2f} s after its process was started" if took is not None else f"not within {PATIENCE * 2:g} s"
    if silent:
        detail += f"; {len(silent)} of {len(questions)} clients get no answer ({described(silent[0])})"
    stage.expect("with kproxy every Service answers", took is not None and not silent, detail)


def balance(stage: Stage) -> None:
    """Keep up the load, then look at who got how many connections."""
    for service in SERVICES:
        stage.view.tell(f"{service.name:4}  {service.type:12}  {service.shows}")
    stage.traffic.start()
    stage.keep_going(0.3)
    counts = stage.counts()  # once: the load goes on, and what is said below must agree with the table
    stage.view.rest(stage.final_board(counts))
    _expect_even(stage, counts)
    _expect_no_failures(stage, counts)
    _expect_local(stage, counts[MAIL.name])
    _expect_affinity(stage)


def _expect_even(stage: Stage, counts: dict[str, Counts]) -> None:
    fair: list[str] = []
    unfair: list[str] = []
    for service in SERVICES:
        # A sticky Service is as uneven as its clients are; policy Local leaves out the pods of other nodes.
        if service.sticky:
            continue
        pods = [pod.name for pod in service.pods if pod.node == NODE or not service.local]
        shares = [counts[service.name].by_pod[pod] for pod in pods]
        text = f"{service.name} {' : '.join(map(str, shares))}"
        (fair if evenly(shares) else unfair).append(text)
    stage.expect("every endpoint gets its share", not unfair, ", ".join(unfair or fair))


def _expect_no_failures(stage: Stage, counts: dict[str, Counts]) -> None:
    asked = sum(one.asked for one in counts.values())
    failed = sum(one.failed for one in counts.values())
    families = "IPv4 and IPv6" if len(stage.cluster.lab.families) > 1 else "IPv4"
    detail = f"{asked} connections over {families}, {failed} failed{_why(counts)}"
    stage.expect("every connection is answered", asked > 0 and failed == 0, detail)


def _why(counts: dict[str, Counts]) -> str:
    reasons = [f"{name}: {one.failures[0]}" for name, one in counts.items() if one.failures]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _expect_local(stage: Stage, counts: Counts) -> None:
    """Policy Local: no connection leaves the node, and so the client's address can be kept."""
    elsewhere = sum(counts.by_pod[pod.name] for pod in MAIL.pods if pod.node != NODE)
    answers = [outcome for outcome in ask_all(stage.cluster.questions(MAIL)) if isinstance(outcome, Answer)]
    kept = [answer for answer in answers if not answer.masqueraded]
    detail = f"{elsewhere} connections went to another node; {len(kept)} of {len(answers)} clients were seen by their own address"
    stage.expect("mail's policy Local is kept", elsewhere == 0 and bool(answers) and len(kept) == len(answers), detail)


def _expect_affinity(stage: Stage) -> None:
    clients: dict[tuple[str, str | None], Question] = {
        (question.address, question.source_address): question for question in stage.cluster.questions(CART)
    }
    pods = [set(tally(ask_all([question] * AFFINITY_ASKED))) for question in clients.values()]
    moved = [found for found in pods if len(found) != 1]
    detail = f"{len(clients)} clients asked {AFFINITY_ASKED} times each, {len(moved)} got more than one pod"
    stage.expect("cart's session affinity is kept", not moved, detail)


def _answered(outcomes: tuple[Outcome, ...]) -> bool:
    return all(isinstance(outcome, Answer) for outcome in outcomes)
