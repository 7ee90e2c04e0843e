"""``kproxy cleanup``: removes what is ours from the kernel, mode by mode, and touches nothing else."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import netns_option
from kproxy_core.cli.output import counted, output_options, print_json

if TYPE_CHECKING:
    from kproxy_core.kernel.writer_lock import WriterLock

STOP_TIMEOUT = 15.0
"""Seconds that a daemon is given to end: it finishes the transaction under way, and no more."""


class Cleaned(NamedTuple):
    """What became of one mode: the lines it removed (or would remove), or why it could not."""

    mode: str
    lines: tuple[str, ...] = ()
    error: str = ""


EXAMPLES = (
    ("kproxy cleanup --dry-run", "what would be removed?"),
    ("kproxy cleanup --stop", "stop the daemon that runs here, then remove its rules"),
    ("kproxy cleanup --mode nftables --json", "one mode, for a script"),
)


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--mode", "modes", metavar="MODE", multiple=True, help="Only this mode; may be repeated.  [default: all installed]")
@click.option("--stop", is_flag=True, help="Stop a daemon that runs here first; it would put its rules back.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@netns_option
@output_options
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - the options of the command line
    context: click.Context, modes: tuple[str, ...], stop: bool, dry_run: bool, netns: str | None, as_json: bool
) -> None:
    """Remove everything of kproxy's from the kernel, and nothing else.

    Other software's rules, and connections that are established, stay as they are. Running it again does no harm.
    Exits with 1 while a kproxy runs here (unless --stop), or when something could not be removed.
    """
    from kproxy_core.cli.installed import check_name
    from kproxy_core.kernel.namespaces import entered

    for mode in modes:
        check_name(mode)
    with entered(netns):
        if dry_run:
            stopped, cleaned = None, _clean(modes, dry_run)
        else:
            stopped = _make_room(stop)
            # Held meanwhile, so that no daemon that somebody starts now gets in between.
            with _lock():
                cleaned = _clean(modes, dry_run)
    if as_json:
        print_json(_document(cleaned, stopped, dry_run))
    else:
        _show(cleaned, dry_run)
    context.exit(1 if any(one.error for one in cleaned) else 0)


def _make_room(stop: bool) -> int | None:
    """See to it that no daemon puts the rules back; return the process that was stopped for that, if any."""
    from kproxy_core.kernel import writer_lock
    from kproxy_core.runtime.node_checks import described

    found = writer_lock.holder()
    if found is None:
        return None
    if not stop:
        raise click.ClickException(
            f"{described(found)} runs here and would put its rules back; stop it first, or: kproxy cleanup --stop"
        )
    click.echo(f"asking {described(found)} to stop", err=True)
    writer_lock.ask({"ask": "stop"})
    if not writer_lock.wait_until_free(timeout=STOP_TIMEOUT):
        again = writer_lock.holder()
        who = described(again) if again else described(found)
        raise click.ClickException(f"{who} still runs after {STOP_TIMEOUT:g} s; something may be starting it again: stop that")
    return found.pid


def _lock() -> "WriterLock":
    from kproxy_core.kernel.writer_lock import LockedError, WriterLock

    try:
        return WriterLock()
    except LockedError as error:
        raise click.ClickException(f"{error} again; something has started it: stop that first") from error


def _clean(modes: tuple[str, ...], dry_run: bool) -> list[Cleaned]:
    from kproxy_core.cli.installed import load_installed

    cleaned: list[Cleaned] = []
    for mode in load_installed():
        if modes and mode.name not in modes:
            continue
        if mode.backend is None:
            cleaned.append(Cleaned(mode=mode.name, error=f"the mode does not load: {mode.error}"))
            continue
        try:
            with mode.backend.open() as dataplane:
                found = dataplane.leftovers() if dry_run else dataplane.cleanup()
            cleaned.append(Cleaned(mode=mode.name, lines=found.lines))
        except Exception as error:  # noqa: BLE001 - a stranger's mode may raise anything, and the others go on
            cleaned.append(Cleaned(mode=mode.name, error=str(error) or repr(error)))
    return cleaned


def _document(cleaned: list[Cleaned], stopped: int | None, dry_run: bool) -> dict[str, Any]:
    done = "would_remove" if dry_run else "removed"
    modes = [{"name": one.mode, done: one.lines, "error": one.error} for one in cleaned]
    return {"dry_run": dry_run, "stopped_process": stopped, "modes": modes}


def _show(cleaned: list[Cleaned], dry_run: bool) -> None:
    from kproxy_core.cli.installed import NONE_INSTALLED

    if not cleaned:
        click.echo(NONE_INSTALLED, err=True)
    for one in cleaned:
        name = click.style(one.mode, bold=True)
        if one.error:
            click.echo(f"{one.mode}: {one.error}", err=True)
        elif not one.lines:
            click.echo(f"{name}: nothing there")
        else:
            click.echo(f"{name}: {'would remove' if dry_run else 'removed'} {counted(len(one.lines), 'thing')}")
            for line in one.lines:
                click.echo(f"  {line}")
