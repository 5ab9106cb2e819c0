"""The pieces of the learner: how each is switched off, where it acts, and which lines it is made of.

A piece that is deleted from the sources is deleted here; until then its runs say that it is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import gal
from gal.models.tabular import TableEncoder, TabularModel
from piece_parts.tables import Source

SOURCES = Path(gal.__file__).parent
PROBED_ROWS = 30_000
"""Tables with more rows are not probed here: that takes too long."""
PROBES = {"interactions": True}


@dataclass(frozen=True)
class Piece:
    """A piece of the learner, and how learning goes without it."""

    name: str
    acts: Callable[[Source], bool]
    """On which tables it may change anything."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Public options that switch it."""
    replaced: Mapping[str, Any] = field(default_factory=dict)
    """What stands in place of internal functions, where no option switches it."""
    code: tuple[str, ...] = ()
    """Files, or FILE:FUNCTION, below ``src/gal``."""
    added: bool = False
    """Whether it is off by default: then switching it means to have it."""
    base: Mapping[str, Any] = field(default_factory=dict)
    """Options of both runs."""
    guards: bool = False
    """Whether it is measured on attacked tables, too."""

    def measured_on(self, source: Source) -> bool:
        """Whether runs with and without it are compared on this table."""
        return self.acts(source) and (self.guards or not source.attack)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """While it lasts, internal functions are replaced."""
        with ExitStack() as stack:
            for target, other in self.replaced.items():
                stack.enter_context(patch(target, other))
            yield


# --- on which tables a piece acts


def _always(_: Source) -> bool:
    return True


def _small(source: Source) -> bool:
    return not source.is_large


def _large(source: Source) -> bool:
    return source.is_large


def _large_classes(source: Source) -> bool:
    return source.is_large and source.kind != "numbers"


def _long(source: Source) -> bool:
    return not source.is_large or (source.kind == "several" and source.rows >= 20_000)


def _probed(source: Source) -> bool:
    return (
        source.is_large
        and source.rows <= PROBED_ROWS
        and not (source.kind == "several" and source.rows > 5000)
    )


def _treed(source: Source) -> bool:
    return source.rows >= 844


def _ours(source: Source) -> bool:
    return not source.attack


# --- what stands in place of a piece


def _never(*_: Any, **__: Any) -> bool:
    return False


def _whole_step() -> Callable[..., float]:
    return lambda *_, **__: 1.0


def _no_ridge(coded: Any, target: Any, weight: Any, _: float) -> tuple[Any, Any]:
    width, outputs = coded.encoder.width, target.shape[1]
    return np.zeros((width, outputs)), np.average(target, axis=0, weights=weight)


def _no_hinges(*_: Any) -> Any:
    return np.empty((0, 4))


class _FrequentOnly(TableEncoder):
    def fit(self, table: Any, sample_weight: Any = None, **options: Any) -> TableEncoder:
        return super().fit(table, sample_weight, **options | {"many": False})


def _asks_nothing(*_: Any) -> Iterator[Any]:
    yield from ()


TABULAR = "gal.models.tabular.tabular_model."
SENTINEL_OFF = {
    "gal.core.pipeline.guarded": lambda _, validated, *__: (validated, frozenset(), ()),
    "gal.core.pipeline.harm": lambda *_: 0.0,
    "gal.core.task.Task.needs_sentinel": property(_never),
}
FOLDS_OF_SEVERAL = property(lambda task: task.rows.n_cv_folds > 0 and len(task.organizations) > 1)

