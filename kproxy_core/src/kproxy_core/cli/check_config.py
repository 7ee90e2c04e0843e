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
    meant; also whether the mode it names is installed. Exit status 0 when the daemon would run with it, 1 when not.
    """
    from kproxy_core.cli.configured import read_file
    from kproxy_core.cli.installed import check_name
    from kproxy_core.config.load import DEFAULT_MODE
    from kproxy_core.plugin.errors import ConfigError

    loaded = read_file(file)
    mode = loaded.configuration.mode or DEFAULT_MODE
    missing = ""
    try:
        check_name(mode)
    except ConfigError as error:
        missing = str(error)
    good = loaded.usable and not missing
    if as_json:
        problems = [
            {"line": problem.line, "field": problem.field, "message": problem.message, "fatal": problem.fatal}
            for problem in loaded.problems
        ]
        print_json({"file": file, "usable": good, "mode": mode, "mode_problem": missing, "problems": problems})
        context.exit(0 if good else 1)
    for problem in loaded.problems:
        click.secho(f"{file}:{problem.line}: ", bold=True, nl=False)
        click.secho("error: " if problem.fatal else "warning: ", fg="red" if problem.fatal else "yellow", nl=False)
        click.echo(problem.text)
    if missing:
        click.secho(f"{file}: ", bold=True, nl=False)
        click.secho("error: ", fg="red", nl=False)
        click.echo(f"mode: {missing}")
    errors = sum(problem.fatal for problem in loaded.problems) + bool(missing)
    click.echo(f"{file}: {'good' if good else counted(errors, 'error')}, mode {mode}")
    context.exit(0 if good else 1)
