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
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
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
