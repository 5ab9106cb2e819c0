"""Mutants: small wrong changes to the sources, and whether the tests notice them.

``python benchmarks/mutants.py MODULE ... [--most N] [--seed S]``, MODULE as in ``gal.core.weights``. Each
mutant changes one operator, number, comparison or condition in a copy of the sources; the tests named in
``TESTS`` run on it and should fail. Prints what survived, and the share that was killed;
``equivalent_mutants.toml`` names the changes that no test can notice, which are not tried. (mutmut and
cosmic-ray run one set of tests for all and start Python for each mutant; here each mutant meets the tests
that run its line, quickest first, in a process forked from one that has numpy and its like.)
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "gal.core.losses": ["core/test_losses"],
    "gal.core.weights": ["core/test_weights"],
    "gal.core.line_search": ["core/test_line_search"],
    "gal.core.contributions": ["core/test_contributions"],
    "gal.core.coalition_values": ["core/test_contributions"],
    "gal.privacy.mechanisms.labels": ["privacy/test_noise_is_enough", "privacy/test_private_estimators"],
    "gal.privacy.mechanisms.columns": ["privacy/test_noise_is_enough", "privacy/test_column_noise"],
    "gal.privacy.mechanisms.answers": ["privacy/test_noise_is_enough", "privacy/test_answers"],
    "gal.privacy.mechanisms.paper": ["privacy/test_paper_privacy"],
    "gal.privacy.mechanisms.corrected_loss": ["privacy/test_corrected_loss"],
    "gal.secure_aggregation.member": [
        "secure_aggregation/test_hostile_holder",
        "secure_aggregation/test_group",
    ],
    "gal.secure_aggregation.collector": [
        "secure_aggregation/test_hostile_holder",
        "secure_aggregation/test_group",
    ],
    "gal.secure_aggregation.masking": ["secure_aggregation/test_parts", "secure_aggregation/test_group"],
    "gal.transport.handshake": ["transport/test_handshake"],
    "gal.transport.cards": ["transport/test_cards"],
    "gal.node.label_holder.learning.rounds": ["node/label_holder/learning/test_rounds"],
    "gal.node.label_holder.learning.secure_sums": ["node/test_sums_over_nodes"],
    "gal.node.label_holder.learning.open_version": ["node/label_holder/learning/test_rounds"],
}
HEAVY = (
    *("numpy", "scipy.optimize", "scipy.stats", "sklearn.linear_model", "sklearn.ensemble", "pandas"),
    *("pydantic", "pyarrow", "torch", "dp_accounting.pld.privacy_loss_distribution"),
)
"""Imported before forking, where it is installed."""
EQUIVALENT: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("equivalent_mutants.toml").read_text(encoding="utf-8")
)
"""By module: the changed line, and why no test can notice."""

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

    lines: range
    """Of the statement that it is in: tests that run none of them cannot notice."""
    change: str
    changed: str
    """The line that is another one; of a condition that became False, both."""
    source: str


@dataclass(frozen=True)
class Watched:
    """What the tests did on the sources as they are."""

    tests: list[str]
    """Quickest first."""
    by_line: dict[int, set[str]]
    """Which test ran which line; without a name: while modules were imported or shared fixtures were made."""
    seconds: float

    def may_notice(self, mutant: Mutant) -> list[str]:
        """The tests that run the mutant's statement."""
        ran = set[str]().union(*(self.by_line.get(line, ()) for line in mutant.lines))
        return self.tests if "" in ran else [test for test in self.tests if test in ran]


def mutants(source: str) -> Iterator[Mutant]:
    """All of them, in the order of the syntax tree."""
    tree = ast.parse(source)
    parts, statements = [ast.unparse(one) for one in tree.body], _statements(tree)
    places = {
        node: (part, place) for part, one in enumerate(tree.body) for place, node in enumerate(ast.walk(one))
    }
    written = [_written(one, source.splitlines()) for one in tree.body]
    for original in _nodes(tree):
        part, place = places[original]
        changed = ast.parse(written[part]).body[0]  # sooner done than a copy
        node: Any = next(islice(ast.walk(changed), place, None))
        before = ast.unparse(node).split("\n")[0]
        _change(node)
        after = ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]
        text, change = ast.unparse(changed), f"{before}  ->  {after}"
        lines = zip(text.splitlines(), parts[part].splitlines(), strict=True)
        (line,) = [new for new, old in lines if new != old]
        line = change if line.strip() in {"if False:", "elif False:"} else line.strip()
        statement = min((one for one in statements if original.lineno in one), key=len)
        yield Mutant(statement, change, line, "\n".join([*parts[:part], text, *parts[part + 1 :]]))


def _written(statement: ast.stmt, lines: Sequence[str]) -> str:
    """The lines of a statement at the top of a file, with its decorators."""
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    return "\n".join(lines[first - 1 : statement.end_lineno])


