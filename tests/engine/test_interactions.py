"""Crossed residuals: what two organizations know only together is heard; where there
is nothing, nothing is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.core.interactions.crossed_answers import Crossings, Sign, Vector
from gal.core.interactions.crossed_rounds import _echoed_products, _Heard, _needed, _products, _some_rows
from gal.core.requests import FitRequest
from gal.core.state import Progress
from gal.engine.drivers import InProcess, drive_learning
from gal.engine.interactions import FIRST_TREES, LEAVES, TREES, Interactions
from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.errors import InvalidOptionError
from gal.privacy.leakage.transcript import Transcript
from gal.storage import load_ensemble, save_ensemble

N, WIDTH = 2500, 3
FEW = 1000
"""Rows where not how much is heard is looked at, and the number of what is many is lowered."""


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.engine.task_making.LARGE", FEW - 100)
    monkeypatch.setattr("gal.engine.task_making.SIGNS", 6)
    monkeypatch.setattr("gal.engine.interactions.TREES", 12)


def views(parties: int, n: int = 2 * N, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, WIDTH)) for _ in range(parties)]


def classes(signal: Any, seed: int = 0) -> Any:
    return (np.random.default_rng(100 + seed).random(len(signal)) < 1 / (1 + np.exp(-signal))).astype(int)


def divided(parties: int) -> dict[str, list[int]]:
    return {name: list(range(WIDTH * at, WIDTH * (at + 1))) for at, name in enumerate("abcdef"[:parties])}


def auc(model: Any, X: Any, y: Any) -> float:
    return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))


TASKS: dict[str, tuple[int, Any, float]] = {
    "xor": (2, lambda a, b: 4 * np.sign(a[:, 0] * b[:, 1]), 0.015),
    "product": (2, lambda a, b: 3 * a[:, 0] * b[:, 0], 0.03),
    "product and main effects": (2, lambda a, b: 2 * a[:, 0] * b[:, 0] + a[:, 1] + b[:, 0], 0.03),
    "ring": (2, lambda a, b: 8.0 * (a[:, 0] ** 2 + b[:, 0] ** 2 < 1.4) - 4, 0.03),
    "parity of three columns": (2, lambda a, b: 4 * np.sign(a[:, 0] * a[:, 1] * b[:, 0]), 0.03),
    "xor of two assistants": (3, lambda _, b, c: 4 * np.sign(b[:, 0] * c[:, 1]), 0.03),
}


@pytest.mark.parametrize("name", TASKS)
def test_what_two_know_only_together_is_heard(name: str) -> None:
    """Nearly as good as the best there can be, where the sum of both is worth little."""
    parties, signal, near = TASKS[name]
    parts = views(parties)
    truth = signal(*parts)
    X, y = np.hstack(parts), classes(truth)
    model = GALClassifier(divided(parties), random_state=0, interactions=True).fit(X[:N], y[:N])
    assert model.crossing_ is not None
    assert auc(model, X[N:], y[N:]) > roc_auc_score(y[N:], truth[N:]) - near
    plain = GALClassifier(divided(parties), random_state=0).fit(X[:N], y[:N])
    gain = 0.02 if name != "ring" else -0.002  # so few columns the closing model puts together by itself
    assert auc(model, X[N:], y[N:]) > auc(plain, X[N:], y[N:]) + gain


def three_together(n: int) -> tuple[Any, Any]:
    """Labels that hang on a column of each of three organizations together, on no two of them."""
    parts = [view[:, :2] for view in views(3, n)]
    return np.hstack(parts), classes(4 * np.sign(parts[0][:, 0] * parts[1][:, 0] * parts[2][:, 1]))


def test_what_three_know_only_together_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of two are multiplied for the third, and nobody gets more of them than were agreed. Stored and
    read back it says the same.
    """
    monkeypatch.setattr("gal.engine.task_making.SIGNS", 4)
    monkeypatch.setattr("gal.engine.interactions.TREES", 12)
    X, y = three_together(2 * N)
    members = {
        name: Organization(name, X[:N, at : at + 2]) for name, at in zip("abc", (0, 2, 4), strict=True)
    }
    options, seen = Options(rounds=1, interactions=True), Transcript()
    task = make_task(class_labels(y[:N], options), list(members), options, label_holder="a", seed=0)
    assert task.crossing is not None
    assert (task.crossing.signs, task.crossing.pairs) == (8, 4)
    ensemble = drive_learning(task, members, InProcess(), on_message=seen)
    assert ensemble.crossing is not None
    vectors = ensemble.crossing.crossings.vectors
    assert any(
        {one.organization, one.sign.organization, one.times.organization} == {"a", "b", "c"}
        for one in vectors
        if one.times is not None
    )
    assert max(map(len, seen.crossed.values())) <= 8
    unseen = {name: X[N:, at : at + 2] for name, at in zip("abc", (0, 2, 4), strict=True)}
    said = gal.predict(ensemble, list(members.values()), unseen).output
    assert roc_auc_score(y[N:], said[:, 0]) > 0.95
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    again = load_ensemble(tmp_path / "ensemble.gal")
    assert again.crossing is not None
    assert again.crossing.crossings == ensemble.crossing.crossings
    np.testing.assert_array_equal(gal.predict(again, list(members.values()), unseen).output, said)


