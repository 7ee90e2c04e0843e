"""The reference of commands and the command agree: each names every subcommand and option that the other has."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from kproxy_core.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
COMMON = {"--help", "--version"}


def described() -> dict[str, set[str]]:
    """The options of each subcommand in the reference, by its heading."""
    sections = re.split(r"^## kproxy ([\w-]+)$", PAGE, flags=re.MULTILINE)[1:]
    return {name: set(re.findall(r"`(--[\w-]+)", text)) for name, text in zip(sections[::2], sections[1::2], strict=True)}


def commands() -> Iterator[tuple[str, click.Command]]:
    """The subcommands that users see."""
    assert isinstance(main, click.Group)
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def options(command: click.Command) -> set[str]:
    """The long options of a subcommand."""
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden]
    return {name for option in found for name in [*option.opts, *option.secondary_opts] if name.startswith("--")} - COMMON


def test_the_reference_names_every_subcommand_and_option() -> None:
    assert {name: options(command) for name, command in commands()} == {
        name: found - COMMON for name, found in described().items()
    }


def test_the_readme_names_every_subcommand() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert set(re.findall(r"^\| `kproxy ([\w-]+)", readme, re.MULTILINE)) == {name for name, _ in commands()}
