"""The documentation as a site: every page has its place, and docstrings are shown as they are meant.

Whether it builds strictly, and fetches nothing from elsewhere, is tried by ``make site``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed: the extra docs")
ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages_in(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inside = entry.values() if isinstance(entry, dict) else entry
    return [page for one in inside for page in pages_in(one)]


def test_there_are_few_pages_and_they_are_short() -> None:
    docs = ROOT / "docs"
    lengths = {page.relative_to(docs): page.read_text("utf-8").count("\n") for page in docs.rglob("*.md")}
    own = [page for page in lengths if "results" not in page.parts]
    assert len(own) <= 20
    assert sum(lengths.values()) <= 5_000
    long = [page for page in own if lengths[page] > 150]
    assert long in ([], [Path("reference/cli.md")]), "the help of all commands is as long as it is"


def test_every_page_has_one_place() -> None:
    placed = pages_in(CONFIGURATION["nav"])
    assert sorted(placed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")
    )


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert CONFIGURATION["theme"]["font"] is False
    own = [*CONFIGURATION["extra"]["polyfills"], *CONFIGURATION["extra_css"]]
    assert all((ROOT / "docs" / path).is_file() for path in own)
    assert any("iframe-worker" in path for path in own)  # else the theme takes one from a foreign server


def test_examples_in_docstrings_become_code() -> None:
    griffe = pytest.importorskip("griffe", reason="griffe is not installed: the extra docs")
    package = griffe.load(
        "gal.estimators",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(str(ROOT / "docs/site/docstrings.py")),
    )
    text = package["GALRegressor"].docstring.value
    assert re.search(r"^```pycon\n>>> .*\n```", text, re.MULTILINE | re.DOTALL)
