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


def test_every_page_has_one_place() -> None:
    placed = pages_in(CONFIGURATION["nav"])
    assert sorted(placed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")
    )


def test_sections_hold_what_their_pages_are_called() -> None:
    sections = {name: pages_in(inside) for one in CONFIGURATION["nav"] for name, inside in one.items()}
    for name, start in {"Tutorials": "tutorials", "How to": "how-to", "Concepts": "concepts"}.items():
        assert all(page.startswith(start) for page in sections[name])


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert CONFIGURATION["theme"]["font"] is False
    own = [*CONFIGURATION["extra"]["polyfills"], *CONFIGURATION["extra_css"]]
    assert all((ROOT / "docs" / path).is_file() for path in own)
    assert any("iframe-worker" in path for path in own)  # else the theme takes one from a foreign server


def test_links_can_be_read() -> None:
    """As the guidelines for accessible pages ask: a contrast of 4.5 to the white behind them."""
    css = (ROOT / "docs/site/wide-tables.css").read_text()
    found = re.search(r'scheme="default"\] \{ --md-typeset-a-color: #(\w{6})', css)
    assert found is not None
    shares = [int(found[1][at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares]
    assert 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) >= 4.5


def test_examples_in_docstrings_become_code() -> None:
    griffe = pytest.importorskip("griffe", reason="griffe is not installed: the extra docs")
    package = griffe.load(
        "gal.estimators",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(str(ROOT / "docs/site/docstrings.py")),
    )
    text = package["GALRegressor"].docstring.value
    assert re.search(r"^```pycon\n>>> .*\n```", text, re.MULTILINE | re.DOTALL)
