"""Pages for users: few and short, in the words of the glossary, in sentences that need no second reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
USER_PAGES = sorted(page for page in DOCS.rglob("*.md") if "results" not in page.relative_to(DOCS).parts)
FIRST = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
READ = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in FIRST)]
LONGER = {"reference/cli.md"}
"""The help of all commands is generated, and as long as it is."""

RETIRED = (
    "she|her|hers|herself|nobody|somebody|everybody|whoever|told|asked|heard|unheard|judges?|judged|remembers?"
    "|flatters?|betrays?|liars?|strangers?|house|rooms?|circles?|secrecy|passages?|earned|earnings|shut in"
    "|closing models?|closing forests?|crossed residuals?|crossing|leak meter|the meter|private stack"
    "|fresh noise|models? that moves?|of the way|in one place|the part that goes first|of before"
)
"""Words of the project's own that gave way to the field's; ``docs/reference/glossary.md`` has those."""
OLD_WORD = re.compile(rf"\b(?:{RETIRED})\b", re.IGNORECASE)
BY_WHO = re.compile(r"^Who\b.*[^?]$")
"""A clause as the subject of a sentence."""
MOST_WORDS = 30


def test_there_are_few_pages_and_they_are_short() -> None:
    pages = {str(page.relative_to(DOCS)): page for page in DOCS.rglob("*.md")}
    lengths = {name: page.read_text("utf-8").count("\n") for name, page in pages.items()}
    assert len(USER_PAGES) <= 20
    assert sum(lengths.values()) <= 5_000
    user_pages = {str(page.relative_to(DOCS)) for page in USER_PAGES} - LONGER
    assert {name: lengths[name] for name in user_pages if lengths[name] > 150} == {}


def sentences(text: str) -> Iterator[str]:
    """Sentences, list items, headings and cells of tables, without code and generated results."""
    text = re.sub(r"<!-- (\w[\w ]*): .*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*```.*?^\s*```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|^:::.*$|^    \w+:.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.) ?)|\|", text):
        words = " ".join(block.split()).lstrip("#-* ")
        yield from (one for one in re.split(r"(?<=[.!?])[\"')*]*\s+", words) if one)


def length(sentence: str) -> int:
    """Its words, without names in code and figures."""
    return sum(bool(re.search(r"[^\W\d]", word)) and "code" not in word for word in sentence.split())


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_retired_word_is_on_a_page(page: Path) -> None:
    found = [one for one in sentences(page.read_text("utf-8")) if OLD_WORD.search(one) or BY_WHO.match(one)]
    assert found == [], "docs/reference/glossary.md has the words"


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    found = [one for one in sentences(page.read_text("utf-8")) if length(one) > MOST_WORDS]
    assert found == []


def test_sentences_are_found() -> None:
    text = "# Head\n\nOne [link](x.md) here.\nTwo `a b` there!\n\n- item\n\n```\ncode she\n```\n| a | b c |\n"
    assert list(sentences(text)) == ["Head", "One link here.", "Two code there!", "item", "a", "b c"]
    assert length("Two code, code and 17.5 words") == 3
    assert OLD_WORD.search("A circle of three.")
    assert not OLD_WORD.search("Others are there.")
    assert BY_WHO.match("Who is late is missed.")
    assert not BY_WHO.match("Who can learn what?")
