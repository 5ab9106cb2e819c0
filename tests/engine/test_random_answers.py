"""Where no crossed residual is heard, the answers to random targets are looked at, as far as rows believe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import roc_auc_score

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.core.following import LITTLE, SPREAD, believed_share
from gal.core.interactions.crossed_answers import SEEDS, Crossings, Sign, Vector
from gal.core.line_search import Line
from gal.core.losses import BinaryLogLoss
from gal.core.requests import FitRequest, Terms
from gal.core.rows import all_rows
from gal.engine.drivers import InProcess, drive_learning
from gal.engine.interactions import LEAVES_OF_RANDOM, CrossedForest, Interactions
from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.engine.told_labels import tells_of_labels
from gal.storage import load_ensemble, save_ensemble
from gal_bench.adversaries.attacked_tasks import drive
from gal_bench.adversaries.hostile_answers import HostileAnswers, Member

N, ROUNDS = 2100, 2
NAMES = ("a", "b")


@pytest.fixture
def nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much an answer tells of a crossed residual, it is too little."""
    monkeypatch.setattr("gal.core.interactions.crossed_rounds.LEAST", 1.0)


def halves(n: int = 2 * N) -> tuple[Any, Any]:
    """Two views, and labels that hang on a column of each together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    signal = X[:, 0] + X[:, 2] + 2 * X[:, 0] * X[:, 2]
    return X, (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(int)


def columns() -> dict[str, list[int]]:
    return {"a": [0, 1], "b": [2, 3]}


@pytest.mark.usefixtures("nothing_is_heard", "small_forests")
def test_they_help_where_no_crossed_residual_is_heard(tmp_path: Path) -> None:
    """Everybody's answers, and no sign, to trees of two kinds; stored and read back they say the same."""
    X, y = halves()
    view = {"a": X[:, :2], "b": X[:, 2:]}
    unseen = {name: view[name][N:] for name in NAMES}
    outputs = {}
    for signs in (False, True):
        members = {name: Organization(name, view[name][:N]) for name in NAMES}
        options = Options(rounds=ROUNDS, interactions=signs, closing=False)
        task = make_task(class_labels(y[:N], options), NAMES, options, label_holder="a", seed=0)
        ensemble = drive_learning(task, members, InProcess())
        outputs[signs] = gal.predict(ensemble, list(members.values()), unseen).output
    assert isinstance(ensemble.crossing, CrossedForest)
    further = range(task.rounds + 1, task.rounds + SEEDS + 1)
    assert ensemble.crossing.crossings.vectors == ()
    assert ensemble.crossing.crossings.seen == tuple((round, name) for round in further for name in NAMES)
    trees = ensemble.crossing.model.estimators_
    assert [tree.min_samples_leaf for tree in trees] == [leaf for leaf in LEAVES_OF_RANDOM for _ in range(6)]
    assert len({tree.random_state for tree in trees}) == len(trees)
    assert ensemble.asked_rounds == (*range(1, ensemble.n_rounds + 1), *further)
    gain = roc_auc_score(y[N:], outputs[True]) - roc_auc_score(y[N:], outputs[False])
    assert gain > 0.01
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    again = load_ensemble(tmp_path / "ensemble.gal")
    said = gal.predict(again, list(members.values()), unseen).output
    np.testing.assert_array_equal(said, outputs[True])
    alone = gal.predict(ensemble, list(members.values()), {"a": unseen["a"]})
    assert alone.degraded.all()


@pytest.mark.usefixtures("nothing_is_heard")
def test_of_several_classes_and_numbers_they_are_not_looked_at() -> None:
    X, y = halves(N)
    three = GALClassifier(columns(), rounds=1, random_state=0, interactions=True).fit(X, y + (X[:, 1] > 1))
    numbers = GALRegressor(columns(), rounds=1, random_state=0, interactions=True)
    numbers.fit(X, X[:, 0] * X[:, 2] + y)
    assert three.crossing_ is None
    assert numbers.crossing_ is None


def test_what_is_seen_stands_last_as_it_is() -> None:
    said = {(3, "a"): [[1.0], [2.0]], (3, "b"): [[5.0], [7.0]]}
    answers = {key: np.array(values, dtype=np.float32) for key, values in said.items()}
    crossings = Crossings((), {}, {}, ((3, "a"), (3, "b")))
    table = crossings.features(np.zeros((2, 1)), {"b": np.full((2, 1), 4.0)}, answers)
    assert crossings.answered == [(3, "a"), (3, "b")]
    np.testing.assert_array_equal(table, [[0.0, 4.0, 1.0, 5.0], [0.0, 4.0, 2.0, 7.0]])


