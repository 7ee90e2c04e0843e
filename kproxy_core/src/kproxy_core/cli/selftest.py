"""``kproxy selftest``: the conformance kit's scenarios on an installed mode, or on any other proxy, as a table."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import mode_option
from kproxy_core.cli.output import counted, output_options, print_json

if TYPE_CHECKING:
    from kproxy_core.testing.conformance.runner import Report
    from kproxy_core.testing.conformance.scenario import Scenario
    from kproxy_core.testing.conformance.subject import Subject

EXAMPLES = (
    ("kproxy selftest", "the best mode here"),
    ("kproxy selftest --mode iptables -k affinity -k S53", "one mode, the scenarios about two things"),
    ("kproxy selftest --against 'kproxy run --config {config}' --mode nftables", "the whole daemon, over an API server"),
    (
        "kproxy selftest --against 'kube-proxy --config {config}' --lacks KPROXY_CORE --lacks TCP_RESET --lacks WEIGHTS",
        "another proxy",
    ),
)
MOST_COMPLAINTS = 6
TESTING = "kproxy-core[testing]"


@click.command(cls=Command, examples=EXAMPLES)
@mode_option
@click.option(
    "--against",
    metavar="COMMAND",
    help="Put another proxy under test: a command with {config} in it, where the path of a KubeProxyConfiguration is to be."
    " --mode is then what that file says; nftables unless given.",
)
@click.option("--lacks", metavar="CAPABILITY", multiple=True, help="Of --against: leave out what needs this. Can be repeated.")
@click.option(
    "-k", "words", metavar="WORD", multiple=True, help="Only scenarios with this in their name or cases. Can be repeated."
)
@click.option(
    "--scenarios",
    "folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run the scenario files of this folder instead of the kit's.",
)
@output_options
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - the options of the command line
    context: click.Context,
    /,
    mode: str,
    against: str | None,
    lacks: tuple[str, ...],
    words: tuple[str, ...],
    folder: Path | None,
    as_json: bool,
) -> None:
    """Prove a mode with real packets, on this machine, without a cluster.

    It builds a small cluster out of network namespaces, tells the mode of Services and endpoints as the kit's scenarios have it,
    sends packets from pods, from the node and from outside, and compares what becomes of each with what the scenario says.
    Nothing of this machine's own network is touched, and nothing is left behind.

    Works as root, or without root where unprivileged user namespaces are allowed. Takes about a minute, with --against several.
    Exits with 0 if nothing was wrong, 1 if something was, 2 if called in a wrong way.
    """
    from kproxy_core.cli.options import with_aliases
    from kproxy_core.cli.privilege import become_able

    mode = with_aliases(context, {"mode": mode})["mode"]
    _check(against, lacks)
    scenarios = _chosen(words, folder)
    become_able("the self-test")
    name, made = _subject(mode, against, lacks)
    with made as subject:
        reports = _run(scenarios, subject)
    if as_json:
        _print_document(name, reports)
    else:
        _show(name, reports)
    context.exit(0 if all(report.ok for report in reports) else 1)


def _check(against: str | None, lacks: Sequence[str]) -> None:
    from kproxy_core.testing.conformance.reader import CAPABILITIES

    if against is not None and "{config}" not in against:
        raise click.BadParameter(
            "there is no {config} in it, where the path of the configuration file is to be", param_hint="--against"
        )
    if lacks and against is None:
        raise click.BadParameter("an installed mode says itself what it can do; this is for --against", param_hint="--lacks")
    for name in lacks:
        if name not in CAPABILITIES:
            raise click.BadParameter(f"{name!r} is unknown (there are: {', '.join(CAPABILITIES)})", param_hint="--lacks")


def _chosen(words: Sequence[str], folder: Path | None) -> list["Scenario"]:
    from kproxy_core.testing.conformance.corpus import corpus, scenarios_in
    from kproxy_core.testing.conformance.reader import ScenarioError

    try:
        found = corpus() if folder is None else scenarios_in(folder)
    except ScenarioError as error:
        raise click.UsageError(str(error)) from error
    chosen = [each for each in found if not words or any(word in each.name or word in each.cases for word in words)]
    if not chosen:
        what = f"has {' or '.join(words)} in its name or cases" if words else f"is in {folder}"
        raise click.UsageError(f"no scenario {what}")
    return chosen


def _subject(mode: str, against: str | None, lacks: Sequence[str]) -> tuple[str, AbstractContextManager["Subject"]]:
    if against is not None:
        try:
            import cryptography  # noqa: F401 - the API server's certificates need it
        except ModuleNotFoundError as error:
            raise click.ClickException(f"--against needs more than is installed: pip install '{TESTING}'") from error
        from kproxy_core.testing.conformance.session import another_proxy

        return against, another_proxy(against, mode or "nftables", lacks)
    from kproxy_core.cli.installed import choose_mode
    from kproxy_core.testing.conformance.session import installed_mode

    chosen = choose_mode(mode)
    return f"mode {chosen}", installed_mode(chosen)


def _run(scenarios: Sequence["Scenario"], subject: "Subject") -> list["Report"]:
    """Run them; on a terminal, say how far it is."""
    from kproxy_core.testing.conformance.session import run_all

    shown = sys.stderr.isatty()
    done = failed = 0

    def tell(report: "Report") -> None:
        nonlocal done, failed
        done += 1
        failed += not report.ok
        if shown:
            wrong = f", {failed} failed" if failed else ""
            click.echo(f"\r\x1b[K{done} of {len(scenarios)}{wrong}: {report.scenario.name}", err=True, nl=False)

    try:
        return run_all(scenarios, subject, tell)
    finally:
        if shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def _print_document(name: str, reports: Sequence["Report"]) -> None:
    from kproxy_core.testing.conformance.tally import document

    print_json({"subject": name, **document(reports)})


def _show(name: str, reports: Sequence["Report"]) -> None:
    from kproxy_core.testing.conformance.tally import GROUPS, Count, rows, table

    for report in reports:
        if not report.ok:
            _show_failure(report)
    click.echo(click.style(name, bold=True))
    protocols = "".join(f"{protocol if family == 'IPv4' else '':7}" for protocol, family in GROUPS)
    click.echo(f"{'':27}{protocols}".rstrip())
    click.echo(f"{'address':14}{'from':13}{''.join(f'{family:7}' for _, family in GROUPS)}".rstrip())
    colours = {"ok": "green", "FAIL": "red", "skip": "yellow"}

    def cell(count: Count) -> str:
        return click.style(count.word, fg=colours.get(count.word)) + " " * (7 - len(count.word))

    before = ""
    for kind, origin, counts in rows(table(reports)):
        click.echo(f"{kind if kind != before else '':14}{origin:13}{''.join(map(cell, counts))}".rstrip())
        before = kind
    _show_sum(reports)


def _show_failure(report: "Report") -> None:
    click.echo(f"{click.style('FAILED', fg='red')} {click.style(report.scenario.name, bold=True)}")
    click.echo(f"  {report.scenario.why}")
    for complaint in report.complaints[:MOST_COMPLAINTS]:
        click.echo("\n".join(f"    {line}" for line in complaint.splitlines()))
    more = len(report.complaints) - MOST_COMPLAINTS
    if more > 0:
        click.echo(f"    and {more} more (--json has all)")
    click.echo()


def _show_sum(reports: Sequence["Report"]) -> None:
    click.echo()
    for report in reports:
        if report.skipped:
            click.echo(f"skipped: {report.scenario.name} {report.skipped}")
    left_out = {(check.protocol, check.skipped) for report in reports for check in report.checks if check.skipped}
    for protocol, why in sorted(left_out):
        click.echo(f"left out: all {protocol}, which {why}")
    failed = sum(not report.ok for report in reports)
    skipped = sum(bool(report.skipped) for report in reports)
    packets = sum(len(report.checks) for report in reports)
    seconds = sum(report.seconds for report in reports)
    told = [f"{len(reports) - failed - skipped} passed", f"{failed} failed", f"{skipped} skipped"]
    click.echo(f"{counted(len(reports), 'scenario')}: {', '.join(told)}; {counted(packets, 'packet')} in {seconds:.0f} s")
