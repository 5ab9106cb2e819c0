"""Fresh noise on residuals of noisy labels: what it covers, how often, and what cannot be had with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

import gal
from gal import GALRegressor
from gal.assembling import grouped
from gal.core.losses import BinaryLogLoss, SquaredError
from gal.core.pipeline import learn
from gal.core.requests import FitRequest
from gal.core.steps import broadcast
from gal.core.task import Task
from gal.errors import InvalidOptionError
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.privacy import GaussianLabels, LaplaceLabels, RandomisedResponse, SeededNoise
from gal.privacy.leakage import Transcript
from gal.privacy.mechanisms.columns import ColumnNoise, releases_of_a_row, residual_distance
from gal.privacy.protection import protect
from noise_sources import NoNoise

Floats = NDArray[np.float64]
ROUNDS, N = 4, 60
COLUMNS: dict[str, Any] = {"columns_epsilon": 5.0, "columns_delta": 1e-6}
pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")


def task_of(parts: int, **options: Any) -> tuple[Task, NoNoise]:
    """Numbers as labels, weights and rate that do not look at answers, and no noise that would hide them."""
    y = np.linspace(-1.0, 1.0, N)[:, None]
    source = NoNoise()
    given = Options(rounds=ROUNDS, cross_validation=parts, weights="uniform", line_search=0.7, **options)
    labels = Labels(y, LaplaceLabels(1.0, -1.0, 1.0).read(y, given).loss)
    seen = protect(LaplaceLabels(1.0, -1.0, 1.0, source, **COLUMNS), labels, given, seed=0)
    assert seen.release is not None
    how: dict[str, Any] = {"label_holder": "clinic", "release": seen.release, "private": True, "seed": 0}
    return make_task(seen.labels, ["clinic", "lab"], seen.options, **how), source


def residuals(task: Task, changed: int | None) -> dict[tuple[int, int | None], Floats]:
    """All residuals (n, 1) that are sent, NaN where a row is not; one row's answers are others if wanted."""
    sent: dict[tuple[int, int | None], Floats] = {}

    def replies(request: FitRequest) -> dict[str, Any]:
        number = 0 if request.fold is None else request.fold + 1
        found: dict[str, Any] = {}
        for place, name in enumerate(("clinic", "lab")):
            values = np.random.default_rng([request.round, number, place]).normal(size=(N, 1))
            if changed is not None:
                values[changed] = 1e3 * (-1) ** request.round
            found[name] = values.astype(np.float32)
        return found

    steps = learn(task)
    requests = next(steps)
    try:
        while True:
            asked = [one for one in requests if isinstance(one, FitRequest)]
            for one in asked:
                rows = task.rows.fit if one.fold is None else task.rows.without(one.fold).fit
                whole = np.full((N, 1), np.nan)
                whole[rows] = one.residual
                sent[one.round, one.fold] = whole
            requests = steps.send([replies(one) for one in asked])
    except StopIteration:
        return sent


@pytest.mark.parametrize("parts", [0, 4])
def test_a_rows_answers_show_in_its_own_residuals_alone_and_as_far_as_was_paid_for(parts: int) -> None:
    """Brute force over a whole learning: everything that is sent, for two sets of answers about a row."""
    row = 7
    one, other = (
        residuals(task_of(parts, scale_residual=False, patience=None)[0], which) for which in (None, row)
    )
    assert one.keys() == other.keys()
    moved = {key: np.nan_to_num(other[key] - one[key]) for key in one}
    for values in moved.values():
        assert np.delete(values, row, axis=0).any() == np.False_
    noised = {key: float(np.linalg.norm(values[row])) for key, values in moved.items() if values[row].any()}
    assert all(round > 1 for round, _ in noised)
    assert 1 < len(noised) <= releases_of_a_row(ROUNDS, parts)
    assert max(noised.values()) <= 2.0 + 1e-6  # the width of the public bounds


@pytest.mark.parametrize(("parts", "learnings"), [(0, 1), (4, 5)])
def test_every_residual_but_the_first_is_noised(parts: int, learnings: int) -> None:
    task, source = task_of(parts, patience=None)
    sent = residuals(task, None)
    assert len(sent) == learnings * ROUNDS
    assert source.count("gaussian") == learnings * (ROUNDS - 1)


def test_no_row_gets_more_residuals_than_were_paid_for() -> None:
    rng = np.random.default_rng(0)
    X, transcript = rng.normal(size=(N, 4)), Transcript()
    privacy = GaussianLabels(1.0, 1e-6, -9.0, 9.0, SeededNoise(0), **COLUMNS)
    how: dict[str, Any] = {"rounds": ROUNDS, "local_models": Ridge(), "random_state": 0}
    parts = {"clinic": [0, 1], "lab": [2, 3]}
    model = GALRegressor(parts, privacy=privacy, **how)
    model.fit(X, X.sum(axis=1), on_message=transcript)
    sent = transcript.sent(model.task_rows_, "clinic").residual  # row, round, learning, output
    assert sent.shape[2] == 5
    count = (~np.isnan(sent[:, 1:, :, 0])).sum(axis=(1, 2))
    assert count.max() == releases_of_a_row(ROUNDS, 4)  # fewer where the sentinel fold has the most rounds
    assert model.private_refit_ is not None
    assert model.private_refit_.own is not None  # the private stack is there
    assert "For columns, Gaussian noise on every residual but the first with epsilon 5" in str(model.privacy_)


