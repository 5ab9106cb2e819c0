"""Mutants: small wrong changes to the sources, and whether the tests notice them.

``python benchmarks/mutants.py MODULE ... [--most N] [--seed S]``, MODULE as in ``gal.core.weights``. Each mutant changes one
operator, number, comparison or condition in a copy of the sources; the tests named in ``TESTS`` run on it and should fail.
Prints what survived, and the share that was killed. (mutmut and cosmic-ray run one set of tests for all and start Python for
each mutant; here each module has the tests that are about it, in a process forked from one that has numpy and its like.)
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "gal.core.losses": ["core/test_losses"],
    "gal.core.weights": ["core/test_weights"],
    "gal.core.line_search": ["core/test_line_search"],
    "gal.core.contributions": ["core/test_contributions"],
    "gal.privacy.mechanisms.labels": [
        "privacy/test_noise_is_enough",
        "privacy/test_private_estimators",
        "privacy/test_leakage_attacks",
    ],
    "gal.privacy.mechanisms.residuals": [
        "privacy/test_noise_is_enough",
        "privacy/test_private_estimators",
        "privacy/test_leakage_attacks",
    ],
    "gal.privacy.mechanisms.answers": ["privacy/test_noise_is_enough", "privacy/test_answers"],
    "gal.privacy.mechanisms.paper": ["privacy/test_paper_privacy", "privacy/test_leakage_attacks"],
    "gal.privacy.mechanisms.likelihood": ["privacy/test_leakage_attacks"],
    "gal.privacy.mechanisms.corrected_loss": ["privacy/test_corrected_loss"],
    "gal.transport.handshake": [
        "transport/test_admission",
        "transport/test_company_ca",
        "transport/test_streams",
    ],
    "gal.transport.cards": ["transport/test_cards"],
}
HEAVY = ("numpy", "scipy.optimize", "scipy.stats", "sklearn.linear_model", "sklearn.ensemble", "pandas")
"""Imported before forking."""
SECONDS = 600
"""A mutant that takes longer does not end; that counts as killed, and is said."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One wrong change."""

    line: int
    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """All of them, in the order of the syntax tree."""
    tree = ast.parse(source)
    for index in range(len(_nodes(tree))):
        changed = copy.deepcopy(tree)
        node = _nodes(changed)[index]
        before = ast.unparse(node).split("\n")[0]
        _change(node)
        after = ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]
        yield Mutant(getattr(node, "lineno", 0), f"{before}  ->  {after}", ast.unparse(changed))


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """What can be changed, but for what computes nothing: annotations, aliases of types, docstrings, texts of errors."""
    found, left = [], [tree]
    while left:
        node = left.pop(0)
        if _computes_nothing(node):
            continue
        if _can_be_changed(node):
            found.append(node)
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "returns", "decorator_list"}:
                parts = value if isinstance(value, list) else [value]
                left += [one for one in parts if isinstance(one, ast.AST)]
    return found


def _computes_nothing(node: ast.AST) -> bool:
    alias = (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and (node.targets[0].id.istitle() or node.targets[0].id == "__all__" or _is_kind(node.value))
    )
    doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    checked = isinstance(node, ast.keyword) and node.arg in {"strict", "repr"}
    types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return alias or doc or checked or types or isinstance(node, ast.Raise | ast.JoinedStr)


def _is_kind(value: ast.AST) -> bool:
    """Whether it registers a mechanism, which has tests of its own."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "MechanismKind"


def _can_be_changed(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        text = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant | ast.JoinedStr)
        return type(node.op) in OPERATORS and not (text and not _is_number(getattr(node, "left", None)))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not | ast.USub)
    return isinstance(node, ast.Compare | ast.BoolOp | ast.If | ast.IfExp) or _is_number(node)


def _is_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        else:
            node.op = ast.UAdd()
    elif isinstance(node, ast.Constant):
        value = node.value
        assert isinstance(value, int | float)
        node.value = (not value) if isinstance(value, bool) else value * 2 + type(value)(1)
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.Constant(value=False)


def is_killed(mutant: Mutant, path: Path, tests: list[str], sources: Path) -> bool:
    """Whether a test fails on it; the copy is as before afterwards."""
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    try:
        child = os.fork()
        if child == 0:
            try:
                _run_tests(tests, sources)
            finally:  # whatever happens, the copy is the parent's
                os._exit(1)
        _, status = os.waitpid(child, 0)
    finally:
        path.write_text(before, encoding="utf-8")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        print(f"line {mutant.line}: not done after {SECONDS} s: {mutant.change}", flush=True)
    return status != 0


def _run_tests(tests: list[str], sources: Path) -> None:
    """In the forked process: ends it with 0 where all tests pass."""
    import pytest

    signal.alarm(SECONDS)  # kills the process where it does not end
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path.insert(0, str(sources))
    os.environ["PYTHONPATH"] = str(sources)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-o", "timeout=0"]
    os._exit(int(pytest.main([*options, *(str(ROOT / f"tests/{one}.py") for one in tests)])))


def try_module(module: str, sources: Path, *, most: int | None, seed: int) -> str:
    """Print what survives; how many were killed, in words."""
    path = sources / (module.replace(".", "/") + ".py")
    tests = TESTS[module]
    text = path.read_text(encoding="utf-8")
    if is_killed(Mutant(0, "", text), path, tests, sources):
        raise SystemExit(f"{module}: its tests fail without any change")
    found = list(mutants(text))
    chosen = found if most is None or most >= len(found) else random.Random(seed).sample(found, most)
    dead = 0
    for one in sorted(chosen, key=lambda one: one.line):
        if is_killed(one, path, tests, sources):
            dead += 1
        else:
            print(f"{module}:{one.line}: survived: {one.change}", flush=True)
    share = 100 * dead / max(len(chosen), 1)
    return f"{module}: {dead} of {len(chosen)} killed ({share:.0f} %), of {len(found)} there are"


def main() -> None:
    """Try the mutants of the modules that are named."""
    parser = argparse.ArgumentParser(description="Whether the tests notice small wrong changes.")
    parser.add_argument("modules", nargs="+", choices=list(TESTS), metavar="MODULE")
    parser.add_argument("--most", type=int, help="At most so many of each module, drawn by chance.")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.path[:] = [one for one in sys.path if one != str(ROOT / "src")]
    for name in HEAVY:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
        for module in given.modules:
            print(try_module(module, sources, most=given.most, seed=given.seed), flush=True)


if __name__ == "__main__":
    main()
