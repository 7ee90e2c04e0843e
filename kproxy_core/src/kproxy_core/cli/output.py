"""Writing results: text for people, one JSON document for programs, colour only where it is wanted."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def wants_colour() -> bool:
    """Whether text may be coloured: not when ``NO_COLOR`` is set to anything, nor when ``TERM`` is ``dumb``.

    That standard output is a terminal is asked by click itself, for each stream.
    """
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def output_options(command: F) -> F:
    """Give a command ``--output`` and its short form ``--json``; both arrive as ``as_json``."""
    long = click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        expose_value=False,
        callback=_remember,
        is_eager=True,
        help="Text for people, or one JSON document on standard output.",
    )
    short = click.option("--json", "as_json", is_flag=True, callback=_either, help="The same as --output json.")
    return long(short(command))


_KEY = "kproxy.output"


def _remember(context: click.Context, parameter: click.Parameter, value: str) -> str:
    del parameter
    context.meta[_KEY] = value
    return value


def _either(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    del parameter
    return value or context.meta.get(_KEY) == "json"


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    import json

    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def counted(number: int, thing: str) -> str:
    """Return ``1 thing`` or ``2 things``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
