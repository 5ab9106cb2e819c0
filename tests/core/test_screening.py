"""Answers in prediction are compared with those in learning: what is far outside is not believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gal
from gal import Organization
from gal.core.algorithm import predict
from gal.core.prediction import final_output, stacked_output
from gal.core.replies import LocalPredictions
from gal.core.requests import PredictRequest
from gal.core.screening import RECENT, SHARES, Recent, screen, spread_of
from gal.core.state import Ensemble, ensemble_of, plain
from gal.learner.drivers import IN_PROCESS, ask_to_predict
from gal.models import LinearModel

N = 300


def views(seed: int = 0, n: int = N) -> dict[str, NDArray[np.float64]]:
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return {"clinic": X[:, :2], "lab": X[:, 2:]}


def labels(of: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(np.hstack(list(of.values())) @ np.array([1.0, -0.5, 2.0, 1.0]))


class Turned(LinearModel):
    """Honest in learning; in prediction its answers are multiplied."""

    factor = 1.0

    def predict(self, X: Any) -> Any:
        return self.factor * super().predict(X)


@pytest.fixture
def learned() -> tuple[Ensemble, list[Organization], type[Turned]]:
    class Model(Turned):
        pass

    of = views()
    members = [Organization("clinic", of["clinic"], LinearModel()), Organization("lab", of["lab"], Model())]
    ensemble = gal.learn(labels(of), members, rounds=3, kind="regression", label_holder="clinic")
    return ensemble, members, Model


def screened(ensemble: Ensemble, members: list[Organization], new: dict[str, Any]) -> gal.Prediction:
    """Predictions as a node makes them."""
    n_rows, known = len(next(iter(new.values()))), {one.name: one for one in members}
    steps = predict(ensemble, n_rows)
    request = next(steps)
    found = screen(ensemble, request, ask_to_predict(ensemble, known, new, IN_PROCESS, request, {}), n_rows)
    try:
        steps.send(found.replies)
    except StopIteration as end:
        answers: LocalPredictions = end.value
    degraded = answers.degraded | found.rows
    output = stacked_output(ensemble, answers, final_output(ensemble, answers))
    return gal.Prediction(output, answers.missing, degraded)


def rmse(found: gal.Prediction, new: dict[str, Any]) -> float:
    return float(np.sqrt(np.mean((found.output[:, 0] - labels(new)) ** 2)))


@pytest.mark.parametrize("factor", [-20.0, 1e30, 50.0])
def test_hostile_answers_do_no_more_harm_than_none(learned: Any, factor: float) -> None:
    ensemble, members, model = learned
    new = views(1)
    missing = gal.predict(ensemble, members, {"clinic": new["clinic"]}).output
    model.factor = factor
    found = screened(ensemble, members, new)
    assert np.array_equal(found.output, missing)
    assert found.degraded.all()
    assert "none of its predictions is used" in found.missing["lab"]
    assert rmse(gal.predict(ensemble, members, new), new) > 5 * rmse(found, new)


def test_honest_answers_pass_untouched(learned: Any) -> None:
    ensemble, members, _ = learned
    new = views(1, 5000)
    found = screened(ensemble, members, new)
    assert np.array_equal(found.output, gal.predict(ensemble, members, new).output)
    assert not found.degraded.any()
    assert not found.missing


def test_single_rows_outside_are_missing_and_marked(learned: Any) -> None:
    ensemble, members, _ = learned
    new = views(1)
    new["lab"] = new["lab"].copy()
    new["lab"][7] *= 1e4
    found = screened(ensemble, members, new)
    honest, missing = (
        gal.predict(ensemble, members, some).output for some in (new, {"clinic": new["clinic"]})
    )
    assert np.flatnonzero(found.degraded).tolist() == [7]
    assert np.array_equal(found.output[7], missing[7])
    assert np.array_equal(np.delete(found.output, 7), np.delete(honest, 7))


def test_the_label_holder_is_believed(learned: Any) -> None:
    ensemble, members, _ = learned
    new = views(1)
    new["clinic"] = new["clinic"] * 1e4
    found = screened(ensemble, members, new)
    assert not found.degraded.any()


def asked(ensemble: Ensemble) -> PredictRequest:
    return PredictRequest(tuple(range(1, ensemble.n_rounds + 1)), ensemble.requested(), ensemble.track)


def answers(ensemble: Ensemble, members: list[Organization], view: Any) -> NDArray[np.float32]:
    lab = next(one for one in members if one.name == "lab")
    request = asked(ensemble)
    return np.stack(
        [np.asarray(lab.models["assisted", t][0].predict(view)).reshape(-1, 1) for t in request.rounds]
    )


def test_replies_of_one_row_at_a_time_are_screened_too(learned: Any) -> None:
    """Some of -20 x are in range by chance: after many that are not, those are left out, too."""
    ensemble, members, _ = learned
    counts: dict[str, Recent] = {}
    believed = 0
    for row in views(2, 200)["lab"]:
        said = -20 * answers(ensemble, members, row[None])
        reply = screen(ensemble, asked(ensemble), {"lab": said}, 1, counts).replies["lab"]
        believed += isinstance(reply, np.ndarray) and bool(np.isfinite(reply).all())
    assert believed <= 8
    for _ in range(3):  # honest again: accepted after RECENT honest rows
        for row in views(3, RECENT)["lab"]:
            said = answers(ensemble, members, row[None])
            reply = screen(ensemble, asked(ensemble), {"lab": said}, 1, counts).replies["lab"]
    assert isinstance(reply, np.ndarray)


@pytest.mark.parametrize(("factor", "drifts"), [(1.0, False), (3.0, True), (0.01, True), (-1.0, False)])
def test_drift_of_answers_is_seen(learned: Any, factor: float, drifts: bool) -> None:
    """What is inside may still be distributed otherwise; a mere change of sign
    cannot be told from the shape.
    """
    ensemble, members, _ = learned
    said = factor * answers(ensemble, members, views(4, 1000)["lab"])
    found = screen(ensemble, asked(ensemble), {"lab": said}, 1000)
    assert bool(found.drifted) == drifts


def test_a_few_rows_are_no_drift(learned: Any) -> None:
    ensemble, members, _ = learned
    said = answers(ensemble, members, views(4, 5)["lab"])
    assert not screen(ensemble, asked(ensemble), {"lab": said}, 5).drifted


def test_answers_that_are_the_same_for_many_rows_are_no_drift() -> None:
    """As a small tree gives them."""
    values = np.repeat([[0.0], [1.0], [5.0]], [800, 150, 50], axis=0).astype(np.float32)
    of = views(0, 1000)
    members = [Organization(name, view, LinearModel()) for name, view in of.items()]
    ensemble = gal.learn(labels(of), members, rounds=1, kind="regression", label_holder="clinic")
    facts = plain(ensemble)
    facts["rounds"][0]["spread"]["lab"] = spread_of(values)
    again = np.random.default_rng(0).permutation(values)[None, :300]
    assert not screen(ensemble_of(facts), asked(ensemble), {"lab": again}, 300).drifted


def test_the_spread_survives_as_plain_data(learned: Any) -> None:
    ensemble = learned[0]
    assert ensemble_of(plain(ensemble)).rounds[0].spread["lab"] == ensemble.rounds[0].spread["lab"]
    assert len(ensemble.rounds[0].spread["lab"][0]) == len(SHARES)
