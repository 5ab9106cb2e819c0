"""Stateful models (one body for all rounds): training and prediction agree with every driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.linear_model import Ridge
from sklearn.utils import check_random_state

import gal
from gal import Ensemble, GALClassifier, GALRegressor, Organization, Progress
from gal.assembling import grouped
from gal.core import pipeline
from gal.core.line_search import mean_loss
from gal.core.requests import PredictRequest
from gal.core.rows import Rows
from gal.errors import InvalidOptionError, LocalModelError, UnsupportedLocalLossError
from gal.learner.drivers import Traffic
from gal.learner.labels import regression_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.models.adapters import is_stateful
from moving_models import OPTIONS, Drifting, Flattened, Floats, data, members


@pytest.fixture
def concluded(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    """What learning ends with: the assisted progress that ``conclude`` saw, of every learning."""
    seen: list[Progress] = []
    conclude = pipeline.conclude

    def watch(task: Any, assisted: Progress, *rest: Any) -> Ensemble:
        seen.append(assisted)
        return conclude(task, assisted, *rest)

    monkeypatch.setattr(pipeline, "conclude", watch)
    return seen


# --- what is learned is what is predicted


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("in_place", [False, True])
def test_prediction_replays_what_was_learned(
    kind: Any, preset: str, in_place: bool, concluded: list[Progress]
) -> None:
    organizations, y = members([Drifting(in_place=in_place)] * 3)
    labels = np.digitize(y, [-0.7, 0.7]) if kind == "classification" else y
    ensemble = gal.learn(
        labels, organizations, kind=kind, algorithm=gal.Algorithm(preset=preset), **grouped(OPTIONS)
    )
    assert ensemble.n_rounds == 4
    predicted = gal.predict(ensemble, organizations)
    assert not predicted.missing
    np.testing.assert_allclose(predicted.output, concluded[-1].output, atol=1e-6)
    assert ensemble.train_loss < 0.8 * ensemble.initial_train_loss


def test_sample_weights_and_scores_of_ones_own_are_honoured(concluded: list[Progress]) -> None:
    organizations, y = members()
    initial = 0.1 * np.arange(len(y))
    weight = np.linspace(0, 1, len(y))
    options = OPTIONS | {"sample_weight": weight, "initial": initial}
    ensemble = gal.learn(y, organizations, **grouped(options))
    output = gal.predict(ensemble, organizations, initial=initial).output
    np.testing.assert_allclose(output, concluded[-1].output, atol=1e-5)
    labels = regression_labels(y, Options())
    loss = mean_loss(labels.loss, labels.y, output, weight)
    assert loss == pytest.approx(ensemble.train_loss, rel=1e-5)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_drivers_agree(backend: str) -> None:
    outputs, ensembles = [], []
    for n_jobs in (1, 2):
        organizations, y = members([Drifting(), Ridge(), Drifting()])
        options = OPTIONS | {"validation_fraction": 0.2, "n_jobs": n_jobs}
        with parallel_config(backend):
            ensembles.append(gal.learn(y, organizations, **grouped(options)))
            outputs.append(gal.predict(ensembles[-1], organizations, n_jobs=n_jobs).output)
        for organization in organizations[::2]:
            held = {
                id(models[0]) for (track, _), models in organization.models.items() if track == "assisted"
            }
            assert len(held) == 1  # no round keeps the body that it was learned with
    assert ensembles[0] == ensembles[1]
    assert outputs[0].tobytes() == outputs[1].tobytes()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_body_serves_one_track_only(in_place: bool) -> None:
    """In the first round both of the label holder's tracks ask for the same; from there on they part."""
    organizations, y = members([Drifting(in_place=in_place)] * 3)
    gal.learn(y, organizations, **grouped(OPTIONS | {"rounds": 1, "validation_fraction": 0.2}))
    held = organizations[0].models
    assert held["assisted", 1][0] is not held["alone", 1][0]


