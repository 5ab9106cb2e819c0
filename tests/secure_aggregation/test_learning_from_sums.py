"""Learning and predicting from sums in one process: plain GAL with equal weights, without single replies."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LinearRegression, Ridge

from gal.assembling import grouped

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal import GALClassifier, GALRegressor, Organization, Validation, learn, predict
from gal.core.requests import FitRequest
from gal.core.state import Progress
from gal.errors import InvalidInputError, InvalidOptionError, LocalModelError
from gal.secure_aggregation import Sums
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.in_process import Summing
from gal.secure_aggregation.masking import Ring, from_ring, to_ring
from gal.secure_aggregation.terms import SUM

NAMES = ("bank", "a", "b", "c", "d")
PLAIN: dict[str, Any] = {"weights": "uniform", "stacking": False}
COLUMNS = {name: [2 * m, 2 * m + 1] for m, name in enumerate(NAMES)}
EQUAL = 5e-4
"""Of the label's spread: what rounding on one grid may change."""


def table(n: int = 240, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, 1e4 * (X @ rng.normal(size=10) + np.sin(2 * X[:, 3]) + 0.3 * rng.normal(size=n))


def organizations(
    X: NDArray[np.float64], model: Any = None, names: Sequence[str] = NAMES
) -> list[Organization]:
    used = Ridge() if model is None else model
    return [Organization(name, X[:, 2 * m : 2 * m + 2], used) for m, name in enumerate(names)]


def views(X: NDArray[np.float64], names: Sequence[str] = NAMES) -> dict[str, NDArray[np.float64]]:
    return {name: X[:, 2 * m : 2 * m + 2] for m, name in enumerate(names)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale_residual": False},
        {"fitted": "held-out", "validation_fraction": 0.2},
        {"line_search": 0.5, "cross_validation": 0},
        {"label_holder": "d"},
        {"loss": "huber"},
    ],
    ids=str,
)
def test_it_is_plain_learning_with_equal_weights(options: dict[str, Any]) -> None:
    X, y = table()
    new, _ = table(40, seed=1)
    plain, sums = organizations(X), organizations(X)
    expected = learn(y, plain, rounds=4, **grouped(PLAIN | options))
    found = learn(y, sums, rounds=4, secure_aggregation="sums", **grouped(options))
    assert found.n_rounds == expected.n_rounds > 0
    for here, there in ((None, None), (views(new), views(new))):
        differ = predict(found, sums, here).output - predict(expected, plain, there).output
        assert np.abs(differ).max() <= EQUAL * y.std()
    assert found.summed == tuple(sorted(set(NAMES) - {options.get("label_holder", "bank")}))
    for mine, plain_round in zip(found.rounds, expected.rounds, strict=True):
        assert mine.rate == pytest.approx(plain_round.rate, rel=0.01)
        own = mine.round == 1 and "validation_fraction" in options
        assert mine.weights[SUM] == pytest.approx(0.0 if own else 0.8)
    assert found.contributions is not None
    assert expected.contributions is not None
    assert found.contributions.gain.value == pytest.approx(expected.contributions.gain.value, rel=1e-3)
    assert SUM in found.contributions.by_organization


def test_an_estimator_for_classes(tmp_path: Path) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    parts = {name: range(6 * m, 6 * m + 6) for m, name in enumerate(NAMES)}
    setting: dict[str, Any] = {"local_models": LinearRegression(), "rounds": 3, "random_state": 0}
    expected = GALClassifier(parts, **grouped(setting | PLAIN)).fit(X, y)
    model = GALClassifier(parts, **grouped(setting), secure_aggregation="sums").fit(X, y)
    wanted = expected.decision_function(X)
    assert np.abs(model.decision_function(X) - wanted).max() <= EQUAL * wanted.std()
    explained = model.explain(X)
    assert list(explained) == ["base", "bank", SUM]
    assert np.allclose(explained.sum(axis=1), model.decision_function(X))
    assert model.contributions_ is not None
    assert set(model.contributions_.by_organization) == {SUM}
    model.save(tmp_path / "model.gal")
    loaded = GALClassifier.load(tmp_path / "model.gal")
    assert (loaded.decision_function(X) == model.decision_function(X)).all()
    assert loaded.ensemble_.summed == ("a", "b", "c", "d")
    with pytest.raises(
        InvalidInputError, match="b not there: with secure aggregation a prediction is one sum"
    ):
        model.predict(X, missing=["b"])
    with pytest.raises(InvalidOptionError, match="no predictions after each round"):
        next(model.staged_predict(X))


