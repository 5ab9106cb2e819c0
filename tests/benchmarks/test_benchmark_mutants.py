"""The mutants that the tests are tried on: each is one change, of something that computes."""

from __future__ import annotations

import ast
import importlib.util
import sys
from typing import Any

import pytest

from benchmark_scripts import BENCHMARKS

SOURCE = '''
"""Says 1 + 1."""
Number = float
def half(x: float | None, far: bool = False) -> float:
    """The half, at least 0."""
    if x is None or x < 0:
        raise ValueError("not 3 < 4")
    return x / 2
'''
CHANGED = {
    "def half(x: float | None, far: bool=True) -> float:",
    "    if False:",
    "    if x is None and x < 0:",
    "    if x is not None or x < 0:",
    "    if x is None or x <= 0:",
    "    if x is None or x < 1:",
    "    return x * 2",
    "    return x / 5",
}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_mutants", BENCHMARKS / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_each_mutant_is_one_line_that_computes_something_else(script: Any) -> None:
    plain = "\n".join(map(ast.unparse, ast.parse(SOURCE).body)).splitlines()
    found = []
    for one in script.mutants(SOURCE):
        lines = one.source.splitlines()
        assert len(lines) == len(plain)
        (different,) = [line for line, before in zip(lines, plain, strict=True) if line != before]
        found.append(different)
    assert set(found) == CHANGED
    assert len(found) == len(CHANGED)


def test_what_is_tried_is_there_with_its_tests(script: Any) -> None:
    for module, tests in script.TESTS.items():
        assert (script.ROOT / "src" / f"{module.replace('.', '/')}.py").is_file()
        assert all((script.ROOT / f"tests/{one}.py").is_file() for one in tests)


def test_what_is_said_to_be_equivalent_is_still_there(script: Any) -> None:
    """A reason that outlives its line would excuse an unknown line."""
    for module, known in script.EQUIVALENT.items():
        source = (script.ROOT / "src" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert set(known) <= {one.changed for one in script.mutants(source)}
        assert all(known.values())


def test_only_tests_that_run_its_statement_meet_a_mutant(script: Any) -> None:
    watched = script.Watched(
        ["quick", "middle", "slow"], {3: {"slow"}, 5: {"quick"}, 6: {"slow"}, 7: {""}}, 1.0
    )

    def meets(lines: range) -> list[str]:
        return list(watched.may_notice(script.Mutant(lines, "", "", "")))

    assert meets(range(3, 4)) == ["slow"]
    assert meets(range(5, 7)) == ["quick", "slow"]
    assert meets(range(7, 8)) == ["quick", "middle", "slow"]  # runs while modules are imported
    assert meets(range(8, 9)) == []


def test_a_statement_is_all_its_lines_but_those_of_its_body(script: Any) -> None:
    source = "def f(x):\n    if (x >\n            1):\n        return x\n    return (x +\n            2)\n"
    found = {one.change: list(one.lines) for one in script.mutants(source)}
    assert found["x > 1  ->  x >= 1"] == [2, 3]
    assert found["x + 2  ->  x - 2"] == [5, 6]
    assert found["if x > 1:  ->  if False:"] == [2, 3]
