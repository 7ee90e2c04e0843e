"""``kproxy refused``: the last texts that a program refused, which modes keep on disk, with what was said against each."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.output import output_options, print_json

if TYPE_CHECKING:
    from kproxy_core.kernel.failed_texts import FailedText

EXAMPLES = (
    ("kproxy refused", "what was refused of late, and why?"),
    ("kproxy refused --show 1", "the whole of the newest text"),
)


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--show", type=click.IntRange(min=1), metavar="N", help="Print the whole text of number N; the newest is 1.")
@output_options
@click.pass_context
def command(context: click.Context, show: int | None, as_json: bool) -> None:
    """List the last texts that programs such as iptables-restore refused, the newest first.

    Each mode that feeds text to a program keeps the last five. Exits with 1 when there is no text of number N.
    """
    from kproxy_core.kernel.failed_texts import failed_texts

    found = failed_texts()
    if show is not None:
        if show > len(found):
            click.echo(f"there are {len(found)} texts" if found else "nothing was refused", err=True)
            context.exit(1)
        click.echo(found[show - 1].path.read_text(errors="replace"), nl=False)
    elif as_json:
        print_json({"refused": [_document(text) for text in found]})
    else:
        for number, text in enumerate(found, 1):
            click.echo(f"{number}. {click.style(text.mode, bold=True)}, {_when(text)}: {text.reason}")
            click.echo(f"   {text.path}")
        if not found:
            click.echo("nothing was refused")


def _when(text: "FailedText") -> str:
    return datetime.fromtimestamp(text.at).astimezone().isoformat(sep=" ", timespec="seconds")


def _document(text: "FailedText") -> dict[str, Any]:
    return {"mode": text.mode, "at": _when(text), "reason": text.reason, "path": str(text.path)}
