"""Any table in any setting: what hypothesis draws, learned and predicted, and what must hold of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.core.state import Progress
from gal.errors import GALError
from gal.privacy import SeededNoise
from gal.privacy.registry import KINDS, NONE, mechanism_named
from gal.secrecy import Sums

Values = NDArray[Any]

COLUMNS = (
    *("numbers", "gaps", "text", "many texts", "whole", "constant", "empty", "huge"),
    *("wild", "category", "money", "dates", "mixed", "flags"),
)
"""Kinds of columns."""
TEXTS = {"text", "many texts", "category", "money", "dates", "mixed"}
"""Those that only a data frame can hold."""
OF_LINEAR, OF_TREES = ("numbers", "whole", "constant"), ("numbers", "gaps", "whole", "constant", "huge")
"""Those that linear models and the paper's take, and scikit-learn's trees."""

OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "closing": (False, True),
    "cross_validation": (0, 2, 3, "always"),
    "validation_fraction": (0.0, 0.3),
    "fitted": ("in-sample", "held-out"),
    "curvature": (False, True),
    "patience": (None, 1),
    "initial": ("zero", "best", "mean"),
    "weights": ("uniform",),
    "preset": ("paper",),
}
"""What a few draws say of each; the others leave it to the default."""

FEW: Mapping[str, Any] = {
    "gal.engine.task_making.SMALL": 30,
    "gal.privacy.protection.SMALL": 30,
    "gal.engine.task_making.LARGE": 100,
    "gal.engine.task_making.LARGER": 200,
    "gal.engine.task_making.JUDGES": 30,
    "gal.core.task.MOST_ROWS": 40,
    "gal.core.stored_answers.MODEL_OUTPUTS": 100,
    "gal.core.stored_answers.FEWEST_ROWS": 10,
    "gal.privacy.refit.FITTED_ENTRIES": 2000,
    "gal.privacy.refit.ENOUGH": 20,
}
"""Constants with which tables of a few hundred rows go the ways of those with hundreds of thousands."""


@dataclass(frozen=True)
class AnyTable:
    """A table with its labels, who has its columns, and how it is learned."""

    rows: int
    outputs: int
    """How many classes, or columns of numbers."""
    classes: bool
    columns: tuple[str, ...]
    organizations: int
    seed: int
    rare: bool = False
    """Each class has half of the rows of the one before; numbers have a few that are far larger."""
    written: str = "codes"
    """How classes are written: as codes, text or objects, or whether there is the first one."""
    twice: bool = False
    """Most rows are there several times."""
    weights: str = "none"
    """Of rows: none, any, or 0 for all but some or few."""
    model: str = "default"
    privacy: str = NONE
    epsilon: float = 2.0
    columns_private: bool = False
    secrecy: Any = None
    interactions: int = 0
    label_holder: str = "o0"
    n_jobs: int | None = None
    rounds: Any = 2
    options: tuple[tuple[str, Any], ...] = ()
    few: bool = True
    """Whether few rows count as many."""

    def table(self, rows: int, seed: int) -> Any:
        """The columns of so many rows: a data frame where there is text, else an array."""
        rng = np.random.default_rng([seed, self.seed])
        made = {f"x{place}": _column(kind, rows, rng) for place, kind in enumerate(self.columns)}
        frame = pd.DataFrame(made)
        if self.twice:
            frame = frame.iloc[rng.integers(0, 1 + rows // 10, rows)].reset_index(drop=True)
        return frame if TEXTS & set(self.columns) or self.seed % 2 else frame.to_numpy(dtype=np.float64)

    def labels(self, table: Any) -> Values:
        """What the columns say, and chance."""
        rng = np.random.default_rng([7, self.seed])
        frame = pd.DataFrame(table)
        signal = np.column_stack([_as_numbers(frame[name]) for name in frame])
        output = signal @ rng.normal(size=(signal.shape[1], self.outputs))
        output += rng.gumbel(size=output.shape)
        if not self.classes:
            output = output**5 if self.rare else output
            return output[:, 0] if self.outputs == 1 else output
        if self.rare:
            output -= np.log(2.0) * 2 * np.arange(self.outputs)
        return self._named(output.argmax(axis=1))

    def _named(self, codes: Values) -> Values:
        """Classes as these labels have them."""
        match self.written:
            case "flags":
                return np.asarray(codes == 0)
            case "text":
                return np.array([f"class {code}" for code in codes])
            case "objects":
                return np.array([f"class {code}" for code in codes], dtype=object)
        return codes

    def sample_weight(self) -> Values | None:
        """Of the rows."""
        rng = np.random.default_rng([3, self.seed])
        if self.weights == "none":
            return None
        count = {"any": 1.0, "some": 0.7, "few": 0.1}[self.weights]
        weight = rng.exponential(size=self.rows) * (rng.random(self.rows) < count)
        weight[0] = 1.0  # scikit-learn has a sentence of its own where all are 0
        return weight

    @property
    def parts(self) -> dict[str, list[int]]:
        """Whose columns are whose."""
        places, step = range(len(self.columns)), self.organizations
        return {f"o{one}": list(places[one::step]) for one in range(step)}

    def mechanism(self, y: Values) -> Any:
        """The privacy mechanism; one class more than there are is public."""
        if self.privacy == NONE:
            return None
        known: dict[str, Any] = {"epsilon": self.epsilon, "delta": 1e-5}
        if self.classes:
            known["classes"] = np.unique(self._named(np.arange(self.outputs + 1))).tolist()
        else:
            known |= {"lower": float(np.min(y)), "upper": float(np.max(y)) + 1.0}
        if self.columns_private:
            known |= {"columns_epsilon": 4.0, "columns_delta": 1e-5}
        used = {name: value for name, value in known.items() if name in KINDS[self.privacy].options()}
        return mechanism_named(self.privacy, **used, source=SeededNoise(self.seed))

    @property
    def local_model(self) -> Any:
        """The same for all organizations."""
        return {"default": None, "linear": Ridge(), "tree": DecisionTreeRegressor(max_depth=3)}[self.model]

    def estimator(self, y: Values) -> Any:
        """With all that was drawn."""
        kind = GALClassifier if self.classes else GALRegressor
        return kind(
            self.parts,
            local_models=self.local_model,
            privacy=self.mechanism(y),
            random_state=self.seed,
            **self.chosen,
        )

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that estimators and ``gal.learn`` have in common."""
        names = ("label_holder", "secrecy", "interactions", "rounds", "n_jobs")
        return {name: getattr(self, name) for name in names} | dict(self.options)


