"""Interaction probes: what columns of two or three organizations mean together is found; where
there is nothing, nothing is.
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
from gal.core.probes.kept_probes import Probe, Probes, Sign
from gal.core.requests import FitRequest
from gal.core.state import Progress
from gal.errors import InvalidOptionError
from gal.learner.drivers import drive_learning
from gal.learner.labels import class_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.privacy.leakage.transcript import Transcript
from gal.storage import load_ensemble, save_ensemble

N, WIDTH = 2500, 3
FEW = 1000
"""Rows of tests that compare no losses; the thresholds for "many rows" are lowered for them."""


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.learner.task_making.LARGE", FEW - 100)
    monkeypatch.setattr("gal.learner.task_making.PROBES", 6)


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
    "product": (2, lambda a, b: 3 * a[:, 0] * b[:, 0], 0.04),
    "product and main effects": (2, lambda a, b: 2 * a[:, 0] * b[:, 0] + a[:, 1] + b[:, 0], 0.03),
    "ring": (2, lambda a, b: 8.0 * (a[:, 0] ** 2 + b[:, 0] ** 2 < 1.4) - 4, 0.03),
    "parity of three columns": (2, lambda a, b: 4 * np.sign(a[:, 0] * a[:, 1] * b[:, 0]), 0.03),
    "xor of two assistants": (3, lambda _, b, c: 4 * np.sign(b[:, 0] * c[:, 1]), 0.03),
}


@pytest.mark.parametrize("name", TASKS)
def test_interactions_of_two_organizations_are_learned(name: str) -> None:
    """The AUC is near the best possible one, where the sum of both is worth little."""
    parties, signal, near = TASKS[name]
    parts = views(parties)
    truth = signal(*parts)
    X, y = np.hstack(parts), classes(truth)
    model = GALClassifier(divided(parties), random_state=0, interactions=True).fit(X[:N], y[:N])
    assert model.probes_ is not None or name == "ring"  # a ring is a sum, too
    assert auc(model, X[N:], y[N:]) > roc_auc_score(y[N:], truth[N:]) - near
    plain = GALClassifier(divided(parties), random_state=0).fit(X[:N], y[:N])
    gain = 0.02 if name != "ring" else -0.002  # so few columns the stacker puts together by itself
    assert auc(model, X[N:], y[N:]) > auc(plain, X[N:], y[N:]) + gain


def three_together(n: int) -> tuple[Any, Any]:
    """Labels that hang on a column of each of three organizations together, on no two of them."""
    parts = [view[:, :2] for view in views(3, n)]
    return np.hstack(parts), classes(4 * np.sign(parts[0][:, 0] * parts[1][:, 0] * parts[2][:, 1]))


def test_interactions_of_three_organizations_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signs of two are multiplied for the third, and no organization gets more than agreed. Stored and
    read back, the model predicts the same.
    """
    monkeypatch.setattr("gal.learner.task_making.PROBES", 4)
    X, y = three_together(2 * N)
    members = {
        name: Organization(name, X[:N, at : at + 2]) for name, at in zip("abc", (0, 2, 4), strict=True)
    }
    options, seen = Options(rounds=1, interactions=True), Transcript()
    task = make_task(class_labels(y[:N], options), list(members), options, label_holder="a", seed=0)
    assert task.probes is not None
    assert (task.probes.probes, task.probes.pairs) == (8, 4)
    ensemble = drive_learning(task, members, on_message=seen)
    assert ensemble.probes is not None
    assert any(
        {one.organization, *(sign.organization for sign in one.signs)} == {"a", "b", "c"}
        for one in ensemble.probes.vectors
    )
    assert max(map(len, seen.probes.values())) <= 8
    unseen = {name: X[N:, at : at + 2] for name, at in zip("abc", (0, 2, 4), strict=True)}
    said = gal.predict(ensemble, list(members.values()), unseen).output
    assert roc_auc_score(y[N:], said[:, 0]) > 0.95
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    again = load_ensemble(tmp_path / "ensemble.gal")
    assert again.probes is not None
    assert replace(again.probes, stacker=None) == replace(ensemble.probes, stacker=None)
    np.testing.assert_array_equal(gal.predict(again, list(members.values()), unseen).output, said)


