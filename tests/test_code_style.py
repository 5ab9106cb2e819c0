"""Rules of style: short functions and classes, small folders, one definition per public name.

Exceptions are listed by name. The lists only shrink: a repair removes an entry, and none is added.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src"
FIXED_WAIT = re.compile(r"\.(?:wait|join)\((?:timeout=)?\d|\b(?:timeout|deadline)=[1-9]")
"""Seconds that no variable stretches; parts of a second are waited for on purpose."""
FUNCTION_LINES, CLASS_LINES, FILE_LINES, MODULES = 90, 250, 600, 14
MODULE_SENTENCES, FIRST_WORDS = 3, 15

FULL_FOLDERS = {"gal/core"}
"""Folders that may be full: each file is a command, or a part of the algorithm."""
DEFINED_TWICE = {"learn", "main", "predict"}
"""``learn`` and ``predict`` are the generators of core and what drives them; ``main`` starts a process."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions(root: Path) -> list[tuple[Path, Definition, bool]]:
    """Every function and class: its file, itself, and whether it stands at the top of the file."""
    found = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [
            (path, node, node in tree.body) for node in statements(tree) if isinstance(node, Definition)
        ]
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement under this one; expressions, of which there are many more, are not looked into."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for one in getattr(node, field, ()):
            yield one
            yield from statements(one)


def too_long(root: Path, *, classes: bool) -> set[str]:
    """Names of classes, or of functions, with more lines than they may have; the options of a command are
    its signature, which does not count.
    """
    limit = CLASS_LINES if classes else FUNCTION_LINES
    found = set()
    for _, node, _ in definitions(root):
        first = node.lineno if isinstance(node, ast.ClassDef) else node.body[0].lineno
        assert node.end_lineno is not None
        if isinstance(node, ast.ClassDef) == classes and node.end_lineno - first + 1 > limit:
            found.add(node.name)
    return found


def long_files(root: Path) -> set[str]:
    """Files with more lines than one reads in one go."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if len(path.read_text(encoding="utf-8").splitlines()) > FILE_LINES
    }


def full_folders(root: Path) -> set[str]:
    """Folders with more modules than one looks through."""
    count: dict[str, int] = defaultdict(int)
    for path in root.rglob("*.py"):
        count[path.parent.relative_to(root).as_posix()] += path.name != "__init__.py"
    return {folder for folder, n in count.items() if n > MODULES}


def defined_twice(root: Path) -> set[str]:
    """Public functions and classes with one name in more than one file."""
    where: dict[str, set[Path]] = defaultdict(set)
    for path, node, at_top in definitions(root):
        if at_top and not node.name.startswith("_"):
            where[node.name].add(path)
    return {name for name, paths in where.items() if len(paths) > 1}


@pytest.mark.parametrize(
    ("find", "listed", "rule"),
    [
        (partial(too_long, classes=False), set(), f"functions have at most {FUNCTION_LINES} lines"),
        (partial(too_long, classes=True), set(), f"classes have at most {CLASS_LINES} lines"),
        (long_files, set(), f"files have at most {FILE_LINES} lines"),
        (full_folders, FULL_FOLDERS, f"folders have at most {MODULES} modules"),
        (defined_twice, DEFINED_TWICE, "a public name is defined in one file"),
    ],
    ids=["functions", "classes", "files", "folders", "names"],
)
def test_a_rule_of_style(find: Callable[[Path], set[str]], listed: set[str], rule: str) -> None:
    found = find(SOURCES)
    assert not found - listed, f"{rule}: divide or rename {sorted(found - listed)}"
    assert not listed - found, f"mended: take {sorted(listed - found)} off the list in {Path(__file__).name}"


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_no_file_beside_the_sources_is_long(folder: str) -> None:
    assert not long_files(TESTS.parent / folder)


def fixed_waits(text: str) -> list[str]:
    """Lines that wait for a number of seconds that does not grow with ``GAL_TEST_PATIENCE``."""
    return [line.strip() for line in text.splitlines() if FIXED_WAIT.search(line)]


def test_no_test_waits_for_a_fixed_time() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in TESTS.rglob("*.py")
        if path != Path(__file__) and (lines := fixed_waits(path.read_text(encoding="utf-8")))
    }
    assert not found, f"wait for patient(seconds) or LONGEST of tests/support/patience.py: {found}"


def sentences(prose: str) -> list[str]:
    """The sentences of a docstring without its lists, examples and tables, which are indented or marked."""
    prose = re.sub(r"(?m)^( +.*|- .*|\d\. .*|>>>(.|\n(?!\n))*)$", "", prose.replace("et al. ", "et al "))
    found = (
        re.split(r"(?<=[.!?])\s+(?=[A-Z`\"(*0-9])", " ".join(one.split())) for one in prose.split("\n\n")
    )
    return [sentence for some in found for sentence in some if sentence]


def test_a_module_says_what_it_is_for_in_three_sentences() -> None:
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        prose = sentences(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        words = len(prose[0].split()) if prose else 0
        if len(prose) > MODULE_SENTENCES or words > FIRST_WORDS:
            found[path.relative_to(SOURCES).as_posix()] = (
                f"{len(prose)} sentences, the first of {words} words"
            )
    rule = f"module docstrings: at most {MODULE_SENTENCES} sentences, the first at most {FIRST_WORDS} words"
    assert not found, f"{rule}: {found}"
