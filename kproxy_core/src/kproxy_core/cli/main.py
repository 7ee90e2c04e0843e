"""The command ``kproxy``: finds subcommands, and turns every foreseen failure into one line and an exit status.

Exit statuses: 0 good; 1 failed, or what was asked about is not as it should be; 2 wrong usage; 130 ended by Ctrl-C.
"""

import sys
from importlib import import_module
from typing import Any

import click

from kproxy_core.cli.examples import write_examples
from kproxy_core.cli.output import wants_colour

COMMANDS = ("run", "demo", "check-config", "modes", "probe", "render", "refused", "cleanup", "selftest", "new-mode")
INTERRUPTED = 130

EXAMPLES = (
    ("kproxy demo", "see it work, on this machine, without a cluster"),
    ("kproxy probe", "what does this node lack?"),
    ("kproxy run --source manifests:/etc/kproxy/manifests --mode nftables", "the daemon"),
)


class Commands(click.Group):
    """The subcommands, each imported when it is needed and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kproxy_core.cli.{cmd_name.replace('-', '_')}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; what it fails with is told in a line, unless nobody foresaw it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise _told(error) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below everything else."""
        del ctx
        write_examples(EXAMPLES, formatter)


class Told(click.ClickException):
    """A failure in one line."""


class ToldMisuse(Told):
    """The same, when the user has to write something else."""

    exit_code = 2


def _told(error: Exception) -> Exception:
    from kproxy_core.cli.failures import is_misuse, one_line

    line = one_line(error)
    if line is None:
        return error
    return ToldMisuse(line) if is_misuse(error) else Told(line)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="kproxy-core", prog_name="kproxy", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """A service proxy for Kubernetes nodes.

    It makes the Linux kernel send each connection for a Service address to a good endpoint.
    """
    context.color = None if wants_colour() else False


if __name__ == "__main__":
    main(prog_name="kproxy")