def _statements(tree: ast.AST) -> list[range]:
    """The lines of each statement, without those of its body."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            found.append(range(node.lineno, max(last, node.lineno) + 1))
    return found


def _nodes(tree: ast.AST) -> list[Any]:
    """What can be changed, but for what computes nothing: annotations, aliases of
    types, docstrings, texts of errors.
    """
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


def watch(tests: list[str], path: Path, sources: Path) -> Watched:
    """Run the tests on the sources as they are, and see which run which line of a module."""
    file = sources.parent / "watched.json"

    def observe() -> int:
        coverage = Coverage(data_file=None, include=[str(path)])
        watcher = _Watcher(coverage.switch_context)
        coverage.start()
        code = _pytest(tests, watcher)
        coverage.stop()
        by_line = coverage.get_data().contexts_by_lineno(str(path))
        file.write_text(json.dumps([code, watcher.seconds, list(by_line.items())]), encoding="utf-8")
        return code

    if _forked(observe, sources, 3600) != 0:
        raise SystemExit(f"{', '.join(tests)}: fail without any change")
    _, seconds, by_line = json.loads(file.read_text(encoding="utf-8"))
    quickest = sorted(seconds, key=lambda test: seconds[test])
    return Watched(quickest, {line: set(ran) for line, ran in by_line}, sum(seconds.values()))


class _Watcher:
    """A plugin of pytest: which test runs, and how long each took."""

    def __init__(self, switch: Callable[[str], object]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._switch, self._test = switch, ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid
        self._switch(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_runtest_logfinish(self) -> None:
        self._test = ""
        self._switch("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope != "function":  # made once, for all tests that use it
            self._switch("")
        result = yield
        self._switch(self._test)
        return result


def is_killed(mutant: Mutant, path: Path, watched: Watched, files: list[str], sources: Path) -> bool:
    """Whether a test fails on it; the copy is as before afterwards."""
    tests = watched.may_notice(mutant)
    if not tests:
        return False
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    limit = 20 + int(5 * watched.seconds)
    try:
        code = _forked(lambda: _pytest(tests), sources, limit)
        if code == 4:  # a test goes by another name: its parameters changed
            code = _forked(lambda: _pytest(files), sources, limit)
    finally:
        path.write_text(before, encoding="utf-8")
    if code == -signal.SIGKILL:
        print(f"line {mutant.lines[0]}: not done after {limit} s: {mutant.change}", flush=True)
    return code != 0


def _forked(work: Callable[[], int], sources: Path, seconds: int) -> int:
    """The exit code of work done in a process of its own, which sees these sources;
    minus the signal that ended it.
    """
    child = os.fork()
    if child == 0:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            os.chdir(ROOT)
            sys.path.insert(0, str(sources))
            os.environ["PYTHONPATH"] = str(sources)
            os._exit(work())
        finally:  # whatever happens, the copy is the parent's
            os._exit(1)
    until = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:  # no alarm in the process itself: pytest-timeout has that one
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def _pytest(tests: list[str], *plugins: object) -> int:
    """Its exit code; examples are the same for each mutant, and not made smaller."""
    settings.register_profile(
        "mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, database=None
    )
    settings.load_profile("mutants")
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-o", "timeout=0"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
    return int(pytest.main([*options, *tests], plugins=plugins))


def try_module(
    module: str, sources: Path, *, most: int | None, seed: int, equivalent: Mapping[str, str]
) -> str:
    """Print what survives; how many were killed, in words."""
    path = sources / (module.replace(".", "/") + ".py")
    files = [f"tests/{one}.py" for one in TESTS[module]]
    watched = watch(files, path, sources)
    found = list(mutants(path.read_text(encoding="utf-8")))
    tried = [one for one in found if one.changed not in equivalent]
    if most is not None and most < len(tried):
        tried = random.Random(seed).sample(tried, most)
    dead = 0
    for one in sorted(tried, key=lambda one: one.lines[0]):
        if is_killed(one, path, watched, files, sources):
            dead += 1
        else:
            unseen = "" if watched.may_notice(one) else " (no test runs it)"
            print(f"{module}:{one.lines[0]}: survived: {one.change} in: {one.changed}{unseen}", flush=True)
    share = 100 * dead / max(len(tried), 1)
    named = sum(one.changed in equivalent for one in found)
    return (
        f"{module}: {dead} of {len(tried)} killed ({share:.0f} %), of {len(found)} there are, {named} of "
        "them equivalent"
    )


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
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
        for module in given.modules:
            known = EQUIVALENT.get(module, {})
            print(try_module(module, sources, most=given.most, seed=given.seed, equivalent=known), flush=True)


if __name__ == "__main__":
    main()