def _column(kind: str, rows: int, rng: np.random.Generator) -> Any:
    numbers = rng.normal(size=rows)
    match kind:
        case "gaps":
            numbers[rng.random(rows) < 0.3] = np.nan
        case "text":
            return rng.choice(["north", "south", "east"], rows)
        case "many texts":
            return np.array([f"shop {one}" for one in rng.integers(0, 200, rows)])
        case "whole":
            return rng.integers(0, 5, rows)
        case "constant":
            return np.full(rows, 3.0)
        case "empty":
            return np.full(rows, np.nan)
        case "huge":
            return 1e9 * numbers**3
        case "wild":  # other rows are of another scale
            return numbers * 10.0 ** rng.integers(-60, 60)
        case "category":
            return pd.Categorical(rng.choice(["red", "green"], rows), categories=["red", "green", "blue"])
        case "money":
            return np.array([f"${one:,.2f}" for one in 1e3 * numbers], dtype=object)
        case "dates":
            return np.datetime64("2020-01-31") + rng.integers(0, 900, rows).astype("timedelta64[D]")
        case "mixed":
            return np.where(rng.random(rows) < 0.2, "n/a", numbers.round(1).astype(object))
        case "flags":
            return numbers > 0
    return numbers


def _as_numbers(column: Any) -> Values:
    """What a label can follow."""
    values = pd.factorize(column)[0] % 7 if column.dtype.kind not in "if" else column.to_numpy(np.float64)
    values = np.nan_to_num(values.astype(np.float64))
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))


def any_tables(
    *, most_rows: int = 300, most_rounds: int = 3, few: bool = True
) -> st.SearchStrategy[AnyTable]:
    """Tables and settings of all kinds.

    All follows from one number: choices of their own would be changed one by one, and most tables be alike.
    """
    return st.integers(0, 2**32 - 1).map(lambda seed: _drawn(seed, most_rows, most_rounds, few))


