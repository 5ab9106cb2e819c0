"""Whatever table is learned in whatever setting: finite predictions, or an error with a sentence of ours."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import _safe_indexing

from gal import GALClassifier, GALRegressor, Organization, learn, predict
from gal.assembling import grouped
from gal.core.state import Progress
from gal.errors import GALError, InvalidOptionError
from gal.privacy import SeededNoise
from gal.privacy.registry import KINDS, NONE, mechanism_named
from gal.secure_aggregation import Sums

pytestmark = [
    pytest.mark.filterwarnings("ignore::gal.warnings.GALWarning"),
    # scikit-learn's, of labels with nearly as many classes as rows, and of forests on few rows
    pytest.mark.filterwarnings("ignore:The number of unique classes"),
    pytest.mark.filterwarnings("ignore:Using the fractional value"),
]
Values = NDArray[Any]
NUMBERS = ("numbers", "whole", "constant")
GAPPED = (*NUMBERS, "gaps", "huge")
TEXTS = ("text", "many texts", "category", "money", "dates", "mixed")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "linear": NUMBERS,
    "tree": GAPPED,
    "default": (*GAPPED, *TEXTS, "empty", "wild", "flags"),
}
"""Kinds of columns that a local model takes; the paper's takes those of a linear one."""
LOCALS = {"default": None, "linear": Ridge(), "tree": DecisionTreeRegressor(max_depth=3)}
OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "stacking": (False, True),
    "cross_validation": (0, 2, 3, "always"),
    "validation_fraction": (0.0, 0.3),
    "fitted": ("in-sample", "held-out"),
    "patience": (None, 1),
    "initial": ("zero", "best", "mean"),
    "weights": ("uniform",),
    "preset": ("paper",),
}
"""What a few draws say of each; the others leave it to the default."""


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
    rare: bool
    """Each class has half of the rows of the one before; numbers have a few that are far larger."""
    text: bool
    """Whether classes are written as text."""
    weighted: bool
    model: str
    privacy: str
    epsilon: float
    options: Mapping[str, Any]
    resumed: int | None
    """After how many rounds it is interrupted once and resumed, in ``gal.learn``."""

    def table(self, rows: int, seed: int) -> Any:
        """The columns of so many rows: a data frame where there is text, else an array."""
        rng = np.random.default_rng([seed, self.seed])
        frame = pd.DataFrame({f"x{k}": _column(kind, rows, rng) for k, kind in enumerate(self.columns)})
        return frame if {*TEXTS} & {*self.columns} or self.seed % 2 else frame.to_numpy(dtype=np.float64)

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
        return np.array([f"class {code}" for code in codes]) if self.text else codes

    def fit(self, table: Any, y: Values) -> Any:
        """The estimator with all that was drawn; one class more than there are is public."""
        kind = GALClassifier if self.classes else GALRegressor
        local, privacy = LOCALS[self.model], self.mechanism(y)
        model = kind(
            self.parts, local_models=local, privacy=privacy, random_state=self.seed, **grouped(self.options)
        )
        return model.fit(table, y, sample_weight=self.weight(len(y)))

    def members(self, table: Any) -> list[Organization]:
        """The organizations, as ``gal.learn`` takes them."""
        return [
            Organization(name, _safe_indexing(table, part, axis=1), LOCALS[self.model])
            for name, part in self.parts.items()
        ]

    def learn(self, members: list[Organization], y: Values, **how: Any) -> Values:
        """The outputs of what ``gal.learn`` learns."""
        chosen: dict[str, Any] = {
            **self.options,
            "sample_weight": self.weight(len(y)),
            "privacy": self.mechanism(y),
        }
        chosen["kind"] = "classification" if self.classes else "regression"
        return predict(learn(y, members, seed=self.seed, **grouped(chosen | how)), members).output

    def mechanism(self, y: Values) -> Any:
        """The mechanism, if any, with all that is public."""
        if self.privacy == NONE:
            return None
        known: dict[str, Any] = {"epsilon": self.epsilon, "delta": 1e-5}
        if self.classes:
            known["classes"] = np.unique(self._named(np.arange(self.outputs + 1))).tolist()
        else:
            known |= {"lower": float(np.min(y)), "upper": float(np.max(y)) + 1.0}
        used = {name: value for name, value in known.items() if name in KINDS[self.privacy].options()}
        return mechanism_named(self.privacy, **used, source=SeededNoise(self.seed))

    def weight(self, rows: int) -> Values | None:
        """The weight of each row, if any."""
        return np.random.default_rng(3).exponential(size=rows) if self.weighted else None

    @property
    def parts(self) -> Mapping[str, list[int]]:
        """The columns of each organization."""
        return {f"o{one}": list(range(one, len(self.columns), self.organizations)) for one in self.names}

    @property
    def names(self) -> range:
        """Numbers of the organizations."""
        return range(self.organizations)


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