def test_signs_of_two_are_both_taken_back() -> None:
    rng = np.random.default_rng(0)
    parts = {"b": rng.normal(size=(8, 1))}
    answers = {(4, "c"): rng.normal(size=(8, 1)), (9, "a"): rng.normal(size=(8, 1))}
    said = {key: values.astype(np.float32) for key, values in answers.items()}
    vector = Vector(9, "a", Sign("b", None, (1.0,), 0.1), 5.0, Sign("c", 4, (-1.0,), 0.0))
    crossings = Crossings((vector,), {}, {})
    assert crossings.answered == [(4, "c"), (9, "a")]
    values, b, c = said[9, "a"], parts["b"] - 0.1, -said[4, "c"]
    columns = crossings.features(np.zeros((8, 1)), parts, said)
    np.testing.assert_array_equal(columns[:, 2:4], np.hstack([values, values * np.sign(b) * np.sign(c)]))
    np.testing.assert_allclose(columns[:, 4:], np.hstack([b, c]), rtol=1e-6)
    products = crossings.products(parts, said)
    np.testing.assert_array_equal(products["9 a sign"], columns[:, 3:4])
    np.testing.assert_allclose(products["9 a line"], values * b * c, rtol=1e-5)


def test_an_answer_that_is_the_same_for_all_rows_tells_nothing() -> None:
    """Where the residual times a sign has a mean, that is what one of them knows: no other adds to it."""
    task, _, _ = xor_task(interactions=4, validation_fraction=0.1)
    rng = np.random.default_rng(0)
    target = (1 + rng.normal(size=(FEW, 1))).astype(np.float32)
    heard = _Heard(task, {})
    same = (1 + 1e-3 * rng.normal(size=(FEW, 1))).astype(np.float32)
    assert abs(heard.score(same, target)) < 3
    assert heard.score(same + 1e-3 * target, target) > 10


def signed(heard: _Heard, name: str, columns: Any) -> None:
    """What an organization answered to random targets, one after the other."""
    for round, column in enumerate(columns.T, start=2):
        heard.answers[round, name] = column[:, None].astype(np.float32)
    heard.signs[name] = [heard.sign(name, round) for round in range(2, 2 + columns.shape[1])]


