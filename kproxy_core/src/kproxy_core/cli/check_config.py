"""``kproxy check-config``: tells whether a configuration file is right."""

import click

from kproxy_core.cli.examples import Command
from kproxy_core.cli.output import counted, output_options, print_json

EXAMPLES = (
    ("kproxy check-config /var/lib/kube-proxy/config.conf", "everything that is wrong, with lines"),
    ("kproxy check-config kube-proxy.yaml --json", "the same, for a program"),
)


@click.command("check-config", cls=Command, examples=EXAMPLES)
@click.argument("file", metavar="FILE")
@output_options
@click.pass_context
def command(context: click.Context, file: str, as_json: bool) -> None:
    """Check a KubeProxyConfiguration (v1alpha1), kube-proxy's own file.

    Tells every unknown field, wrong value and field given twice at once, with its line, what is expected and what was probably
    meant; also whether the mode it names is installed. FILE may be - for standard input. Exit status 0 when the daemon would run
    with it, 1 when not.
    """
    from kproxy_core.cli.configured import read_file
    from kproxy_core.config.load import DEFAULT_MODE

    loaded = read_file(file)
    mode = loaded.configuration.mode or DEFAULT_MODE
    if as_json:
        problems = [
            {"line": problem.line, "field": problem.field, "message": problem.message, "fatal": problem.fatal}
            for problem in loaded.problems
        ]
        print_json({"file": file, "usable": loaded.usable, "mode": mode, "problems": problems})
    else:
        for problem in loaded.problems:
            click.secho(f"{file}:{problem.line}: ", bold=True, nl=False)
            click.secho("error: " if problem.fatal else "warning: ", fg="red" if problem.fatal else "yellow", nl=False)
            click.echo(problem.text)
        errors = sum(problem.fatal for problem in loaded.problems)
        click.echo(f"{file}: good, mode {mode}" if loaded.usable else f"{file}: {counted(errors, 'error')}")
    context.exit(0 if loaded.usable else 1)
