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
@click.option("--strict", is_flag=True, help="End with 1, and print no rules, if anything in the manifests is amiss: for CI.")
@output_options
@click.pass_context
def command(context: click.Context, /, manifests: str, node_addresses: "tuple[Address, ...]", **options: Any) -> None:
    """Print the rules that manifests lead to, in words or the usual notation of the mode. Needs no root and changes nothing.

    What is odd about the manifests goes to standard error. A file that cannot be read ends it with 1; with --strict, so does any
    error or warning about what is in them. With --output json it prints what was decided, before any mode has a say: for each
    Service port its frontends, what happens to connections by where they come from, and its endpoints.
    """
    as_json, strict = options.pop("as_json"), options.pop("strict")
    settings = settings_from(context, with_aliases(context, options))
    _render(settings, manifests, node_addresses, as_json=as_json, strict=strict)


def _render(settings: "Settings", manifests: str, node_addresses: "tuple[Address, ...]", *, as_json: bool, strict: bool) -> None:
    from attrs import evolve

    from kproxy_core.cli.installed import choose_mode
    from kproxy_core.cli.state_document import state_document
    from kproxy_core.plugin.registry import new_plugin_manager
    from kproxy_core.runtime.assembly import program_for
    from kproxy_core.runtime.companions import assemble
    from kproxy_core.sources.manifests import ManifestSource

    settings = evolve(settings, mode=choose_mode(settings.mode, must_work=False))
    modes = assemble(settings, new_plugin_manager())
    for note in modes.notes:
        click.echo(note, err=True)
    backend = modes.backend
    source = ManifestSource(manifests)
    try:
        changes = source.load()
    finally:
        source.close()
    if source.unread:
        raise click.ClickException("cannot read all manifests:\n" + "\n".join(f"  {told}" for told in source.unread))
    state, program = program_for(backend, changes, settings, node_addresses or _this_machines())
    _tell(state.diagnostics)
    if strict:
        _refuse(state.diagnostics, settings)
    if as_json:
        print_json(state_document(state, settings.mode))
    else:
        click.echo(backend.render(program))


def _refuse(diagnostics: "Iterable[Diagnostic]", settings: "Settings") -> None:
    """End with 1 if something in the manifests is amiss; what the options lack for this node is no fault of theirs."""
    from kproxy_core.model.diagnostics import Severity
    from kproxy_core.resolve.node import CONFIGURATION

    of_the_node = (CONFIGURATION, f"Node {settings.node_name}")
    errors = sum(each.severity is Severity.ERROR for each in diagnostics)
    warnings = sum(
        each.severity is Severity.WARNING and (bool(each.place) or each.subject not in of_the_node) for each in diagnostics
    )
    if errors or warnings:
        raise click.ClickException(f"the manifests are not in order (--strict); errors: {errors}, warnings: {warnings}")


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