@pytest.mark.parametrize("weighed", [False, True])
def test_products_that_tell_most_of_the_residual_come_first(weighed: bool) -> None:
    """Of two others, beside what the third has said; rows that count nothing say nothing."""
    task, _, _ = xor_task(interactions=4, validation_fraction=0.1)
    rng = np.random.default_rng(3)
    heard = _Heard(task, {})
    said = {name: rng.normal(size=(FEW, 4)) for name in "abcd"}
    for name, columns in said.items():
        signed(heard, name, columns)
    chance = rng.normal(size=(FEW, 1))
    residual = np.sign(said["a"][:, [1]] * said["b"][:, [3]] * said["d"][:, [0]]) + chance
    if weighed:
        counts = rng.random(FEW) < 0.5
        other = np.sign(said["a"][:, [0]] * said["b"][:, [1]] * said["c"][:, [2]])
        residual = np.where(counts[:, None], residual, 9 * other)
        heard = replace(heard, task=replace(task, sample_weight=counts.astype(np.float64)))
    several = np.hstack([rng.normal(size=(FEW, 1)), residual])  # it may hide in one of several outputs
    offered = list(_products(heard, several.astype(np.float32), "a"))
    (left, _), (right, _) = offered[0]
    assert {(left.organization, left.round), (right.organization, right.round)} == {("b", 5), ("d", 2)}
    assert len(offered) == 3 * 4 * 4  # each pair of signs of each pair of others, once


def test_products_are_looked_through_on_some_rows_and_of_some_others(monkeypatch: pytest.MonkeyPatch) -> None:
    task, _, _ = xor_task(interactions=4, validation_fraction=0.1)
    monkeypatch.setattr("gal.core.interactions.crossed_rounds.LOOKED_THROUGH", 300)
    rows = _some_rows(task)
    assert len(rows) == 300
    assert np.isin(rows, task.rows.fit).all()
    assert np.abs(np.diff(rows)).max() < 10
    heard = _Heard(task, {})
    for name in "abcdefghij":
        signed(heard, name, np.random.default_rng(ord(name)).normal(size=(FEW, 1)))
    others = [{one.organization for one, _ in two} for two in _products(heard, np.ones((FEW, 1), "f4"), "i")]
    assert len(others) == 15
    assert set.union(*others) == set("jabcde")


def test_what_was_heard_is_followed_before_what_was_hardly_heard() -> None:
    """Beside a good answer the sign that it was crossed with is worth more than a chance answer."""
    task, _, _ = xor_task(interactions=4, validation_fraction=0.1)
    heard, rng = _Heard(task, {}), np.random.default_rng(4)
    for name in "abc":
        signed(heard, name, rng.normal(size=(FEW, 2)))
        heard.answers[9, name] = rng.normal(size=(FEW, 1)).astype(np.float32)
    (a, b, c) = (heard.signs[name][0][0] for name in "abc")
    heard.vectors += [Vector(9, "b", c, 6.0, a), Vector(9, "c", a, 1.2, b), Vector(9, "a", b, 0.5, c)]
    first, *_, last = _echoed_products(heard, "a")
    assert [(sign.organization, sign.round) for sign, _ in first] == [("b", 9), ("c", 2)]
    assert [(sign.organization, sign.round) for sign, _ in last] == [("c", 9), ("b", 2)]
    heard.vectors.append(Vector(9, "c", a, 2.6, b))
    assert [sign.round for sign, _ in next(_echoed_products(heard, "a"))] == [9, 9]


def test_what_three_know_must_tell_more_with_every_pass() -> None:
    """A hint at first, in the end as much as it takes to be kept, which is more where rows are many."""
    assert [_needed(1000, turn) for turn in range(4)] == [1.0, 2.5, 2.5, 2.5]
    many = [_needed(30_000, turn) for turn in range(4)]
    np.testing.assert_allclose(many, [1.0, 90**0.5 / 2, 90**0.5, 90**0.5])


@pytest.mark.usefixtures("few_are_many")
def test_where_three_know_nothing_together_it_ends_soon() -> None:
    options, seen = Options(rounds=1, interactions=True), Transcript()
    members = {name: Organization(name, view) for name, view in zip("abc", views(3, FEW), strict=True)}
    y = classes(np.zeros(FEW), seed=1)
    task = make_task(class_labels(y, options), list(members), options, label_holder="a", seed=0)
    assert task.crossing is not None
    assert task.crossing.signs == 10
    drive_learning(task, members, InProcess(), on_message=seen)
    counts = {name: len(vectors) for name, vectors in seen.crossed.items()}
    assert max(counts.values()) == 4 + 2 + 1  # for pairs, first products, and one that follows them


