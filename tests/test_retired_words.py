"""``.ci/retired_words.py`` finds the words of its lists and long sentences, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "retired_words.py"
LISTS = """
[words]
judge = "judge|judged"
"Who (as a subject)" = 'Who(?![^.?]*\\?)'
"in one place" = "in one place"
[pages]
"British spelling" = "colou?r"
[[exceptions]]
word = "judge"
files = "quoted.py"
line = "The judge"
reason = "a quotation"
"""


def found_in(folder: Path, name: str, text: str) -> tuple[list[tuple[str, int]], int]:
    """Word and line of what is found in one file, and how many exceptions have no case."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "lists.toml").write_text(LISTS, encoding="utf-8")
    found, unused = runpy.run_path(str(SCRIPT))["check"](folder, [name], folder / "lists.toml")
    return [(one.word, one.line) for one in found], len(unused)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "x = 1\nis_judged = JudgeOfRows\n", [("judge", 2), ("judge", 2)]),
        ("judged_rows.py", "", [("judge", 0)]),
        ("a.py", "prejudged = adjudged\n", []),
        ("a.py", "# Who is killed resumes.\n# Who resumes? Those who wait.\n", [("Who (as a subject)", 1)]),
        ("a.py", "# all in\n# one place\n", [("in one place", 1)]),
        ("a.py", "color = 1\n", []),
        ("docs/a.md", "Color of a line.\n", [("British spelling", 1)]),
        ("docs/results/a.md", "Color of a line.\n", []),
        ("docs/a.md", f"# Title\n\nShort.\n\n- {'word ' * 31}end.\n", [("long sentence", 5)]),
        ("docs/a.md", f"{'Word ' * 20}end. {'Word ' * 20}end.\n\n```\n{'word ' * 31}\n```\n", []),
    ],
)  # fmt: skip
def test_each_kind_of_word_is_found(
    tmp_path: Path, name: str, text: str, found: list[tuple[str, int]]
) -> None:
    assert found_in(tmp_path, name, text) == (found, 1)


def test_an_exception_covers_its_lines_only(tmp_path: Path) -> None:
    assert found_in(tmp_path, "quoted.py", "# The judge rules.\n# A judge rules.\n") == ([("judge", 2)], 0)