def test_moving_and_other_organizations_learn_together(concluded: list[Progress]) -> None:
    organizations, y = members([Ridge(), Drifting(), Flattened()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    output = gal.predict(ensemble, organizations).output
    np.testing.assert_allclose(output, concluded[-1].output, atol=1e-6)
    assert len({id(organizations[0].models["assisted", t][0]) for t in (1, 2, 3, 4)}) == 4
    assert len({id(organizations[1].models["assisted", t][0]) for t in (1, 2, 3, 4)}) == 1


def test_a_label_holder_that_is_better_alone_predicts_with_its_own_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + 0.05 * rng.normal(size=200)
    noise = rng.normal(size=(200, 60))  # explains the fit rows by heart
    organizations = [Organization("a", X, Drifting()), Organization("b", noise, Drifting(150))]
    options = OPTIONS | {"validation_fraction": 0.3, "weights": "exact"}
    ensemble = gal.learn(y, organizations, **grouped(options))
    assert ensemble.track == "alone"
    assert ensemble.requested() == ("a",)
    output = gal.predict(ensemble, organizations).output
    labels, fit = regression_labels(y, Options()), task_rows(y, options).fit
    assert mean_loss(labels.loss, labels.y[fit], output[fit]) == pytest.approx(ensemble.train_loss, rel=1e-5)
    assert ensemble.train_loss < 0.1 * ensemble.initial_train_loss


def task_rows(y: Floats, options: dict[str, Any]) -> Rows:
    given = {name: value for name, value in options.items() if name != "seed"}
    chosen = Options(stacking=False, **given)
    task = make_task(
        regression_labels(y, chosen), ["a"], chosen, label_holder="a", stateful=["a"], seed=options["seed"]
    )
    return task.rows


# --- who fails


class Missing(Drifting):
    """Fails in its second round."""

    def fit_round(self, X: Any, residual: Any, *, round: int, **rest: Any) -> Drifting:
        if round == 2:
            raise RuntimeError("power cut")
        return super().fit_round(X, residual, round=round, **rest)


def test_who_missed_a_round_goes_on_from_the_one_before(concluded: list[Progress]) -> None:
    organizations, y = members([Drifting(), Missing(), Drifting()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    assert [list(done.left_out) for done in ensemble.rounds] == [[], ["b"], [], []]
    assert sorted(organizations[1].models) == [("assisted", 1), ("assisted", 3), ("assisted", 4)]
    learned = organizations[1].models["assisted", 1][0]
    assert is_stateful(learned)
    assert learned.rounds_ == (1, 3, 4)
    request = PredictRequest((1, 2, 3, 4), ("b",))
    values = organizations[1].predict(request, 1)
    assert np.isnan(values).all(axis=(1, 2)).tolist() == [False, True, False, False]
    output = gal.predict(ensemble, organizations).output
    np.testing.assert_allclose(output, concluded[-1].output, atol=1e-6)


class Wrong(Drifting):
    """Says that it learned another round."""

    def fit_round(self, X: Any, residual: Any, *, round: int, **rest: Any) -> Drifting:
        return super().fit_round(X, residual, round=round + 1, **rest)


def test_a_model_without_the_round_that_it_learned_is_named() -> None:
    organizations, y = members([Drifting(), Wrong(), Ridge()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    assert "fit_round of round 1 returned a model of rounds (2,)" in ensemble.rounds[0].left_out["b"]


# --- memory, seeds, resuming, traffic


def test_all_rounds_share_one_object_and_the_template_is_never_fitted() -> None:
    template = Drifting(in_place=True)
    before = repr(vars(template))
    organizations, y = members([template] * 3)
    gal.learn(y, organizations, **grouped(OPTIONS))
    assert repr(vars(template)) == before
    for one in organizations:
        assert one.model is template
        assert [key for key in one.models if key[0] == "assisted"] == [("assisted", t) for t in (1, 2, 3, 4)]
        assert len({id(models) for models in one.models.values()}) == 1


def test_the_body_has_the_seed_of_the_first_round() -> None:
    bodies = []
    for _ in range(2):
        organizations, y = members([Drifting(drift=0.0)] * 3)
        gal.learn(y, organizations, **grouped(OPTIONS))
        first: Any = organizations[0].models["assisted", 4][0]
        bodies.append(first.body_)
        other: Any = organizations[1].models["assisted", 4][0]
        assert first.body_.tobytes() != other.body_.tobytes()
    assert bodies[0].tobytes() == bodies[1].tobytes()


def test_a_new_task_starts_with_a_new_body() -> None:
    organizations, y = members()
    first = gal.learn(y, organizations, **grouped(OPTIONS))
    output = gal.predict(first, organizations).output
    gal.learn(-y, organizations, **grouped(OPTIONS | {"rounds": 6}))
    again = gal.learn(y, organizations, **grouped(OPTIONS))
    assert repr(again) == repr(first)  # which holds NaN
    assert gal.predict(again, organizations).output.tobytes() == output.tobytes()
    assert max(round for _, round in organizations[0].models) == 4


def test_a_resumed_task_forgets_rounds_that_were_learned_further(concluded: list[Progress]) -> None:
    organizations, y = members()
    saved: list[Progress] = []
    gal.learn(y, organizations, on_round=saved.append, **grouped(OPTIONS))
    resumed = gal.learn(y, organizations, progress=saved[1], **grouped(OPTIONS | {"rounds": 3}))
    assert max(round for _, round in organizations[0].models) == 3
    np.testing.assert_allclose(gal.predict(resumed, organizations).output, concluded[-1].output, atol=1e-6)


def test_organizations_that_lost_their_models_are_left_out_of_what_they_lost(
    concluded: list[Progress],
) -> None:
    organizations, y = members([Drifting(), Drifting(), Ridge()])
    saved: list[Progress] = []
    gal.learn(y, organizations, on_round=saved.append, **grouped(OPTIONS))
    organizations[1].models.clear()
    resumed = gal.learn(y, organizations, progress=saved[1], **grouped(OPTIONS))
    assert [list(done.left_out) for done in resumed.rounds] == [["b"], ["b"], [], []]
    assert resumed.rounds[0].left_out["b"] == "has no model of round 1 any more"
    np.testing.assert_allclose(gal.predict(resumed, organizations).output, concluded[-1].output, atol=1e-6)


def test_asking_again_is_one_trip_and_counts_what_came_back() -> None:
    ordinary, moving = Traffic(), Traffic()
    organizations, y = members([Ridge(), Ridge(), Ridge()])
    gal.learn(y, organizations, traffic=ordinary, **grouped({"cross_validation": 0} | OPTIONS))
    organizations, y = members([Drifting(), Drifting(), Ridge()])
    gal.learn(y, organizations, traffic=moving, **grouped(OPTIONS))
    values = 150 * 4
    assert (ordinary.trips, ordinary.sent, ordinary.received) == (4, 4 * 2 * values, 4 * 2 * values)
    assert (moving.trips, moving.sent) == (5, ordinary.sent)
    assert moving.received == ordinary.received + 4 * values  # b; the label holder's own are at hand


# --- options


def test_cross_validation_is_quietly_off_and_refused_when_asked_for() -> None:
    organizations, y = members()  # 150 rows would be cross-validated
    ensemble = gal.learn(y, organizations, rounds=2)
    assert np.isnan(ensemble.initial_validation_loss)
    with pytest.raises(InvalidOptionError, match=r"stateful models \(a, b, c\): pass cross_validation=0"):
        gal.learn(y, organizations, rounds=2, validation=gal.Validation(folds=3))
    X, y = data()
    with pytest.raises(InvalidOptionError, match=r"validation_fraction=0\.1 to choose the number of rounds"):
        GALRegressor({"all": slice(None)}, local_models=Drifting(), validation=gal.Validation(folds=4)).fit(
            X, y
        )


def test_a_local_loss_needs_an_option_of_the_model() -> None:
    X, _ = data()
    assert Organization("a", X, Drifting(), local_loss="l2").stateful
    with pytest.raises(UnsupportedLocalLossError, match=r"'a': Drifting cannot minimize"):
        Organization("a", X, Drifting(), local_loss="l1")


def test_a_moving_model_must_be_able_to() -> None:
    class Half:
        stateful = True

    with pytest.raises(LocalModelError, match="needs fit_round and predict_rounds, which Half lacks"):
        Organization("a", np.ones((3, 1)), Half())


def test_estimators_take_moving_models(tmp_path: Path) -> None:
    X, y = data(600)
    plain, y = y, y + y**2 / y.std()  # which a sum cannot say
    parts = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}
    local = {"a": Drifting(), "b": Drifting(), "c": Ridge()}
    options: dict[str, Any] = {"rounds": 4, "random_state": 0, "stacking": True, "validation_fraction": 0.2}
    model = GALRegressor(parts, local_models=local, **grouped(options)).fit(X, y)
    assert np.isfinite(model.rounds_[0].validation_loss)
    assert model.stacker_ is not None  # on re-evaluated replies: its share was chosen on them
    validation = task_rows_of(model, X, y)
    labels = regression_labels(y, Options())
    predicted = model.predict(X)[:, None]
    own = mean_loss(labels.loss, labels.y[validation], predicted[validation])
    assert own == pytest.approx(model.stacker_.validation_loss, rel=1e-5)
    classes = GALClassifier(parts, local_models=local, rounds=3, random_state=0).fit(X, plain > 0)
    assert classes.score(X, plain > 0) > 0.75
    learned: Any = model.local_models_["a"][4][0]
    assert learned.residuals_ == {}  # a fitted estimator keeps nothing that tells of the labels
    model.save(tmp_path / "model.gal")
    again = GALRegressor.load(tmp_path / "model.gal", trusted=["moving_models.Drifting"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def task_rows_of(model: GALRegressor, X: Floats, y: Floats) -> Any:
    seed = int(check_random_state(0).randint(np.iinfo(np.int32).max))
    options = Options(rounds=4, validation_fraction=0.2, stacking=True)
    labels = regression_labels(y, options)
    return make_task(labels, "abc", options, label_holder="a", stateful="ab", seed=seed).rows.validation