def test_three_classes_are_heard() -> None:
    a, b = views(2)
    X, three = np.hstack([a, b]), np.digitize(a[:, 0] * b[:, 0], [-0.4, 0.4])
    heard, plain = (
        GALClassifier(divided(2), rounds=1, random_state=0, interactions=signs).fit(X[:N], three[:N])
        for signs in (6, False)
    )
    assert heard.score(X[N:], three[N:]) > plain.score(X[N:], three[N:]) + 0.15


def test_numbers_are_heard() -> None:
    a, b, c = views(3)
    X, signal = np.hstack([a, b, c]), b[:, 0] * c[:, 0] + 0.5 * a[:, 0]
    noisy = signal + 0.3 * np.random.default_rng(1).normal(size=len(signal))
    model = GALRegressor(divided(3), rounds=2, random_state=0, interactions=True)
    said = model.fit(X[:N], noisy[:N]).predict(X[N:])
    assert r2_score(noisy[N:], said) > 0.75  # at most 0.93; the sum alone has 0.19


def test_where_there_is_nothing_to_hear_nothing_is_followed() -> None:
    a, b = views(2)
    X = np.hstack([a, b])
    y = classes(a[:, 0] + b[:, 1])
    plain = GALClassifier(divided(2), random_state=0, local_models=Ridge()).fit(X[:N], y[:N])
    model = clone(plain).set_params(interactions=True).fit(X[:N], y[:N])
    assert model.crossing_ is None
    np.testing.assert_array_equal(model.predict_proba(X[N:]), plain.predict_proba(X[N:]))
    assert model.traffic_.trips <= plain.traffic_.trips + 3


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.usefixtures("few_are_many")
def test_nothing_is_asked_beyond_the_rounds_by_default(preset: str) -> None:
    """However much two organizations know only together: probes reveal columns."""
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]))
    transcript = Transcript()
    model = GALClassifier(divided(2), rounds=2, preset=preset, random_state=0, on_message=transcript)
    assert model.fit(X, y).crossing_ is None
    assert {round for round, _ in transcript.messages} == {1, 2}
    assert transcript.crossed == {}


def test_what_cannot_be_is_said() -> None:
    a, b = views(2, 500)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]))
    wrongs: list[Any] = ["auto", "off", -1, 101, 1.5, None]
    for wrong in wrongs:
        with pytest.raises(InvalidOptionError, match="interactions must be False"):
            GALClassifier(divided(2), interactions=wrong).fit(X, y)
    for asked in (True, 4):
        with pytest.raises(InvalidOptionError, match=f"={asked} is not possible here.*need validation rows"):
            GALClassifier(divided(2), interactions=asked).fit(X, y)
    with pytest.raises(InvalidOptionError, match="need at least two organizations"):
        GALClassifier(divided(1), interactions=True, validation_fraction=0.2).fit(X, y)
    with pytest.raises(InvalidOptionError, match="need a log loss or squared error"):
        GALRegressor(divided(2), loss="huber", interactions=True, validation_fraction=0.2).fit(X, y)
    for possible in (True, 4):
        model = GALClassifier(
            divided(2),
            rounds=1,
            random_state=0,
            interactions=possible,
            validation_fraction=0.2,
            local_models=Ridge(),
        )
        assert model.fit(X, y).ensemble_ is not None


def xor_task(n: int = FEW, **options: Any) -> tuple[Any, dict[str, Organization], Any]:
    a, b = views(2, n)
    y = classes(4 * np.sign(a[:, 0] * b[:, 1]))
    members = {"a": Organization("a", a), "b": Organization("b", b)}
    chosen = Options(rounds=2, **options)
    task = make_task(class_labels(y, chosen), list(members), chosen, label_holder="a", seed=0)
    return task, members, y


