"""How commands print: nothing that one must type or compare is cut, in a narrow terminal or in a pipe."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Span, Text

EVERY = 10.0
"""Seconds between two lines about progress where nobody sees a spinner."""
EARLY = 3.0
"""Seconds before which nobody can say how long the rest will take."""


COMMAND = re.compile(r"gal [a-z][a-z-]*(?: (?:[A-Z][A-Z.a-z]*|--?[a-z][\w-]*(?: [\w./]+)?))*")
"""A command within a sentence, as far as its words can be told from the sentence."""
GLUE = "\ue000"
"""Stands for a blank at which no line breaks; no text has it."""

NAMED_HOME: ContextVar[Path | None] = ContextVar("NAMED_HOME", default=None)
"""The folder that ``--home`` of the command names; None: the node was found without it."""
OWN_COMMAND = re.compile(
    r"(?<!there: )(?<!there: \[bold\])\bgal (?:cards [a-z]+|learn|invite|predict|versions|compare|rollback"
    r"|remove|serve|status|join|leave|forget-row|forget|audit|privacy|doctor|backup|restore(?= --head))"
    r"\b(?![-\w])(?!(?:[^.,;:()\n]|\.(?=\S))*--home)"
)
"""A command for the node that is spoken of; for another organization's a sentence says "there: gal join"."""