ALL = [
    Piece(
        "1 stacker",
        _large,
        {"stacking": False},
        code=("learner/stacking.py", "core/stackers.py"),
        guards=True,
    ),
    Piece(
        "5 rounds beyond ten",
        _long,
        {"rounds": 10},
        code=("learner/task_making.py:_may_continue",),
    ),
    Piece(
        "6e patience",
        _always,
        {"patience": None},
    ),
    Piece(
        "7 baseline as a guard",
        _always,
        replaced={
            "gal.core.task.Task.alone": property(lambda _: None),
            "gal.core.task.Task.needs_sentinel": FOLDS_OF_SEVERAL,
        },
        code=("core/task.py:alone", "core/task.py:only"),
        guards=True,
    ),
    Piece(
        "8a cross-validation (off: in-sample, nothing validates)",
        _small,
        {"cross_validation": 0},
        code=("core/cross_validation.py",),
        guards=True,
    ),
    Piece(
        "8b cross-validation (off: a fifth validates)",
        _small,
        {"cross_validation": 0, "validation_fraction": 0.2},
        code=("core/cross_validation.py",),
        guards=True,
    ),
    Piece(
        "8c cross-validation (off: two tenths held out)",
        _small,
        {"fitted": "held-out", "validation_fraction": 0.1},
        code=("core/cross_validation.py",),
        guards=True,
    ),
    Piece(
        "8d cross-validation (off: all as for large tables)",
        _small,
        replaced={"gal.learner.task_making.LARGE": 100},
        code=("core/cross_validation.py",),
        guards=True,
    ),
    Piece(
        "8e cross-validation of large tables",
        lambda source: source.is_large and source.kind != "several",
        {"cross_validation": "always"},
        added=True,
    ),
    Piece(
        "9 shrinkage of all steps",
        _small,
        replaced={"gal.core.cross_validation.ExactSearch": _whole_step},
        code=("core/cross_validation.py:loss_and_shrinkage",),
        guards=True,
    ),
    Piece(
        "10 sentinel fold",
        _small,
        replaced=SENTINEL_OFF,
        code=("core/memorization.py", "core/pipeline.py:_sentinel_fold"),
        guards=True,
    ),
    Piece(
        "11a guarded weights (off: shrunk ones)",
        _always,
        {"weights": "shrunk"},
        code=("core/weights.py",),
        guards=True,
    ),
    Piece(
        "11b guarded weights (off: exact ones)",
        _always,
        {"weights": "exact"},
        code=("core/weights.py", "core/weights.py:_shrunk"),
        guards=True,
    ),
    Piece("11c found weights (off: equal ones)", _always, {"weights": "uniform"}, code=("core/weights.py",)),
    Piece(
        "14a local model: ridge",
        _treed,
        replaced={f"{TABULAR}ridge": _no_ridge},
        code=("models/tabular/tabular_model.py:ridge",),
    ),
    Piece(
        "14b local model: hinge columns of the ridge",
        _always,
        replaced={"gal.models.tabular.table_encoder._hinges": _no_hinges},
        code=("models/tabular/table_encoder.py:_hinges",),
    ),
    Piece(
        "14c local model: trees",
        _treed,
        {"local_models": TabularModel(max_iter=0)},
        code=("models/tabular/histogram_trees.py",),
    ),
    Piece(
        "14d local model: many categories",
        lambda source: source.categories,
        replaced={"gal.models.tabular.prepared_table.TableEncoder": _FrequentOnly},
        code=("models/tabular/many_categories.py",),
    ),
    Piece(
        "14e local model: 10 trees a round at .1",
        _treed,
        {"local_models": TabularModel(max_iter=10, learning_rate=0.1)},
        added=True,
    ),
    Piece(
        "14f local model: 20 trees a round at .1",
        _treed,
        {"local_models": TabularModel(max_iter=20, learning_rate=0.1)},
        added=True,
    ),
    Piece(
        "15 interaction probes",
        _probed,
        PROBES,
        code=("core/probes/probe_rounds.py", "core/probes/kept_probes.py"),
        added=True,
    ),
    Piece(
        "15b probes: of three",
        _probed,
        replaced={"gal.core.probes.probe_rounds._for_three": _asks_nothing},
        code=("core/probes/probe_rounds.py:_for_three",),
        base=PROBES,
    ),
    Piece(
        "16 scaled residuals",
        _ours,
        {"scale_residual": False},
    ),
    Piece(
        "17 shrunk weights (off: exact ones, guarded)",
        _always,
        replaced={"gal.core.weights.SHRINKAGE": 0.0},
        code=("core/weights.py:_shrunk",),
        guards=True,
    ),
    Piece(
        "18b line search: half a step",
        _ours,
        {"line_search": "half"},
        added=True,
    ),
]
PIECES: dict[str, Piece] = {piece.name: piece for piece in ALL}


def lines_of(piece: Piece) -> int | None:
    """Lines that the piece is made of; None where none are its own, or they are gone."""
    try:
        found = sum(_lines(place) for place in piece.code)
    except (OSError, LookupError):
        return None
    return found or None


def _lines(place: str) -> int:
    path, _, name = place.partition(":")
    text = (SOURCES / path).read_text(encoding="utf-8")
    if not name:
        return len(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            assert node.end_lineno is not None
            return node.end_lineno - node.lineno + 1
    raise LookupError(place)
