"""The view for a terminal: what has been found out scrolls by, the counts stay below and are kept up to date."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kproxy_core.cli.demo.view import Board, BoardEndpoint, BoardService, Part, bar

_REFRESHES = 10
_OTHER_COLUMNS = 62
"""What the columns beside the shares take, blanks between them included."""
_NOTE = 13
"""What the percentage and a note behind a bar take."""
_INDENT = 5
"""Where text begins, behind a mark or below a heading."""
_NARROWEST, _WIDEST = 5, 28


class LiveView:
    """A table in place, with the console above it."""

    def __init__(self, colour: bool) -> None:
        self._console = Console(no_color=not colour or None, highlight=False)
        self._started = time.monotonic()
        self._part: Part | None = None
        self._board: Board = ()
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=_REFRESHES,
            transient=True,
            redirect_stderr=False,
        )
        self._live.start()

    def begin(self, part: Part) -> None:
        """Print the heading; the table goes on."""
        self._part = part
        self._console.print()
        self._console.print(Text.assemble((f"{part.number}/{part.total}  {part.title}", "bold cyan")))
        self._print_indented(Text(" " * _INDENT), Text(part.about, style="dim"))

    def tell(self, text: str, ok: bool | None = None) -> None:
        """Print a line above the table."""
        sign, style = ("·", "dim") if ok is None else ("✓", "green") if ok else ("✗", "bold red")
        self._print_indented(Text.assemble("  ", (sign, style), "  "), Text(text))

    def show(self, board: Board) -> None:
        """Show it at the next refresh."""
        self._board = tuple(board)

    def rest(self, board: Board) -> None:
        """Print it, so that it stays."""
        self._board = ()
        self._live.refresh()
        self._console.print(_table(board, self._console.width))

    def close(self) -> None:
        """Take the table away and give the terminal back."""
        self._live.stop()

    def _print_indented(self, start: Text, text: Text) -> None:
        """Print text whose further lines, in a terminal too narrow for one, begin where the first one does."""
        lines = text.wrap(self._console, max(_INDENT, self._console.width - _INDENT))
        self._console.print(Text.assemble(start, Text("\n" + " " * _INDENT).join(lines)))

    def _render(self) -> Group:
        if not self._board:
            return Group()
        asked = sum(service.asked for service in self._board)
        failed = sum(service.failed for service in self._board)
        elapsed = time.monotonic() - self._started
        foot = Text.assemble(
            f"  {asked} connections, ",
            (f"{failed} failed", "bold red" if failed else "green"),
            f", {elapsed:.1f} s",
            style="bold",
        )
        return Group(Rule(style="dim"), _table(self._board, self._console.width), foot)


def _table(board: Board, width: int) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    table.add_column("Service", no_wrap=True)
    table.add_column("Frontends", no_wrap=True)
    table.add_column("Pod", no_wrap=True, min_width=6)
    table.add_column("Node", no_wrap=True, min_width=5, style="dim")
    table.add_column("Count", no_wrap=True, min_width=5, justify="right")
    table.add_column("Share", no_wrap=True)
    room = max(_NARROWEST, min(_WIDEST, width - _OTHER_COLUMNS - _NOTE))
    for service in board:
        _add_service(table, service, room)
    return table


def _add_service(table: Table, service: BoardService, room: int) -> None:
    kind, protocol = service.kind.split()
    own = (
        (Text.assemble((service.name, "bold"), " ", (protocol, "dim")), Text(service.frontends[0])),
        (Text(kind, style="dim"), Text(service.frontends[1])),
    )
    for index in range(max(len(service.endpoints), len(own))):
        name, frontend = own[index] if index < len(own) else (Text(), Text())
        if index < len(service.endpoints):
            table.add_row(name, frontend, *_endpoint_cells(service.endpoints[index], room))
        else:
            table.add_row(name, frontend, "", "", "", Text(service.paused if index == 0 else "", style="bold yellow"))


def _endpoint_cells(endpoint: BoardEndpoint, room: int) -> tuple[Text, Text, Text, Text]:
    colour = "yellow" if endpoint.note else "green"
    if endpoint.note and not endpoint.connections:
        shown = Text(endpoint.note, style=colour)
    else:
        note = f" {endpoint.note}" if endpoint.note else ""
        shown = Text.assemble((f"{bar(endpoint.share, room):{room}}", colour), f" {endpoint.share:4.0%}", (note, colour))
    return Text(endpoint.pod), Text(endpoint.node), Text(str(endpoint.connections)), shown
