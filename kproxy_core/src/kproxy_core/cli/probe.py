"""``kproxy probe``: what this node lacks, for every mode and for a certain one, and what to do about it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import netns_option
from kproxy_core.cli.output import output_options, print_json

if TYPE_CHECKING:
    from kproxy_core.cli.installed import InstalledMode
    from kproxy_core.plugin.backend import Finding, Support


EXAMPLES = (
    ("kproxy probe", ""),
    ("kproxy probe nftables --json", "one mode, for a script"),
    ("kproxy probe --netns /run/netns/node1", "another network namespace"),
)


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("mode", required=False, default="")
@netns_option
@output_options
@click.pass_context
def command(context: click.Context, mode: str, netns: str | None, as_json: bool) -> None:
    """Say what this node lacks and what to do about it, for MODE or for each installed mode.

    Tries what is needed and leaves nothing behind. Exits with 1 when MODE cannot run here; without MODE, when no mode can.
    """
    from kproxy_core.cli.installed import NONE_INSTALLED, check_name, load_installed, probe_installed
    from kproxy_core.kernel.namespaces import entered
    from kproxy_core.runtime.node_checks import check_node

    if mode:
        check_name(mode)
    with entered(netns):
        node = check_node()
        probed = [(found, probe_installed(found)) for found in load_installed() if mode in ("", found.name)]
    node_usable = all(finding.ok or not finding.fatal for finding in node)
    usable = node_usable and any(support.usable for _, support in probed)
    if as_json:
        print_json(_document(usable, node, probed))
    else:
        _show("the node", node)
        for found, support in probed:
            _show(f"mode {found.name}", support.findings)
        if not probed:
            click.echo(NONE_INSTALLED, err=True)
    context.exit(0 if usable else 1)


def _document(usable: bool, node: Iterable["Finding"], probed: Sequence[tuple["InstalledMode", "Support"]]) -> dict[str, Any]:
    from kproxy_core.cli.findings import finding_document

    modes = [
        {"name": found.name, "usable": support.usable, "findings": [finding_document(finding) for finding in support.findings]}
        for found, support in probed
    ]
    return {"usable": usable, "node": [finding_document(finding) for finding in node], "modes": modes}


def _show(title: str, findings: Iterable["Finding"]) -> None:
    from kproxy_core.cli.findings import finding_lines

    click.echo(click.style(title, bold=True))
    for line in finding_lines(findings):
        click.echo(line)