def searched(found: Any, seen: set[int]) -> list[bytes]:
    """The bytes of all arrays that can be reached from something, by whatever way."""
    if id(found) in seen or isinstance(found, type):
        return []
    seen.add(id(found))
    if isinstance(found, np.ndarray):
        return [np.ascontiguousarray(found).tobytes()]
    if isinstance(found, Mapping):
        return [one for key, value in found.items() for one in searched(value, seen)]
    return [one for value in gc.get_referents(found) for one in searched(value, seen)]


def test_the_label_holder_has_no_single_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """No single reply in the inputs of Algorithm 1, the progress, the ensemble or the collectors."""
    X, y = table()
    members = organizations(X)
    answers: list[NDArray[np.float32]] = []
    told: list[Any] = []
    progress: list[Any] = []
    added = Summing._added

    def listening(self: Summing, request: FitRequest, replies: Mapping[str, Any]) -> dict[str, Any]:
        answers.extend(replies[name] for name in self.members)
        found = added(self, request, replies)
        told.append(found)
        return found

    monkeypatch.setattr(Summing, "_added", listening)
    collectors: list[Any] = []

    def collecting(*given: Any) -> Collector:
        collectors.append(Collector(*given))
        return collectors[-1]  # type: ignore[no-any-return]

    def writing(*given: Any) -> Ring:
        written.append(to_ring(*given))
        return written[-1]

    written: list[Ring] = []
    monkeypatch.setattr("gal.secure_aggregation.member.to_ring", writing)
    monkeypatch.setattr("gal.secure_aggregation.in_process.Collector", collecting)
    ensemble = learn(y, members, rounds=3, secure_aggregation="sums", on_round=progress.append)
    assert len(answers) == 4 * len(told) >= 4 * 3
    own = b"\n".join(searched([told, progress, ensemble, [vars(one) for one in collectors]], set()))
    assert len(own) > 8 * len(y) * len(told)
    for answer in answers:
        whole = answer.astype(np.float64)
        forms: list[NDArray[Any]] = [answer, whole, answer / np.float32(4), whole / 4]
        assert not [form for form in forms if form.tobytes() in own]
    assert len(written) == len(answers)
    assert not [form for one in written for form in (one, from_ring(one, 1.0)) if form.tobytes() in own]
    assert np.isfinite(predict(ensemble, members).output).all()
    total = told[0][SUM].astype(np.float64)
    assert total.tobytes() in own, "the search finds what is there"


