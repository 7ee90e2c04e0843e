"""How the demo is shown: what a view has to do, the board of counts that it shows, and the view for everything but a terminal."""

import time
from collections.abc import Sequence
from typing import Protocol

import click
from attrs import frozen

BAR = 24
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


@frozen(kw_only=True)
class BoardEndpoint:
    """A pod of a Service, how many connections it got, and its share of them (0 to 1). ``note`` is what is special about it."""

    pod: str
    node: str
    connections: int
    share: float
    note: str = ""


@frozen(kw_only=True)
class BoardService:
    """A Service and its pods. ``paused`` is why nobody asks it now, or empty."""

    name: str
    kind: str
    frontends: tuple[str, str]
    asked: int
    failed: int
    endpoints: tuple[BoardEndpoint, ...]
    paused: str = ""


Board = Sequence[BoardService]


@frozen(kw_only=True)
class Part:
    """A part of the demo: its number, what it is called, and in a sentence what it is about."""

    number: int
    total: int
    title: str
    about: str


class View(Protocol):
    """Shows the demo to somebody. Called from one thread."""

    def begin(self, part: Part) -> None:
        """A part begins."""
        ...

    def tell(self, text: str, ok: bool | None = None) -> None:
        """Say something that stays: a result if ``ok`` is given."""
        ...

    def show(self, board: Board) -> None:
        """Show counts; those shown before are out of date."""
        ...

    def rest(self, board: Board) -> None:
        """Show counts that are final for this part."""
        ...

    def close(self) -> None:
        """Nothing more will be shown."""
        ...


class LinesView:
    """Lines, one after another: for pipes, files, scripts and simple terminals."""

    def __init__(self, to_stderr: bool, colour: bool) -> None:
        self._err = to_stderr
        self._colour = None if colour else False
        self._started = time.monotonic()

    def begin(self, part: Part) -> None:
        """A heading and the sentence."""
        elapsed = f"[{time.monotonic() - self._started:4.1f} s]"
        self._line(f"\n{elapsed} {click.style(f'{part.number}/{part.total} {part.title}', bold=True)}")
        self._line(f"         {part.about}")

    def tell(self, text: str, ok: bool | None = None) -> None:
        """A line with a mark."""
        self._line(f"  {mark(ok)} {text}")

    def show(self, board: Board) -> None:
        """Nothing: there would be ten of these a second."""

    def rest(self, board: Board) -> None:
        """Each Service and its pods, with bars."""
        for service in board:
            failed = f", {service.failed} failed" if service.failed else ""
            self._line(f"  {click.style(service.name, bold=True)} {service.kind} {' '.join(service.frontends)}")
            self._line(f"      {service.asked} connections{failed}")
            for endpoint in service.endpoints:
                note = f"  {endpoint.note}" if endpoint.note else ""
                counted = f"{endpoint.connections:5} {bar(endpoint.share):{BAR}} {endpoint.share:4.0%}"
                self._line(f"      {endpoint.pod:8} {endpoint.node:6} {counted}{note}")

    def close(self) -> None:
        """Nothing is kept open."""

    def _line(self, text: str) -> None:
        click.echo(text, err=self._err, color=self._colour)


def mark(ok: bool | None) -> str:
    """A coloured mark: a result that is good, one that is not, or just something to know."""
    if ok is None:
        return click.style("·", dim=True)
    return click.style("✓", fg="green") if ok else click.style("✗", fg="red", bold=True)


def bar(share: float, width: int = BAR) -> str:
    """A bar for a share from 0 to 1, in eighths of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
