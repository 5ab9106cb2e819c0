"""README and docs cannot drift: examples run and print what the page says, help texts are current."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from doc_examples import DEMO, GENERATED, PAGES, ROOT, demo_text, examples, help_text, run
from gal import GALClassifier


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_print_what_the_page_says(page: Path) -> None:
    names: dict[str, Any] = {}
    text = page.read_text(encoding="utf-8")
    if "gal.models.deep" in text:
        pytest.importorskip("torch", reason="torch is not installed: the extra deep")
    for example in examples(text):
        printed = run(example, names)
        if example.span is not None:
            assert alike(printed, example.output), f"printed:\n{printed}\nrun `python tests/doc_examples.py`"


NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(printed: str, said: str) -> bool:
    """The same words, and numbers that differ by no more than another processor's rounding may cause."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", said).split():
        return False
    pairs = zip(map(float, NUMBER.findall(printed)), map(float, NUMBER.findall(said)), strict=True)
    return all(abs(one - other) <= 0.02 + 0.05 * abs(other) for one, other in pairs)


def test_there_are_examples() -> None:
    assert sum(len(examples(page.read_text(encoding="utf-8"))) for page in PAGES) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_help_texts_are_current(page: Path) -> None:
    for found in GENERATED.finditer(page.read_text(encoding="utf-8")):
        assert found["text"] == help_text(found["command"]), "run `python tests/doc_examples.py`"


def test_the_demo_prints_what_the_readme_says() -> None:
    found = DEMO.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    assert alike(demo_text(), found["text"])


def test_every_option_is_in_the_reference() -> None:
    text = (ROOT / "docs/ref-options.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)`", text.split("## After")[0], re.MULTILINE))
    assert listed == set(inspect.signature(GALClassifier).parameters)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
