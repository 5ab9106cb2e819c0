"""README and docs cannot drift: examples run and print what the page says, help texts are current."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from doc_examples import (
    DEMO,
    DEMO_PAGE,
    DEMO_SHORT,
    ERRORS,
    GENERATED,
    NOTEBOOKS,
    PAGES,
    ROOT,
    TUTORIAL,
    demo_text,
    errors_text,
    examples,
    help_text,
    notebook_examples,
    run,
    shortened,
    tutorial_text,
)
from gal import GALClassifier
from gal.cli.app import COMMANDS, app, command_named
from gal.node.config.configuration import NodeFile
from gal.node.config.policy import Policy
from gal.node.worker.sandbox import landlock_version
from gal.protocol.messages import KINDS


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_print_what_the_page_says(page: Path) -> None:
    names: dict[str, Any] = {}
    text = page.read_text(encoding="utf-8")
    if "gal.models.deep" in text:
        pytest.importorskip("torch", reason="torch is not installed: the extra deep")
    for example in examples(text):
        printed = run(example, names)
        if example.span is not None:
            assert alike(printed, example.output), f"printed:\n{printed}\nrun `python tests/doc_examples.py`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    """Its cells in order, in this process: they share their names, as in a kernel."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    found = notebook_examples(notebook)
    assert len(found) >= 4
    for example in found:
        printed = run(example, names)
        assert alike(printed, example.output), f"printed:\n{printed}\nrun `python tests/doc_examples.py`"


NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def alike(printed: str, said: str) -> bool:
    """The same words, and numbers that differ by no more than another processor's rounding may cause."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", said).split():
        return False
    pairs = zip(map(float, NUMBER.findall(printed)), map(float, NUMBER.findall(said)), strict=True)
    return all(abs(one - other) <= 0.02 + 0.05 * abs(other) for one, other in pairs)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_help_texts_are_current(page: Path) -> None:
    for found in GENERATED.finditer(page.read_text(encoding="utf-8")):
        assert found["text"] == help_text(found["command"]), "run `python tests/doc_examples.py`"


def test_the_catalog_of_errors_is_current() -> None:
    found = ERRORS.search((ROOT / "docs/reference/cli.md").read_text(encoding="utf-8"))
    assert found is not None
    assert found["text"] == errors_text(), "run `python tests/doc_examples.py generated`"


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    listed = {found["command"].strip() for found in GENERATED.finditer(text)}
    assert set(COMMANDS) <= listed
    assert {"cards add", "cards list", "cards remove", "cards rotate"} <= listed


SAID = re.compile(r"(?:^|[`\s(])gal (?P<words>[a-z][^`\n#|]*)", re.MULTILINE)
"""A command in a page: in a block of its own, or within a sentence."""


def options_of(words: list[str]) -> tuple[str, set[str]]:
    """Which command this is, and the options that it has; nothing where it is no command."""
    command: Any = get_command(app)
    name = ""
    for word in words:
        if not name:
            inner = command_named(word) if word in COMMANDS else None
        else:
            inner = command.get_command(None, word) if hasattr(command, "get_command") else None
        if inner is None:
            break
        command, name = inner, f"{name} {word}"
    options = (option for one in command.params for option in (*one.opts, *one.secondary_opts))
    return name, {"--help", *options}


def test_commands_in_pages_have_the_options_that_are_named() -> None:
    named = 0
    for page in PAGES:
        for found in SAID.finditer(page.read_text(encoding="utf-8")):
            words = [word.strip("'\"()[].,;:") for word in found["words"].split()]
            name, known = options_of(words)
            options = {word.split("=")[0] for word in words if name and re.match(r"--[a-z]", word)}
            named += len(options)
            assert options <= known, f"{page.name}: gal{name} has no {', '.join(options - known)}"
    assert named > 100, "hardly any was found"


@pytest.mark.slow
def test_the_demo_prints_what_its_page_says() -> None:
    """The same words and scores; seconds, bytes and the round of the kill, and so its place, may differ."""
    found = DEMO.search(DEMO_PAGE.read_text(encoding="utf-8"))
    assert found is not None
    printed, said = demo_text(), found["text"]
    brought, left = "What it brought", "What left each organization"
    scores = [text.split(brought)[1].split(left)[0] for text in (printed, said)]
    assert alike(*scores)
    if landlock_version() > 0:
        assert sorted(map(words, printed.splitlines())) == sorted(map(words, said.splitlines()))


def test_readme_has_ten_lines_of_the_demo() -> None:
    found = DEMO_SHORT.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    assert found["text"] == shortened(DEMO_PAGE.read_text(encoding="utf-8"))
    assert found["text"].count("\n") == 10


@pytest.mark.slow
def test_the_tutorial_works_as_printed(tmp_path: Path) -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    assert words(tutorial_text(tmp_path.resolve())) == words(page), "run `python tests/doc_examples.py nodes`"


FRAMES = re.compile(r"[─-╿]+")
DIGEST = re.compile(r"sha256:[0-9a-f]+")
WAITED = re.compile(r"^waiting to connect: .*\n", re.MULTILINE)
"""Said only where an organization comes later than the label holder looks: another matter on each run."""


def plain(text: str) -> str:
    """Text without the frames of tables."""
    return FRAMES.sub(" ", text)


def words(text: str) -> list[str]:
    """What is the same in every run: no frames, numbers, digests and times, nor who was waited for."""
    return NUMBER.sub("#", DIGEST.sub("#", plain(WAITED.sub("", text))).replace(",", "")).split()


def test_every_key_of_node_toml_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/node-toml.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([\w.]+)`", text, re.MULTILINE))
    sections = {
        name: field.annotation for name, field in NodeFile.model_fields.items() if name not in {"name"}
    }
    keys = {"name"}
    for section, kind in sections.items():
        models = [one for one in (kind, *getattr(kind, "__args__", ())) if hasattr(one, "model_fields")]
        keys |= {f"{section}.{key}" for key in models[0].model_fields}
    assert {f"policy.{key}" for key in Policy.model_fields} <= keys
    assert listed == keys


def test_every_message_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z]+)` \| ([^|]*)\|", text, re.MULTILINE))
    assert set(listed) == set(KINDS)
    rows = {found[0]: found[1] for found in re.findall(r"^\| `([a-z]+)` \|(.*)$", text, re.MULTILINE)}
    for name, kind in KINDS.items():
        told = set(re.findall(r"`(\w+)`", rows[name]))
        assert set(kind.fields.model_fields) | set(kind.arrays) <= told, name


def test_every_option_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)`", text.split("## After")[0], re.MULTILINE))
    assert listed == set(inspect.signature(GALClassifier).parameters)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_row_of_the_threat_model_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs/concepts/privacy.md").read_text(encoding="utf-8")
    table = page.split("| who | sees |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [row.strip("| ").split(" | ")[-1] for row in table]
    assert len(cells) == 8
    for cell in cells:
        files = [one for one in re.findall(r"`([\w/.]+)`", cell) if one.endswith(".py")]
        assert files or "there" in cell, f"no test: {cell}"
        for one in files:
            assert list((ROOT / "tests").rglob(Path(one).name)), one
            assert "/" not in one or (ROOT / one).is_file(), one
    reads = (ROOT / "tests/privacy/test_column_reconstruction.py").read_text(encoding="utf-8")
    named = {one for cell in cells for one in re.findall(r"`(Test\w+)`", cell)}
    assert len(named) == 3
    assert all(f"class {one}:" in reads for one in named), named


def test_the_map_of_the_packages_names_files_that_are_there() -> None:
    """In the tables of CONTRIBUTING.md, paths with a folder in them."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## How to add")[0]
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    named = [one.rstrip("/") for one in re.findall(r"`([\w./]+)`", rows) if "/" in one]
    assert len(named) > 30
    assert [one for one in named if not (ROOT / one).exists() and not [*(ROOT / "src/gal").rglob(one)]] == []
