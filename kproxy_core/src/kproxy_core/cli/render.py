"""``kproxy render``: the rules that a set of manifests leads to, as text, without touching the kernel."""

from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import mode_option, read_with, settings_from, settings_options, source_option, with_aliases
from kproxy_core.cli.output import output_options, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproxy_core.config.settings import Settings
    from kproxy_core.model.addresses import Address
    from kproxy_core.model.diagnostics import Diagnostic

EXAMPLES = (
    ("kproxy render --source manifests:examples/web --mode nftables", ""),
    ("kubectl get services,endpointslices,nodes -A -o yaml | kproxy render --source - --node-name node-a", "for another node"),
    ("kproxy render --source manifests:web.yaml --json | jq '.service_ports[].endpoints.cluster[].address'", "what was decided"),
)


@click.command(cls=Command, examples=EXAMPLES)
@source_option
@mode_option
@settings_options
@click.option(
    "--node-addresses",
    metavar="ADDRESS[,ADDRESS...]",
    multiple=True,
    callback=read_with("parse_addresses"),
    help="The addresses of the node's interfaces.  [default: this machine's]",
)
@output_options
@click.pass_context
def command(
    context: click.Context, /, manifests: str, as_json: bool, node_addresses: "tuple[Address, ...]", **options: Any
) -> None:
    """Print the rules that manifests lead to, in the usual notation of the mode. Needs no root and changes nothing.

    What is odd about the manifests goes to standard error; a file that cannot be read ends it with 1. With --output json it
    prints what was decided, before any mode has a say: for each Service port its frontends, what happens to connections by where
    they come from, and its endpoints.
    """
    settings = settings_from(context, with_aliases(context, options))
    _render(settings, manifests, node_addresses, as_json)


def _render(settings: "Settings", manifests: str, node_addresses: "tuple[Address, ...]", as_json: bool) -> None:
    from attrs import evolve

    from kproxy_core.cli.installed import choose_mode
    from kproxy_core.cli.state_document import state_document
    from kproxy_core.plugin.registry import load_backend, new_plugin_manager
    from kproxy_core.runtime.assembly import program_for
    from kproxy_core.sources.manifests import ManifestSource

    settings = evolve(settings, mode=choose_mode(settings.mode, must_work=False))
    backend = load_backend(settings.mode, settings, new_plugin_manager())
    source = ManifestSource(manifests)
    try:
        changes = source.load()
    finally:
        source.close()
    state, program = program_for(backend, changes, settings, node_addresses or _this_machines())
    unreadable = [diagnostic for diagnostic in state.diagnostics if _is_about_a_file(diagnostic)]
    if unreadable:
        raise click.ClickException("cannot read all manifests:\n" + "\n".join(f"  {diagnostic}" for diagnostic in unreadable))
    _tell(state.diagnostics)
    if as_json:
        print_json(state_document(state, settings.mode))
    else:
        click.echo(backend.render(program))


def _is_about_a_file(diagnostic: "Diagnostic") -> bool:
    from kproxy_core.model.diagnostics import Severity

    return diagnostic.severity is Severity.ERROR and diagnostic.subject.startswith("file ")


def _this_machines() -> "tuple[Address, ...]":
    from kproxy_core.kernel.addresses import AddressSocket
    from kproxy_core.runtime.addresses import usable

    with AddressSocket() as rtnetlink:
        return usable(rtnetlink.addresses())


def _tell(diagnostics: "Iterable[Diagnostic]") -> None:
    from kproxy_core.model.diagnostics import Severity

    colours = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}
    for diagnostic in diagnostics:
        label = click.style(f"{diagnostic.severity.name.lower()}:", fg=colours[diagnostic.severity])
        click.echo(f"{label} {diagnostic}", err=True)