def test_weights_and_rates_follow_the_residual_without_noise() -> None:
    """The label holder's own values need no noise."""
    task, _ = task_of(0)
    assert task.release is not None
    output = np.full((N, 1), 0.25)
    noisy = LaplaceLabels(1.0, -1.0, 1.0, SeededNoise(0), **COLUMNS)
    release = protect(noisy, Labels(task.y, task.loss), Options(rounds=2), seed=0).release
    found = broadcast(replace(task, release=release), output, 2, "assisted")
    np.testing.assert_allclose(found.scale * found.residual, task.y - output, atol=1e-5)
    assert float(np.abs(found.scale * found.sent - (task.y - output)).mean()) > 1.0
    assert float(np.sqrt(np.mean(np.square(found.sent)))) == pytest.approx(1.0, rel=1e-3)


def test_learning_in_parts_has_it_too() -> None:
    X = np.random.default_rng(0).normal(size=(N, 2))
    y, source = X.sum(axis=1), NoNoise()
    reached: list[Any] = []
    organizations = [Organization("clinic", X[:, [0]], Ridge()), Organization("lab", X[:, [1]], Ridge())]
    options: dict[str, Any] = {"rounds": ROUNDS, "patience": None, "on_round": reached.append}
    privacy = LaplaceLabels(1.0, -9.0, 9.0, source, **COLUMNS)
    ensemble = gal.learn(y, organizations, privacy=privacy, **grouped(options))
    assert source.count("gaussian") == ROUNDS - 1
    assert float(np.abs(gal.predict(ensemble, organizations).output[:, 0] - y).mean()) < 0.3  # no noise here
    with pytest.raises(InvalidOptionError, match="cannot go on from progress"):
        gal.learn(y, organizations, privacy=privacy, progress=reached[0])
    two = gal.learn(y > 0, organizations, rounds=2, privacy=RandomisedResponse(1.0, [False, True], source))
    assert two.n_outputs == 1


def test_outputs_are_cut_at_the_bounds_and_labels_are_not() -> None:
    y, output = np.array([[0.2], [8.0], [-3.0]]), np.array([[0.5], [7.0], [-2.0]])
    labels = Labels(y, SquaredError())
    release = ColumnNoise(1.0, 1e-6).release(labels, (0.0, 1.0), 3, 0, NoNoise())
    np.testing.assert_allclose(release(y - output, 1, "assisted", None), [[-0.3], [1.0], [-1.0]])
    np.testing.assert_allclose(release(y - output, 2, "assisted", None), [[-0.3], [7.0], [-3.0]])


def released(rounds: int = 2, parts: int = 2) -> Any:
    labels = Labels(np.zeros((3, 1)), LaplaceLabels(1.0, 0.0, 1.0).read(np.zeros(3), Options()).loss)
    return ColumnNoise(1.0, 1e-6).release(labels, (0.0, 1.0), rounds, parts, NoNoise())


@pytest.mark.parametrize(
    ("round", "track", "part"),
    [(3, "assisted", None), (2, "assisted", 2), (2, "alone", None), (1, "alone", 0)],
)
def test_what_was_not_paid_for_is_not_released(round: int, track: Any, part: int | None) -> None:
    with pytest.raises(InvalidOptionError, match="more than was paid for: 2 rounds of the task and 2 folds"):
        released()(np.zeros((3, 1)), round, track, part)


def test_the_same_request_is_not_released_twice() -> None:
    release = released()
    for part in (None, 0, 1):
        release(np.zeros((3, 1)), 2, "assisted", part)
    with pytest.raises(InvalidOptionError, match="once each"):
        release(np.zeros((3, 1)), 2, "assisted", None)


def test_what_cannot_be_had_is_said() -> None:
    for given in ({"columns_epsilon": 1.0}, {"columns_delta": 1e-6}):
        with pytest.raises(InvalidOptionError, match="needs both columns_epsilon"):
            RandomisedResponse(1.0, [0, 1], **given)  # type: ignore[arg-type]
    y = np.zeros((3, 1))
    labels = Labels(y, LaplaceLabels(1.0, -1.0, 1.0).read(y, Options()).loss)
    with pytest.raises(InvalidOptionError, match="interaction probes would be sent without"):
        protect(LaplaceLabels(1.0, -1.0, 1.0, NoNoise(), **COLUMNS), labels, Options(interactions=2), seed=0)
    for loss in (BinaryLogLoss(), SquaredError()):  # true labels, and numbers without bounds
        with pytest.raises(InvalidOptionError, match="noise for columns is known for noisy labels"):
            residual_distance(loss, None)
