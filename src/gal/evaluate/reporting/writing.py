"""Reports and single pictures as files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gal.errors import InvalidOptionError
from gal.evaluate.reporting.charts import charts_of
from gal.evaluate.reporting.facts import ReportFacts
from gal.evaluate.reporting.page import page_of
from gal.evaluate.reporting.report_subjects import gathered
from gal.extras import require

LARGEST = 2_000_000
"""Bytes: what a report may have at most."""


def report(found: Any, path: str | Path, X: Any = None, y: Any = None) -> Path:
    """Write one HTML file about a simulation or a fitted model: no network, no script, prints well.

    For a model, ``X`` and ``y`` are rows that it did not learn from: with them the report also says how its
    predictions fit the truth.

    >>> import tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> from gal import GALRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> parts = {"clinic": ["age", "sex"], "lab": ["s1", "s5"]}
    >>> model = GALRegressor(parts, rounds=2, random_state=0).fit(X[:300], y[:300])
    >>> folder = tempfile.mkdtemp()
    >>> report(model, f"{folder}/report.html", X[300:], y[300:]).stat().st_size < 2_000_000
    True
    """
    target = Path(path)
    check_report(target, None)
    return write_report(gathered(found, X, y), target)


def check_report(path: Path | None, figures: Path | None) -> None:
    """An error where these cannot be written: said before what takes minutes."""
    if path is not None:
        if path.suffix.lower() not in {".html", ".htm"}:
            raise InvalidOptionError(f"a report's name must end in .html, got {str(path)!r}")
        if not path.absolute().parent.is_dir():
            raise InvalidOptionError(
                f"there is no folder {str(path.absolute().parent)!r} to put the report in"
            )
    if figures is not None:
        require("figures", "single pictures (--figures)")
        if figures.exists() and not figures.is_dir():
            raise InvalidOptionError(f"{str(figures)!r} is a file: name a folder for the pictures")


def write_report(facts: ReportFacts, path: Path) -> Path:
    """Write the page; JSON for machines is left out of it where it would be too large."""
    written = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    text = page_of(facts, written)
    if len(text.encode()) > LARGEST:
        text = page_of(facts, written, for_machines=False)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOptionError(
            f"the report cannot be written to {str(path)!r}: {error.strerror}; name another file"
        ) from error
    return path


def save_pictures(facts: ReportFacts, folder: Path) -> list[Path]:
    """Every chart of a report as PNG and as SVG; the same facts give the same bytes."""
    check_report(None, folder)
    import matplotlib
    from matplotlib.figure import Figure

    from gal.evaluate.drawing import DPI
    from gal.evaluate.reporting.displays import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(
            f"the folder {str(folder)!r} cannot be made: {error.strerror}; name another one"
        ) from error
    paths = []
    for key, chart in charts_of(facts).items():
        figure = Figure(layout="constrained")
        draw(chart, figure.add_subplot())
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Title": chart.title})):
            paths.append(folder / f"{key}.{kind}")
            with matplotlib.rc_context({"svg.hashsalt": "gal"}):
                figure.savefig(paths[-1], dpi=DPI, facecolor="white", metadata=metadata)
    return paths


__all__ = ["check_report", "report", "save_pictures", "write_report"]