def test_what_is_sent_is_the_residual_times_signs_and_few_signs_are_few() -> None:
    task, members, y = xor_task(N, interactions=4)
    seen: list[Any] = []
    with_model = drive_learning(task, members, InProcess(), on_message=lambda asked, _: seen.append(asked))
    assert with_model.crossing is not None
    seeds = [one for step in seen for one in step if one.target == "random"]
    crossed = [one for step in seen for one in step if one.target == "crossed"]
    assert [one.round for one in seeds] == [3, 4, 5, 6]
    assert all(len(one.organizations) == 1 and 7 <= one.round <= 10 for one in crossed)
    assert sum(one.organizations == ("b",) for one in crossed) <= 4
    first = np.abs(seen[0][0].residual)  # no round validates: the residual is that of the first round
    for one in crossed:
        np.testing.assert_array_equal(np.abs(one.residual), first)
        assert 0.4 < np.mean(one.residual * seen[0][0].residual > 0) < 0.6
    correlations = [np.corrcoef(one.residual[:, 0], y[task.rows.fit])[0, 1] for one in seeds]
    assert np.abs(correlations).max() < 0.1  # random targets have no label in them


@pytest.mark.usefixtures("few_are_many")
def test_crossed_answers_are_of_models_that_did_not_see_the_row() -> None:
    task, members, _ = xor_task(interactions=4)
    residual = np.random.default_rng(0).normal(size=(len(task.rows.fit), 1)).astype(np.float32)
    request = FitRequest(9, residual, ("b",), target="crossed")
    values = members["b"].fit(request, task.terms)
    models = members["b"].models["assisted", 9]
    assert len(models) == 2
    for fold, model in enumerate(models):
        rows = task.rows.fit[task.rows.crossing == fold]
        expected = model.predict(members["b"].view[rows])
        np.testing.assert_array_equal(values[rows], expected.astype(np.float32).reshape(-1, 1))


@pytest.mark.usefixtures("few_are_many")
def test_who_does_not_answer_has_no_part_in_it_and_lends_no_sign() -> None:
    a, b, c = views(3, FEW)
    y = classes(4 * np.sign(a[:, 0] * b[:, 1]))

    class Unwilling(Ridge):  # type: ignore[misc]
        def fit(self, X: Any, residual: Any, sample_weight: Any = None) -> Any:
            if abs(residual.mean()) < 1e9 and Unwilling.refuses:
                raise ValueError("not for me")
            return super().fit(X, residual, sample_weight)

        refuses = False

    members = [Organization("a", a), Organization("b", b), Organization("c", c, Unwilling())]
    seen: list[Any] = []

    def after(progress: Progress) -> None:
        Unwilling.refuses = len(progress.rounds) >= 1

    options = Options(rounds=1, interactions=True)
    task = make_task(class_labels(y, options), ["a", "b", "c"], options, label_holder="a", seed=0)
    ensemble = drive_learning(
        task,
        {one.name: one for one in members},
        InProcess(),
        on_round=after,
        on_message=lambda asked, _: seen.extend(asked),
    )
    assert ensemble.crossing is not None
    assert ensemble.crossing.crossings.organizations == ("a", "b")
    assert not any(one.target == "crossed" and "c" in one.organizations for one in seen)


@pytest.mark.usefixtures("few_are_many")
def test_a_missing_organization_leaves_rows_to_the_rounds() -> None:
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]) + a[:, 2])
    model = GALClassifier(divided(2), rounds=2, random_state=0, interactions=True).fit(X, y)
    assert model.crossing_ is not None
    assert auc(model, X, y) > 0.9
    some = np.arange(FEW) < 100
    mixed = model.predict_proba(X, missing={"b": some})
    np.testing.assert_array_equal(mixed[~some], model.predict_proba(X)[~some])
    np.testing.assert_array_equal(mixed[some], model.predict_proba(X, missing="b")[some])


@pytest.mark.usefixtures("few_are_many")
def test_stored_and_read_back_it_says_the_same(tmp_path: Path) -> None:
    task, members, _ = xor_task(interactions=True)
    ensemble = drive_learning(task, members, InProcess())
    assert ensemble.crossing is not None
    said = gal.predict(ensemble, list(members.values())).output
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    again = load_ensemble(tmp_path / "ensemble.gal")
    assert again.crossing is not None
    assert again.crossing.crossings == ensemble.crossing.crossings
    np.testing.assert_array_equal(gal.predict(again, list(members.values())).output, said)


