"""``kproxy demo``: a small cluster on this machine, real connections, and what must hold while Services change."""

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.options import mode_option

EXAMPLES = (
    ("kproxy demo", ""),
    ("kproxy demo --seconds 60", "slowly, to watch"),
    ("kproxy demo --json", "for a script: exits with 0 only if everything held"),
    ("kproxy demo --stay", "keep the cluster, and be told how to look around in it"),
)


@click.command(cls=Command, examples=EXAMPLES)
@mode_option
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on standard output at the end; progress goes to standard error."
)
@click.option("--stay", is_flag=True, help="Keep the cluster until Ctrl-C, and say how to enter it.")
@click.option(
    "--seconds",
    type=click.IntRange(4, 600),
    default=10,
    show_default=True,
    help="About how long to keep up the load, over all parts of the demo.",
)
@click.option("--no-color", is_flag=True, help="No colours, as when NO_COLOR is set.")
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - the options of the command line
    context: click.Context, /, mode: str, as_json: bool, stay: bool, seconds: int, no_color: bool
) -> None:
    """See kproxy balance real connections, on this machine, without a cluster.

    It builds a small cluster out of network namespaces (a node, a second node, pods on both, a client outside; IPv4 and IPv6),
    runs kproxy in the node on a few Services, and sends connections through the kernel while Services change. Nothing of this
    machine's own network is touched, and nothing is left behind.

    Works as root, or without root where unprivileged user namespaces are allowed. Takes less than half a minute. Exits with 0
    only if everything went as it should.
    """
    from kproxy_core.cli.demo.show import Wishes, show
    from kproxy_core.cli.options import with_aliases
    from kproxy_core.cli.privilege import become_able

    given = with_aliases(context, {"mode": mode})
    become_able("the demo")
    if no_color:
        context.color = False
    wishes = Wishes(mode=given["mode"], as_json=as_json, stay=stay, seconds=seconds, colour=context.color is not False)
    context.exit(show(wishes))
