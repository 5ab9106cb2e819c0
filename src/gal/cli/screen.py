"""How commands print: sentences, tables, progress, JSON; control characters of names are escaped."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import markup
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from gal.errors import printable

if TYPE_CHECKING:  # a command that prints no report needs no NumPy
    from gal.evaluate.reporting.facts import Cells

EVERY = 10.0
"""Seconds between two lines about progress where standard error is no terminal."""
EARLY = 3.0
"""Seconds before the remaining time is estimated."""
WIDEST = 10_000
"""Characters of a line in a pipe or a file."""


class Screen(Console):
    """Everything that commands print for people goes through it.

    In a terminal lines break between words, in a pipe nowhere. Control characters are escaped, also where a
    command forgot to.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False)
        if not self.is_terminal:
            self.width = WIDEST

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The rendering of rich, with control characters escaped."""
        for one in super().render(renderable, options):
            text = "\n".join(map(printable, one.text.split("\n")))
            yield one if one.control else Segment(text, one.style)


def escape(text: str) -> str:
    """Text within rich's markup: nothing in it is markup, a control character or the end of a line."""
    return markup.escape(printable(text))


def print_facts(facts: Any, as_json: bool, show: Callable[[Screen], None]) -> None:
    """The result of a command: JSON for machines, or what ``show`` prints for people."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        show(Screen())


def print_table(table: Table, out: Console) -> None:
    """Print a table in which nothing is cut; its title is a sentence above it.

    Where a terminal is too narrow for its longest words, every row becomes a block of lines.
    """
    if table.title:
        out.print(f"[italic]{table.title}[/]")
        table.title = None
    for column in table.columns:
        column.overflow = "fold"
    needed = Measurement.get(out, out.options.update_width(WIDEST), table).minimum
    if not out.is_terminal or needed <= out.width:
        out.print(table)
        return
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, row, strict=True):
            if cell:
                out.print(f"[bold]{column.header}[/] {cell}", soft_wrap=True)
        out.print()


def print_rows(header: Sequence[str], rows: Iterable[Sequence[str]], out: Console) -> None:
    """A table of plain text."""
    table = Table(*map(escape, header))
    for row in rows:
        table.add_row(*map(escape, row))
    print_table(table, out)


def print_parts(parts: Sequence[str | Cells], out: Console) -> None:
    """Sentences and tables of a report, without bars."""
    for part in parts:
        if isinstance(part, str):
            out.print(escape(part))
        else:
            print_rows(part.header, part.rows, out)


def command_line(*words: str, home: Path | None = None, lasting: bool = False) -> str:
    """A command as it must be typed from here; ``home`` only where the node is not found by itself.

    ``lasting``: also when there are more nodes in this folder.
    """
    found = home is None or (_is_found(home) and not (lasting and home.absolute().parent == Path.cwd()))
    given = [] if home is None or found else ["--home", _shown(home)]
    return " ".join(shlex.quote(word) for word in [*words, *given])


def _is_found(home: Path) -> bool:
    from gal.errors import GALError
    from gal.node.config.configuration import home_of

    try:
        return home_of() == home.absolute()
    except GALError:
        return False


def _shown(path: Path) -> str:
    """Relative to the current folder where it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class ProgressLine:
    """A spinner in a terminal; elsewhere a line on standard error now and then."""

    def __init__(
        self, step: str = "starting", *, quiet: bool = False, every: float = EVERY, early: float = EARLY
    ) -> None:
        self._console = Screen(stderr=True)
        self._shown, self._every, self._early = not quiet, every, early
        self._live = self._shown and self._console.is_terminal
        self._status = self._console.status(step, spinner="dots")
        self._started = self._printed = time.monotonic()

    def __enter__(self) -> ProgressLine:
        if self._live:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._status.stop()

    def __call__(self, step: str, share: float | None = None) -> None:
        """Show the current step and, from the ``share`` of the work that is done, the remaining time."""
        gone = time.monotonic() - self._started
        line = escape(step)
        if share and gone >= self._early:
            line += f" ({span(gone)} so far, about {span(gone * (1 - share) / share)} left)"
        if self._live:
            self._status.update(line)
        elif self._shown and time.monotonic() - self._printed >= self._every:
            self._printed = time.monotonic()
            self._console.print(line)

    def above(self, show: Callable[[], None]) -> None:
        """Print something else above the line."""
        self.__exit__()
        show()
        self.__enter__()


def span(seconds: float) -> str:
    """A time for people: 8 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