@pytest.mark.usefixtures("few_are_many")
def test_explain_adds_up() -> None:
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]))
    model = GALClassifier(divided(2), rounds=2, random_state=0, interactions=True).fit(X, y)
    parts = model.explain(X[:50])
    assert np.abs(parts["closing model"]).max() > 1
    np.testing.assert_allclose(parts.sum(axis=1), model.decision_function(X[:50]))


@pytest.mark.usefixtures("few_are_many")
def test_interrupted_it_keeps_the_rounds() -> None:
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(2 * np.sign(a[:, 0] * b[:, 1]) + a[:, 2])

    def end_in_the_crossing(asked: Any, _: Any) -> None:
        if asked[0].round > 2:
            raise KeyboardInterrupt

    plain = GALClassifier(divided(2), rounds=2, random_state=0).fit(X, y)
    model = clone(plain).set_params(interactions=True, on_message=end_in_the_crossing).fit(X, y)
    assert model.crossing_ is None
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_task_crosses_the_same() -> None:
    task, members, _ = xor_task(interactions=True)
    seen: list[Progress] = []
    whole = drive_learning(task, members, InProcess(), on_round=seen.append)
    said = gal.predict(whole, list(members.values())).output
    again = drive_learning(task, members, InProcess(), progress=seen[0])
    np.testing.assert_array_equal(gal.predict(again, list(members.values())).output, said)


@pytest.mark.parametrize(("columns", "looked_at"), [(40, 20), (800, 64)])
def test_a_split_looks_at_half_of_the_columns_but_never_at_hundreds(columns: int, looked_at: int) -> None:
    rng, options = np.random.default_rng(0), Options(validation_fraction=0.1)
    labels = class_labels(np.arange(60) % 2, options)
    task = make_task(labels, ["alice", "bob"], options, label_holder="alice")
    table, plan = rng.normal(size=(60, columns)).astype(np.float32), Interactions()
    forest = plan._grown(task, table, plan._unfitted(task, table, 3), 2)
    assert forest.estimators_[0].max_features_ == looked_at


def test_validation_rows_choose_leaves_and_only_the_chosen_grow_to_their_end() -> None:
    """The forest is the one that would be grown at once."""
    rng, options = np.random.default_rng(0), Options(validation_fraction=0.2)
    table = rng.normal(size=(2000, 5)).astype(np.float32)
    noisy = (rng.random(2000) < 0.5 + 0.1 * np.sign(table[:, 0])).astype(int)
    clear = (table[:, 0] * table[:, 1] > 0).astype(int)
    plan = Interactions()
    for y, leaf in ((noisy, LEAVES[0]), (clear, LEAVES[1])):
        task = make_task(class_labels(y, options), ["alice", "bob"], options, label_holder="alice", seed=0)
        forest = plan._chosen(task, table, np.zeros((2000, 1)))
        assert (forest.min_samples_leaf, len(forest.estimators_)) == (leaf, TREES)
        whole = plan._grown(task, table, plan._unfitted(task, table, leaf), TREES)
        np.testing.assert_array_equal(forest.predict_proba(table), whole.predict_proba(table))


def test_where_first_trees_are_not_followed_no_more_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[int] = []
    grow = Interactions._grown

    def noted(*said: Any) -> Any:
        grown.append(said[-1])
        return grow(*said)

    monkeypatch.setattr(Interactions, "_grown", noted)
    rng, options = np.random.default_rng(0), Options(validation_fraction=0.2)
    y, table = rng.integers(0, 2, size=2000), rng.normal(size=(2000, 5)).astype(np.float32)
    task = make_task(class_labels(y, options), ["alice", "bob"], options, label_holder="alice", seed=0)
    assert Interactions()._chosen(task, table, np.zeros((2000, 1))) is None
    assert grown == [FIRST_TREES, FIRST_TREES]