class Screen(Console):
    """Prints sentences: in a terminal lines break between words, not within a command; in a pipe nowhere."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        """What rich prints; one string by itself as sentences, later lines as far in as the first."""
        if options or len(objects) != 1 or not isinstance(objects[0], str):
            super().print(*objects, **options)
            return
        self._print_lines(as_typed(objects[0]))

    def print_item(self, said: str, indent: int) -> None:
        """A sentence after a mark: in a terminal its later lines are so far in."""
        self._print_lines(as_typed(said), indent)

    def print_of_others(self, said: str) -> None:
        """What another organization says: commands in it are to be typed there, and stay as they are."""
        self._print_lines(said)

    def _print_lines(self, said: str, hanging: int | None = None) -> None:
        for line in sentence_lines(Text.from_markup(said), self, hanging) if self.is_terminal else [said]:
            super().print(line)


def sentence_lines(said: Text, out: Console, hanging: int | None = None) -> list[Text]:
    """The lines of a sentence in a terminal; commands, and bold words that fit into one, are whole.

    Later lines are as far in as the first, or as ``hanging`` says.
    """
    letters = list(said.plain)
    whole = [found.span() for found in COMMAND.finditer(said.plain)]
    whole += [(span.start, span.end) for span in said.spans if _is_whole(span, out)]
    for start, end in whole:
        letters[start:end] = [GLUE if letter == " " else letter for letter in letters[start:end]]
    glued = "".join(letters)
    first_in = len(glued) - len(glued.lstrip(" "))
    indent = first_in if hanging is None else hanging
    starts: list[int] = []
    begun = 0
    for word in re.finditer(r"[^ \n]+", glued):
        room = out.width - (indent if starts else 0)
        if word.start() > (begun if starts else first_in) and (
            cell_len(glued[begun : word.end()]) > room or "\n" in glued[begun : word.start()]
        ):
            begun = word.start()
            starts.append(begun)
    first, *later = said.divide(starts)
    for line in (first, *later):
        line.rstrip()
    return [first, *(Text(" " * indent).append_text(line) for line in later)]


def _is_whole(span: Span, out: Console) -> bool:
    """Whether a style marks a name or a value; what is longer than a line is a sentence."""
    return str(span.style) == "bold" and span.end - span.start <= out.width


def print_table(table: Table, out: Console) -> None:
    """Print a table whose words are whole: lines break between words. Where even that needs more room than
    there is, the lines between columns go; where it still does, every row becomes a block of lines.

    A pipe or a file has as much room as it needs. The title is a sentence above it, as wide as the window and
    not as the table.
    """
    if table.title:
        out.print(f"[italic]{table.title}[/]")
        table.title = None
    longest = [_width(cells, str.splitlines) for cells in _columns(table)]
    words = [_width(cells, str.split) for cells in _columns(table)]
    shortest = [
        most if column.no_wrap else word
        for column, word, most in zip(table.columns, words, longest, strict=True)
    ]
    borders = 3 * len(longest) + 1
    if out.is_terminal and sum(shortest) > out.width - borders:
        borders, table.box, table.padding = 2 * len(longest), None, (0, 2, 0, 0)
        table.header_style = "bold underline"
    room = out.width - borders if out.is_terminal else sum(longest)
    if sum(shortest) > room:
        _print_blocks(table, out)
        return
    cells = [[cell.plain for cell in column] for column in _columns(table)]
    for column, width in zip(table.columns, _widths(cells, shortest, longest, room), strict=True):
        column.width, column.overflow = width, "fold"
    before = out.width
    out.width = max(before, sum(longest) + borders) if not out.is_terminal else before
    out.print(table)
    out.width = before


def _widths(cells: Sequence[Sequence[str]], least: list[int], most: list[int], room: int) -> list[int]:
    """How wide columns are: rows are as low as there is room for; what is left goes to the first columns."""
    pairs = zip(cells, least, strict=True)
    highest = max(_n_lines(cell, width) for column, width in pairs for cell in column)
    for height in range(1, highest):
        widths = [
            next(
                width for width in range(few, many + 1) if _is_within(column, width, height) or width == many
            )
            for column, few, many in zip(cells, least, most, strict=True)
        ]
        if sum(widths) <= room:
            break
    else:
        widths = list(least)
    for at, full in enumerate(most):
        widths[at] += min(full - widths[at], room - sum(widths))
    return widths


def _is_within(column: Sequence[str], width: int, height: int) -> bool:
    """Whether no cell of a column needs more lines."""
    return all(_n_lines(cell, width) <= height for cell in column)


def _n_lines(text: str, width: int) -> int:
    """How many lines a cell needs."""
    return sum(_words_in_lines(line, width) for line in text.splitlines()) or 1


def _words_in_lines(line: str, width: int) -> int:
    n, used = 1, 0
    for word in line.split():
        wide = cell_len(word)
        if used and used + 1 + wide > width:
            n, used = n + 1, wide
        else:
            used += wide + (1 if used else 0)
    return n


def _columns(table: Table) -> Iterator[list[Text]]:
    """What stands in each column, its heading first."""
    for column in table.columns:
        yield [_text(cell) for cell in (column.header, *column.cells)]


def _text(cell: Any) -> Text:
    return Text.from_markup(cell) if isinstance(cell, str) else Text(str(cell))


def _width(cells: list[Text], split: Callable[[str], list[str]]) -> int:
    """Of the widest line, or of the longest word."""
    return max((Text(part).cell_len for cell in cells for part in split(cell.plain)), default=0)


def _print_blocks(table: Table, out: Console) -> None:
    """Each row as lines of a heading and what stands beside it; below it where it has no room there."""
    names, *rows = zip(*_columns(table), strict=True)
    wide = max(name.cell_len for name in names) + 2
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            if not cell.plain:
                continue
            if wide + _width([cell], str.split) > out.width:
                out.print(Text(name.plain), soft_wrap=True)
                out.print(Text.assemble("  ", cell), soft_wrap=True)
                continue
            for line in sentence_lines(Text.assemble(name.plain.ljust(wide), cell), out, wide):
                out.print(line, soft_wrap=True)
        out.print()


def command_line(*words: str, home: Path | None = None, lasting: bool = False) -> str:
    """A command as it must be typed from here; ``home`` only where the node is not found by itself.

    ``lasting``: also when there are more nodes in this folder.
    """
    found = home is None or (_is_found(home) and not (lasting and home.absolute().parent == Path.cwd()))
    said = [*words, *([] if home is None or found else ["--home", _shown(home)])]
    return " ".join(shlex.quote(word) for word in said)


def as_typed(said: str) -> str:
    """Markup whose commands for this node have the ``--home`` without which they would not find it."""
    home = NAMED_HOME.get()
    if home is None or _is_found(home):
        return said
    option = escape(f" --home {shlex.quote(_shown(home))}")
    return OWN_COMMAND.sub(lambda found: found[0] + option, said)


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
    """A spinner for people; a line now and then where standard error is no terminal."""

    def __init__(
        self, what: str = "starting", *, quiet: bool = False, every: float = EVERY, early: float = EARLY
    ) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._shown, self._every, self._early = not quiet, every, early
        self._live = self._shown and self._console.is_terminal
        self._status = self._console.status(what, spinner="dots")
        self._started = self._said = time.monotonic()

    def __enter__(self) -> ProgressLine:
        if self._live:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._status.stop()

    def __call__(self, what: str, share: float | None = None) -> None:
        """Say what is done now, and, where a ``share`` of the work is done, how long the rest may take."""
        is_early = time.monotonic() - self._started < self._early
        said = escape(what) + (f" ({self._left(share)})" if share and not is_early else "")
        if self._live:
            self._status.update(said)
        elif self._shown and time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            self._console.print(said)

    def above(self, show: Callable[[], None]) -> None:
        """Print something else above the line."""
        if self._live:
            self._status.stop()
        show()
        if self._live:
            self._status.start()

    def _left(self, share: float) -> str:
        gone = time.monotonic() - self._started
        return f"{span(gone)} so far, about {span(gone * (1 - share) / share)} left"


def span(seconds: float) -> str:
    """A time that people read: 8 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


__all__ = ["EVERY", "NAMED_HOME", "ProgressLine", "Screen", "as_typed", "command_line", "print_table", "span"]