def _drawn(seed: int, most_rows: int, most_rounds: int, few: bool) -> AnyTable:
    rng = random.Random(seed)
    classes, organizations = rng.random() < 0.6, rng.randint(1, 8)
    chosen = sorted(rng.sample(sorted(OPTIONS), rng.choice([0, 0, 1, 2])))
    options = {name: rng.choice(OPTIONS[name]) for name in chosen}
    model = rng.choice(["default", "default", "linear", "tree"])
    kinds = OF_LINEAR if model == "linear" or "preset" in chosen else OF_TREES if model == "tree" else COLUMNS
    suits = [name for name, kind in KINDS.items() if ("classes" if classes else "numbers") in kind.suits]
    privacy = rng.choice([NONE, rng.choice(suits)])
    secrecy = rng.choice([None, None, "sums", Sums(drop_outs=1)]) if organizations > 4 else None
    probes = privacy == NONE and secrecy is None and organizations > 1 and rng.random() < 0.3
    if probes:
        options = {"validation_fraction": 0.3} | options
    return AnyTable(
        rows=round(30 * (most_rows / 30) ** rng.random()),
        outputs=rng.choice([rng.randint(2, 3), rng.randint(2, 30)]) if classes else rng.randint(1, 3),
        classes=classes,
        columns=tuple(rng.choices(kinds, k=organizations + rng.randint(0, 4))),
        organizations=organizations,
        seed=rng.randrange(10_000),
        rare=rng.random() < 0.5,
        written=rng.choice(["codes", "text", "objects", "flags"]) if classes else "codes",
        twice=rng.random() < 0.1,
        weights=rng.choice(["none", "none", "any", "some", "few"]) if privacy == NONE else "none",
        model=model,
        privacy=privacy,
        epsilon=rng.choice([0.1, 2.0, 20.0]),
        columns_private=rng.random() < 0.25,
        secrecy=secrecy,
        interactions=rng.randint(1, 5) if probes else 0,
        label_holder=f"o{rng.randrange(organizations)}",
        n_jobs=rng.choice([None, None, None, 2]),
        rounds=rng.randint(1, most_rounds),
        options=tuple(sorted(options.items())),
        few=few,
    )


@contextmanager
def few_are_many(*, few: bool) -> Iterator[None]:
    """Small tables go the ways of large ones; forests have few trees."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items() if few else ():
            patch.setattr(name, value)
        yield


def check(drawn: AnyTable, folder: Path) -> str:
    """Fit, predict, store, load and resume: what came of it, "fitted" or an error of GAL's own."""
    table = drawn.table(drawn.rows, 0)
    y = drawn.labels(table)
    with few_are_many(few=drawn.few):
        try:
            model = drawn.estimator(y).fit(table, y, sample_weight=drawn.sample_weight())
        except GALError as error:
            return f"{type(error).__name__}: {error}"
        new = drawn.table(17, 1)
        for rows in (table, new):
            check_predictions(model, rows, drawn)
        check_stored(model, new, folder / "model.gal")
        if drawn.organizations > 1 and drawn.secrecy is None:
            others = set(drawn.parts) - {drawn.label_holder}
            check_predictions(model, new, drawn, missing=[min(others)])
        check_resumed(drawn, table, y)
    return "fitted"


def check_predictions(model: Any, rows: Any, drawn: AnyTable, **options: Any) -> None:
    """Finite numbers; probabilities that add up to 1."""
    predicted = model.predict(rows, **options)
    assert len(predicted) == len(rows)
    if not drawn.classes:
        assert np.isfinite(predicted).all(), "a prediction is no finite number"
        return
    probability = model.predict_proba(rows, **options)
    assert ((probability >= 0) & (probability <= 1)).all(), "a probability is not from 0 to 1"
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-9)
    assert set(predicted) <= set(model.classes_)


def check_stored(model: Any, rows: Any, path: Path) -> None:
    """A saved and loaded model predicts the same bits."""
    model.save(path)
    loaded = type(model).load(path)
    ask = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    assert getattr(loaded, ask)(rows).tobytes() == getattr(model, ask)(rows).tobytes()


def check_resumed(drawn: AnyTable, table: Any, y: Values) -> None:
    """A learning that goes on after its first round ends as one that was not interrupted."""
    if drawn.privacy != NONE:
        return
    names = list(pd.DataFrame(table))
    frame = pd.DataFrame(table)

    def organizations() -> list[Organization]:
        return [
            Organization(name, frame[[names[place] for place in places]], drawn.local_model)
            for name, places in drawn.parts.items()
        ]

    seen: list[Progress] = []
    given: dict[str, Any] = {
        "kind": "classification" if drawn.classes else "regression",
        "sample_weight": drawn.sample_weight(),
        "seed": drawn.seed,
        **drawn.chosen,
    }
    members = organizations()
    try:
        whole = gal.learn(y, members, on_round=seen.append, **given)
    except GALError:
        return  # other rows validate than an estimator draws, and their weights may all be 0
    expected = gal.predict(whole, members).output
    assert np.isfinite(expected).all()
    if seen:
        resumed = gal.learn(y, members, progress=seen[0], **given)
        np.testing.assert_array_equal(gal.predict(resumed, members).output, expected)