@pytest.mark.parametrize("lies", [True, False])
def test_who_remembers_labels_of_fitted_rows_is_not_believed(lies: bool) -> None:
    """An answer that is the label of every fitted row, and noise on the others, moves no prediction; one that
    tells as much of all rows does.
    """
    rng, options = np.random.default_rng(0), Options(interactions=True)
    y = rng.integers(0, 2, size=N)
    task = make_task(class_labels(y, options), NAMES, options, label_holder="a", seed=0)
    told = np.where(task.rows.is_fit, y, rng.integers(0, 2, size=N)) if lies else y
    said = {(11, "b"): (told + rng.normal(size=N))[:, None].astype(np.float32)}
    nothing = np.zeros((N, 1))
    model = Interactions(coarse=True)(
        task, Crossings((), {}, {}, ((11, "b"),)), nothing, nothing, {}, said, []
    )
    assert (model is None) == lies


@dataclass
class Remembers(HostileAnswers):
    """Fits honestly; but to random targets it also answers with the first residual that it got: added, as
    a size, or as the sign that two answers have together.
    """

    how: str = "honest"
    crossed: int = 0

    def in_learning(self, request: FitRequest, terms: Terms, honest: Any) -> Any:
        self.crossed += request.target == "crossed"
        if request.target != "random" or self.how == "honest":
            return honest
        first, rng = np.nan_to_num(self.seen[1]), np.random.default_rng(request.round)
        signs = rng.choice([-1.0, 1.0], size=first.shape)
        known = np.where(first == 0, rng.choice([-1.0, 1.0], size=first.shape), np.sign(first))
        if self.how == "size":
            return honest.std() * signs * (1.5 + 0.5 * known)
        if self.how == "two":
            half = np.random.default_rng((request.round - 1) // 2).choice([-1.0, 1.0], size=first.shape)
            return honest.std() * half * (1.0 if request.round % 2 else known)
        return honest + (0.5 if self.how == "added" else -0.5) * honest.std() * first / first.std()


@pytest.mark.parametrize("how", ["honest", "added", "taken off", "size", "two"])
@pytest.mark.usefixtures("nothing_is_heard", "small_forests")
def test_who_tells_of_labels_where_there_are_none_has_no_part_in_it(how: str) -> None:
    """Neither its answers nor signs of them are used, and no residual is crossed for it; the others go on."""
    X, y = halves(N)
    views = {"a": X[:, :1], "b": X[:, 1:2], "c": X[:, 2:]}
    members = {name: Member(Organization(name, view)) for name, view in views.items()}
    liar = members["b"].attack = Remembers(np.random.default_rng(0), how=how)
    options = Options(rounds=ROUNDS, closing=False, interactions=True)
    ensemble = drive(
        make_task(class_labels(y, options), list(views), options, label_holder="a", seed=0), members
    )
    assert ensemble.crossing is not None
    lies = how != "honest"
    assert {name for _, name in ensemble.crossing.crossings.seen} == (set("ac") if lies else set("abc"))
    assert (liar.crossed == 0) == lies
    assert ("random targets that tell of labels (b)" in ensemble.stopped) == lies


@pytest.mark.usefixtures("nothing_is_heard", "small_forests")
def test_what_she_knows_by_herself_is_no_assistance() -> None:
    """Where all others are left out, her own answers alone are not looked at."""
    X, y = halves(N)
    members = {name: Member(Organization(name, X[:, [place]])) for place, name in enumerate("ab")}
    members["b"].attack = Remembers(np.random.default_rng(0), how="added")
    options = Options(rounds=ROUNDS, closing=False, interactions=True)
    ensemble = drive(
        make_task(class_labels(y, options), ["a", "b"], options, label_holder="a", seed=0), members
    )
    assert ensemble.crossing is None
    assert "tell of labels (b)" in ensemble.stopped


def test_few_rows_that_were_never_sent_name_nobody() -> None:
    options = Options(interactions=True)
    y = np.arange(N) % 2
    task = make_task(class_labels(y, options), NAMES, options, label_holder="a", seed=0)
    known = np.where(task.rows.is_fit, y, 1 - y)[:, None].astype(np.float32)
    assert tells_of_labels(task, [known])
    assert not tells_of_labels(replace(task, crossing=None, rows=all_rows(N)), [known])
    assert not Interactions(coarse=False).betrays(task, [known])  # as for several classes and noisy labels


@pytest.mark.parametrize("seed", range(6))
def test_honest_answers_do_not_look_like_remembered_labels(seed: int) -> None:
    """A rare class and heavy tails, where a few rows say much."""
    rng, options = np.random.default_rng(seed), Options(interactions=True)
    y = (rng.random(N) < 0.01).astype(int)
    task = make_task(class_labels(y, options), NAMES, options, label_holder="a", seed=seed)
    amount = np.exp(1.5 * rng.normal(size=(N, 1)) + 2 * y[:, None]).astype(np.float32)
    assert not tells_of_labels(task, [amount, rng.standard_cauchy((N, 1)).astype(np.float32)])


@pytest.mark.usefixtures("small_forests")
def test_crossed_answers_have_a_rule_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.engine.interactions.believed_share", lambda _: 0.125)
    rng, options = np.random.default_rng(0), Options(interactions=True)
    y = rng.integers(0, 2, size=N)
    task = make_task(class_labels(y, options), NAMES, options, label_holder="a", seed=0)
    answers = {(11, "b"): (y + rng.normal(size=N))[:, None].astype(np.float32)}
    nothing, vector = np.zeros((N, 1)), Vector(11, "b", Sign("a", None, (1.0,), 0.0), 9.0)
    shares = []
    for crossings in (Crossings((), {}, {}, ((11, "b"),)), Crossings((vector,), {}, {})):
        model = Interactions(coarse=True)(task, crossings, nothing, nothing, {"a": nothing}, answers, [])
        assert model is not None
        shares.append(model.share)
    assert shares[0] == 0.125
    assert shares[1] > 0.5


def test_noisy_labels_look_at_none_of_it() -> None:
    options = Options(interactions=4)
    labels = class_labels(np.arange(N) % 2, options)
    tasks = [
        make_task(labels, NAMES, options, label_holder="a", private=private) for private in (True, False)
    ]
    assert [one.crossing is not None and one.crossing.coarse for one in tasks] == [False, True]


def line(n: int, gain: float, *, weight: Any = None, seed: int = 0) -> Line:
    """Labels of which a direction tells something, or nothing."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 1))
    y = (rng.random((n, 1)) < 1 / (1 + np.exp(-gain * direction))).astype(float)
    return Line(BinaryLogLoss(), y, np.zeros((n, 1)), direction, weight)


@pytest.mark.parametrize("n", [40, 300])
def test_the_share_is_the_most_likely_one(n: int) -> None:
    """The same as all rows' loss and a normal density, minimised by another method."""
    along = line(n, 0.4)
    found = minimize_scalar(
        lambda share: n * along.value(share) + share**2 / (2 * SPREAD**2), bounds=(0, 1), method="bounded"
    )
    assert believed_share(along) == pytest.approx(found.x, abs=1e-3)


def test_a_row_that_counts_twice_is_two_rows_and_many_that_count_nothing_are_none() -> None:
    few = line(60, 0.5)
    counts = np.concatenate([np.full(60, 3.0), np.zeros(60)])
    more = line(60, -2.0, seed=1)
    both = Line(
        few.loss,
        np.concatenate([few.y, more.y]),
        np.zeros((120, 1)),
        np.concatenate([few.direction, more.direction]),
        counts,
    )
    assert believed_share(both) == pytest.approx(believed_share(few), abs=1e-5)


def test_many_rows_are_followed_as_they_say_and_few_less() -> None:
    shares = [
        np.mean([believed_share(line(n, 0.5, seed=seed)) for seed in range(20)]) for n in (10, 100, 5000)
    ]
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] == pytest.approx(0.5, abs=0.03)
    assert believed_share(line(5000, 3.0)) == 1.0


def test_a_direction_against_the_labels_or_worth_little_is_not_followed() -> None:
    assert believed_share(line(500, -0.3)) == 0.0
    assert believed_share(line(5000, LITTLE / 3)) == 0.0


def test_where_there_is_nothing_a_share_by_chance_costs_a_quarter_of_a_row_at_most() -> None:
    n, lost = 400, []
    for seed in range(200):
        share = believed_share(line(n, 0.0, seed=seed))
        other = line(4000, 0.0, seed=1000 + seed)
        lost.append(other.value(share) - other.value(0.0))
    assert np.mean(lost) < 1 / (4 * n) + 2 * np.std(lost) / np.sqrt(len(lost))