class FailsFrom(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge that fails from a number of fits on."""

    fits = 0

    def __init__(self, working: int = 0) -> None:
        self.working = working

    def fit(self, X: Any, y: Any) -> FailsFrom:
        FailsFrom.fits += 1
        if FailsFrom.fits > self.working:
            raise ValueError("out of order")
        self.inner_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.inner_.predict(X)


def failing(X: NDArray[np.float64], working: int) -> list[Organization]:
    """All organizations, of which b works so many times and then fails."""
    FailsFrom.fits = 0
    members = organizations(X)
    members[2] = Organization("b", X[:, 4:6], FailsFrom(working))
    return members


def test_who_drops_out_stays_out_where_that_was_agreed() -> None:
    X, y = table()
    members = failing(X, 2)
    found = learn(y, members, rounds=5, secure_aggregation=Sums(drop_outs=1), validation=Validation(folds=0))
    assert [sorted(done.left_out) for done in found.rounds] == [[], [], ["b"], ["b"], ["b"]]
    assert FailsFrom.fits == 3, "it is not asked again"
    plain = failing(X, 2)
    expected = learn(y, plain, rounds=5, validation=Validation(folds=0), **grouped(PLAIN))
    assert found.train_loss == pytest.approx(expected.train_loss, rel=1e-5)
    answer = predict(found, members)
    assert answer.degraded.all()
    assert set(answer.missing) <= {"b"}
    without = predict(expected, plain, {name: view for name, view in views(X).items() if name != "b"})
    assert np.abs(answer.output - without.output).max() < 0.05 * y.std()


@pytest.mark.parametrize("finished", [1, 3])
def test_a_resumed_learning_keeps_its_grid_and_leaves_dropped_members_out(finished: int) -> None:
    X, y = table()
    members, saved = failing(X, 2), list[Progress]()
    options: dict[str, Any] = {"rounds": 5, "secure_aggregation": Sums(drop_outs=1), "scale_residual": False}
    whole = learn(y, members, validation=Validation(folds=0), on_round=saved.append, **grouped(options))
    FailsFrom.fits = min(finished, 2)
    resumed = learn(
        y, members, validation=Validation(folds=0), progress=saved[finished - 1], **grouped(options)
    )
    assert len(set(whole.summed_units)) > 1
    assert repr(resumed) == repr(whole)
    assert FailsFrom.fits == (3 if finished == 1 else 2)
    assert predict(resumed, members).output.tobytes() == predict(whole, members).output.tobytes()


@pytest.mark.parametrize("finished", [1, 2])
def test_a_learning_is_resumed_after_a_round_in_which_nothing_was_added_up(finished: int) -> None:
    X, y = table()
    members, saved = organizations(X), list[Progress]()
    options: dict[str, Any] = {"rounds": 3, "secure_aggregation": "sums", "validation_fraction": 0.2}
    whole = learn(y, members, on_round=saved.append, **grouped(options))
    assert whole.rounds[0].weights[SUM] == 0.0  # the label holder's own
    resumed = learn(y, members, progress=saved[finished - 1], **grouped(options))
    assert predict(resumed, members).output.tobytes() == predict(whole, members).output.tobytes()


def test_no_drop_outs_by_default() -> None:
    X, y = table()
    members = failing(X, 1)
    with pytest.raises(LocalModelError, match=r"b not there: a sum needs 4 of the 4 members.*out of order"):
        learn(y, members, rounds=5, secure_aggregation="sums", validation=Validation(folds=0))
    model = GALRegressor(COLUMNS, rounds=2, secure_aggregation="sums", local_models=Ridge())
    by_row = {"b": np.arange(len(X)) < 7}
    predicted = model.fit(X, y).predict(X, missing=by_row)
    assert (predicted != model.predict(X)).sum() == 7


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"weights": "exact"}, "equal weights"),
        ({"stacking": True}, "a stacker needs single replies"),
        ({"interactions": 3}, "interaction probes go to one organization each"),
        ({"secure_aggregation": "plus"}, "secure_aggregation must be None, 'sums' or"),
        (
            {"secure_aggregation": Sums(2)},
            "at least 5 organizations beside the label holder, of which 2 may drop out",
        ),
    ],
)
def test_what_needs_single_answers_is_off_and_says_so(options: dict[str, Any], what: str) -> None:
    X, y = table(60)
    with pytest.raises(InvalidOptionError, match=what):
        learn(y, organizations(X), **grouped({"secure_aggregation": "sums", **options}))


def test_too_few_organizations_are_refused() -> None:
    X, y = table(60)
    with pytest.raises(InvalidOptionError, match="at least 3 organizations beside the label holder"):
        learn(y, organizations(X, names=NAMES[:3]), secure_aggregation="sums")
    learn(y, organizations(X, names=NAMES[:4]), secure_aggregation="sums", rounds=1)
    with pytest.raises(InvalidInputError, match="no organization can be called 'the others together'"):
        learn(y, organizations(X, names=("bank", "a", "b", SUM)), secure_aggregation="sums")
    with pytest.raises(InvalidOptionError, match="drop_outs must be a whole number"):
        Sums(drop_outs=-1)
