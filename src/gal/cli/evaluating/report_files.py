"""``--report`` and ``--figures``: one HTML file, and single pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gal.cli.screen.printing import Screen

if TYPE_CHECKING:
    from gal.evaluate.reporting.facts import ReportFacts


@dataclass(frozen=True)
class ReportOptions:
    """What is written beside what is printed."""

    report: Annotated[
        Path | None,
        typer.Option(help="Write one HTML file to send on: answer, charts, tables.", show_default=False),
    ] = None
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for its charts as PNG and SVG.", show_default=False),
    ] = None

    def check(self) -> None:
        """An error where they cannot be written, before what takes minutes."""
        if self.report is None and self.figures is None:
            return
        from gal.evaluate.reporting.writing import check_report

        check_report(self.report, self.figures)

    def write(self, gather: Callable[[], ReportFacts]) -> None:
        """Write what is asked for, and say where it is (not among facts for machines)."""
        if self.report is None and self.figures is None:
            return
        from gal.evaluate.reporting.writing import save_pictures, write_report

        facts, screen = gather(), Screen(stderr=True)
        if self.report is not None:
            screen.print(f"The report is in {escape(str(write_report(facts, self.report)))}.")
        if self.figures is not None:
            paths = save_pictures(facts, self.figures)
            screen.print(f"{len(paths)} pictures are in {escape(str(self.figures))}.")


__all__ = ["ReportOptions"]