def drawn(seed: int, most_rows: int) -> AnyTable:
    """All follows from one number: hypothesis would change choices one by one, and most tables be alike."""
    rng = random.Random(seed)
    classes, organizations = rng.random() < 0.6, rng.randint(1, 8)
    chosen = sorted(rng.sample(sorted(OPTIONS), rng.choice([0, 0, 1, 2])))
    options: dict[str, Any] = {name: rng.choice(OPTIONS[name]) for name in chosen}
    options |= {"rounds": rng.randint(1, 3), "n_jobs": rng.choice([None, None, None, 2])}
    options["label_holder"] = f"o{rng.randrange(organizations)}"
    model = rng.choice(["default", "default", "linear", "tree"])
    suits = [name for name, kind in KINDS.items() if ("classes" if classes else "numbers") in kind.suits]
    privacy = rng.choice([NONE, rng.choice(suits)])
    options["secure_aggregation"] = (
        rng.choice([None, None, "sums", Sums(drop_outs=1)]) if organizations > 4 else None
    )
    if privacy == NONE and options["secure_aggregation"] is None and organizations > 1 and rng.random() < 0.3:
        options = {"validation_fraction": 0.3} | options | {"interactions": rng.randint(1, 5)}
    kinds = [
        one
        for one in COLUMNS["linear" if "preset" in chosen else model]
        if one != "wild"
        or options["secure_aggregation"] is None  # what cannot be added up is refused when predicting
    ]
    return AnyTable(
        rows=round(30 * (most_rows / 30) ** rng.random()),
        outputs=rng.choice([rng.randint(2, 3), rng.randint(2, 30)]) if classes else rng.randint(1, 3),
        classes=classes,
        columns=tuple(rng.choices(kinds, k=organizations + rng.randint(0, 4))),
        organizations=organizations,
        seed=rng.randrange(10_000),
        rare=rng.random() < 0.5,
        text=rng.random() < 0.5,
        weighted=privacy == NONE and rng.random() < 0.4,
        model=model,
        privacy=privacy,
        epsilon=rng.choice([0.1, 2.0, 20.0]),
        options=options,
        resumed=rng.randint(1, options["rounds"]) if rng.random() < 0.4 else None,
    )


def check(one: AnyTable, path: Path) -> bool:
    """Whether it was learned, or refused with an error of GAL's own; what was learned predicts finite
    numbers, also without an organization, and a saved model and a resumed learning the same bits.
    """
    table = one.table(one.rows, 0)
    try:
        model = one.fit(table, one.labels(table))
    except GALError:
        return False
    new, ask = one.table(17, 1), "predict_proba" if one.classes else "predict"
    others = [f"o{name}" for name in one.names if f"o{name}" != one.options["label_holder"]]
    missing = {"missing": others[:1]} if others and one.options["secure_aggregation"] is None else {}
    for said in (model.predict(table), model.predict(new), model.predict(new, **missing)):
        assert one.classes or np.isfinite(said).all(), "a prediction is no finite number"
        assert not one.classes or set(said) <= set(model.classes_)
    for rows, how in ((table, {}), (new, missing)):
        if one.classes:
            probability = model.predict_proba(rows, **how)
            assert ((probability >= 0) & (probability <= 1)).all(), "a probability is not from 0 to 1"
            np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-9)
    model.save(path)
    assert getattr(type(model).load(path), ask)(new).tobytes() == getattr(model, ask)(new).tobytes()
    if one.resumed is not None:
        check_resumed(one, table)
    return True


def check_resumed(one: AnyTable, table: Any) -> None:
    """A learning that is resumed equals one that was not interrupted; noise is not drawn again."""
    saved: list[bytes] = []
    y, members = one.labels(table), one.members(table)
    whole = one.learn(members, y, on_round=lambda progress: saved.append(pickle.dumps(progress)))
    progress: Progress = pickle.loads(saved[min(one.resumed or 1, len(saved)) - 1])
    if one.privacy != NONE:
        with pytest.raises(InvalidOptionError, match="cannot go on from progress"):
            one.learn(members, y, progress=progress)
    else:
        assert one.learn(members, y, progress=progress).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("examples", "most_rows"),
    [
        (12, 150),
        pytest.param(3000, 2000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
        pytest.param(200, 30_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
    ],
)
def test_any_table(examples: int, most_rows: int, tmp_path: Path) -> None:
    came = Counter[bool]()

    @settings(
        max_examples=examples,
        derandomize=examples < 100,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.integers(0, 2**32 - 1))
    def one(seed: int) -> None:
        table = drawn(seed, most_rows)
        note(repr(table))
        came[check(table, tmp_path / "model.gal")] += 1

    one()
    assert came[True] > came[False], "most are learned, not refused"
