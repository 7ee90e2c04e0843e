"""``kproxy modes``: which modes are installed, whether they load and work here, and what each can do."""

from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.output import output_options, print_json

if TYPE_CHECKING:
    from kproxy_core.cli.installed import InstalledMode


EXAMPLES = (
    ("kproxy modes", ""),
    ("kproxy modes --json | jq -r '.modes[] | select(.usable) | .name'", "the names of those that work here"),
)


@click.command(cls=Command, examples=EXAMPLES)
@output_options
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the installed modes and what each can do.

    A mode is a distribution of its own. A broken one is listed with its error and keeps no other from working.
    Exits with 1 when none is installed.
    """
    from kproxy_core.cli.installed import NONE_INSTALLED, load_installed

    documents = [_document(mode) for mode in load_installed()]
    if as_json:
        print_json({"modes": documents})
    else:
        for document in documents:
            _show(document)
    if not documents:
        click.echo(NONE_INSTALLED, err=True)
        context.exit(1)


def _document(mode: "InstalledMode") -> dict[str, Any]:
    from kproxy_core.cli.findings import finding_document
    from kproxy_core.cli.installed import probe

    document: dict[str, Any] = {
        "name": mode.name,
        "distribution": mode.distribution,
        "version": mode.version,
        "module": mode.module,
        "loads": mode.backend is not None,
        "error": mode.error,
        "usable": False,
        "capabilities": {},
        "findings": [],
    }
    if mode.backend is not None:
        support = probe(mode.backend)
        names = sorted(mode.backend.capabilities, key=lambda capability: capability.name)
        document["usable"] = support.usable
        document["capabilities"] = {capability.name.lower(): capability.value for capability in names}
        document["findings"] = [finding_document(finding) for finding in support.findings]
    return document


def _show(document: dict[str, Any]) -> None:
    name = click.style(document["name"], bold=True)
    click.echo(f"{name}  ({document['distribution']} {document['version']})")
    if not document["loads"]:
        click.echo(f"  {click.style('does not load', fg='red')}: {document['error']}")
        return
    if document["usable"]:
        click.echo(f"  {click.style('works here', fg='green')}")
    else:
        click.echo(f"  {click.style('does not work here', fg='red')}; kproxy probe {document['name']} says why, and what to do")
    for sentence in document["capabilities"].values():
        click.echo(f"  - {sentence}")