def test_sign_bits_of_two_are_both_taken_back() -> None:
    rng = np.random.default_rng(0)
    parts = {"b": rng.normal(size=(8, 1))}
    keys: list[tuple[int, str]] = [(4, "c"), (9, "a")]
    replies = {key: rng.normal(size=(8, 1)).astype(np.float32) for key in keys}
    signs = Sign("b", None, (1.0,), 0.1), Sign("c", 4, (-1.0,), 0.0)
    probes = Probes((Probe(9, "a", signs, 5.0),), {}, {})
    assert probes.needed == keys
    values, b, c = replies[9, "a"], parts["b"] - 0.1, -replies[4, "c"]
    columns = probes.features(np.zeros((8, 1)), parts, replies)
    np.testing.assert_array_equal(columns[:, 2:4], np.hstack([values, values * np.sign(b) * np.sign(c)]))
    np.testing.assert_allclose(columns[:, 4:], np.hstack([values * b * c, b, c]), rtol=1e-5)


def test_probes_are_about_a_sample_and_rows_beyond_it_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request of probes is about the same rows, of which at most so many are validation rows."""
    monkeypatch.setattr("gal.core.rows.PROBE_ROWS", 500)
    monkeypatch.setattr("gal.core.rows.PROBE_VALIDATION", 100)
    task, members, _ = xor_task(interactions=4, validation_fraction=0.2)
    rows = task.rows
    assert (len(rows.sample), len(rows.of_probes.validation)) == (500, 100)
    np.testing.assert_array_equal(
        np.isin(rows.sample, rows.validation), np.isin(np.arange(500), rows.of_probes.validation)
    )
    assert np.isin(rows.sample[rows.of_probes.fit], rows.fit).all()
    sizes: list[tuple[int, int]] = []

    def note(asked: Any, replies: Any) -> None:
        for request, values in zip(asked, replies, strict=True):
            if isinstance(request, FitRequest) and request.target != "residual":
                sizes.extend((len(request.residual), len(one)) for one in values.values())

    ensemble = drive_learning(task, members, on_message=note)
    assert set(sizes) == {(len(rows.of_probes.fit), 500)}
    assert ensemble.probes is not None
    assert gal.predict(ensemble, list(members.values())).output.shape == (FEW, 1)


def test_interactions_of_three_classes_are_learned() -> None:
    a, b = views(2)
    X, three = np.hstack([a, b]), np.digitize(a[:, 0] * b[:, 0], [-0.4, 0.4])
    probed, plain = (
        GALClassifier(divided(2), rounds=1, random_state=0, interactions=signs).fit(X[:N], three[:N])
        for signs in (6, False)
    )
    assert probed.score(X[N:], three[N:]) > plain.score(X[N:], three[N:]) + 0.15


def test_interactions_in_a_regression_are_learned() -> None:
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
    assert model.probes_ is None
    np.testing.assert_array_equal(model.predict_proba(X[N:]), plain.predict_proba(X[N:]))
    assert model.traffic_.trips <= plain.traffic_.trips + 3


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.usefixtures("few_are_many")
def test_nothing_is_asked_beyond_the_rounds_by_default(preset: str) -> None:
    """However much two organizations know only together: probes reveal columns."""
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]))
    transcript = Transcript()
    model = GALClassifier(divided(2), rounds=2, algorithm=gal.Algorithm(preset=preset), random_state=0)
    assert model.fit(X, y, on_message=transcript).probes_ is None
    assert {round for round, _ in transcript.messages} == {1, 2}
    assert transcript.probes == {}


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
        GALClassifier(divided(1), interactions=True, validation=gal.Validation(fraction=0.2)).fit(X, y)
    with pytest.raises(InvalidOptionError, match="need a log loss or squared error"):
        GALRegressor(
            divided(2), loss="huber", interactions=True, validation=gal.Validation(fraction=0.2)
        ).fit(X, y)


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
    with_model = drive_learning(task, members, on_message=lambda asked, _: seen.append(asked))
    assert with_model.probes is not None
    seeds = [one for step in seen for one in step if one.target == "random"]
    probes = [one for step in seen for one in step if one.target == "probe"]
    assert [one.round for one in seeds] == [3, 4, 5, 6]
    assert all(len(one.organizations) == 1 and 7 <= one.round <= 10 for one in probes)
    assert sum(one.organizations == ("b",) for one in probes) <= 4
    places = np.searchsorted(task.rows.fit, task.rows.sample[task.rows.of_probes.fit])
    first = seen[0][0].residual[places]  # no round validates: the residual is that of the first round
    for one in probes:
        np.testing.assert_array_equal(np.abs(one.residual), np.abs(first))
        assert 0.4 < np.mean(one.residual * first > 0) < 0.6
    correlations = [np.corrcoef(one.residual[:, 0], y[task.rows.fit[places]])[0, 1] for one in seeds]
    assert np.abs(correlations).max() < 0.1  # random targets have no label in them


@pytest.mark.usefixtures("few_are_many")
def test_replies_to_probes_are_of_models_that_did_not_see_the_row() -> None:
    task, members, _ = xor_task(interactions=4)
    sample, roles = task.rows.sample, task.rows.of_probes
    residual = np.random.default_rng(0).normal(size=(len(roles.fit), 1)).astype(np.float32)
    request = FitRequest(9, residual, ("b",), target="probe")
    values = members["b"].fit(request, task.terms)
    models = members["b"].models["assisted", 9]
    assert len(models) == 2
    for fold, model in enumerate(models):
        rows = roles.fit[roles.folds == fold]
        expected = model.predict(members["b"].view[sample[rows]])
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
        on_round=after,
        on_message=lambda asked, _: seen.extend(asked),
    )
    assert ensemble.probes is not None
    assert ensemble.probes.organizations == ("a", "b")
    assert not any(one.target == "probe" and "c" in one.organizations for one in seen)


@pytest.mark.usefixtures("few_are_many")
def test_a_missing_organization_leaves_rows_to_the_rounds() -> None:
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(4 * np.sign(a[:, 0] * b[:, 1]) + a[:, 2])
    model = GALClassifier(divided(2), rounds=2, random_state=0, interactions=True).fit(X, y)
    assert model.probes_ is not None
    assert auc(model, X, y) > 0.9
    some = np.arange(FEW) < 100
    mixed = model.predict_proba(X, missing={"b": some})
    np.testing.assert_array_equal(mixed[~some], model.predict_proba(X)[~some])
    np.testing.assert_array_equal(mixed[some], model.predict_proba(X, missing="b")[some])


@pytest.mark.usefixtures("few_are_many")
def test_interrupted_it_keeps_the_rounds() -> None:
    a, b = views(2, FEW)
    X, y = np.hstack([a, b]), classes(2 * np.sign(a[:, 0] * b[:, 1]) + a[:, 2])

    def end_in_the_probes(asked: Any, _: Any) -> None:
        if asked[0].round > 2:
            raise KeyboardInterrupt

    plain = GALClassifier(divided(2), rounds=2, random_state=0).fit(X, y)
    model = clone(plain).set_params(interactions=True).fit(X, y, on_message=end_in_the_probes)
    assert model.probes_ is None
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_task_finds_the_same() -> None:
    task, members, _ = xor_task(interactions=True)
    seen: list[Progress] = []
    whole = drive_learning(task, members, on_round=seen.append)
    said = gal.predict(whole, list(members.values())).output
    again = drive_learning(task, members, progress=seen[0])
    np.testing.assert_array_equal(gal.predict(again, list(members.values())).output, said)
