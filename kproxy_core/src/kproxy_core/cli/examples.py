"""Commands whose help ends with examples."""

from collections.abc import Sequence
from typing import Any

import click

Examples = Sequence[tuple[str, str]]
"""Pairs of a command line and what it does; the latter may be empty."""


class Command(click.Command):
    """A command with examples."""

    def __init__(self, *args: Any, examples: Examples = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below everything else."""
        del ctx
        write_examples(self.examples, formatter)


def write_examples(examples: Examples, formatter: click.HelpFormatter) -> None:
    """Write a section of examples: a line each, never wrapped, so that they can be copied."""
    with formatter.section("Examples"):
        for line, meaning in examples:
            if meaning:
                formatter.write(f"{'':{formatter.current_indent}}# {meaning}\n")
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
