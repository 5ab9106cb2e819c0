"""Drivers: who carries the requests changes nothing, and neither does the order of names."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest
from joblib import parallel_config
from rich.console import Console
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR

import gal
from gal import Ensemble, GALClassifier, GALRegressor, Organization, Progress
from gal.assembling import grouped
from gal.core.requests import FitRequest
from gal.errors import LocalModelError, MissingExtraError, NoRepliesError, NothingLearnedError
from gal.learner.drivers import Driver, ask, drive_learning
from gal.learner.labels import regression_labels
from gal.learner.observing import describe_progress, show_progress
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.warnings import InterruptedWarning
from small_tables import PARTS, Counter, Raising, health, ill

T = TypeVar("T")
BACKENDS = ["threading", "loky"]


def members(n: int = 120, local: Any = None) -> tuple[list[Organization], Any]:
    X, y = health(n)
    local = RandomForestRegressor(5, max_depth=4) if local is None else local
    return [Organization("bank", X[PARTS["bank"]], local), Organization("lab", X[PARTS["lab"]], Ridge())], y


def learned(**options: Any) -> tuple[Ensemble, np.ndarray[Any, Any]]:
    organizations, y = members()
    ensemble = gal.learn(
        y, organizations, **grouped({"rounds": 3, "seed": 4, "cross_validation": 3, **options})
    )
    return ensemble, gal.predict(ensemble, organizations).output


# --- the same result with every backend


@pytest.fixture(scope="module")
def in_process() -> tuple[Ensemble, np.ndarray[Any, Any]]:
    return learned()


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_of_joblib_agree_to_the_last_bit(backend: str, in_process: tuple[Ensemble, Any]) -> None:
    seen: list[Progress] = []
    with parallel_config(backend):
        ensemble, output = learned(n_jobs=2, on_round=seen.append)
    assert ensemble == in_process[0]
    assert output.tobytes() == in_process[1].tobytes()
    assert [len(progress.rounds) for progress in seen] == [1, 2, 3]
    assert [one.rate for one in seen[-1].rounds] == [one.rate for one in ensemble.rounds]


def test_one_round_trip_a_round_whose_jobs_may_run_in_any_order() -> None:
    class Backwards(Driver):
        asked = 0

        def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
            self.asked += 1
            return [job() for job in reversed(jobs)][::-1]

    organizations, y = members()
    chosen, driver = Options(rounds=3, cross_validation=3), Backwards()
    task = make_task(regression_labels(y, chosen), ["bank", "lab"], chosen, label_holder="bank")
    named = {one.name: one for one in organizations}
    assert drive_learning(task, named, driver) == drive_learning(task, named)
    assert driver.asked == 6  # three of the sentinel fold, then three


@pytest.mark.parametrize("kind", [GALRegressor, GALClassifier])
def test_n_jobs_changes_nothing(kind: Any) -> None:
    X, y = health() if kind is GALRegressor else ill()
    options: dict[str, Any] = {"rounds": 2, "random_state": 3, "local_models": RandomForestRegressor(4)}
    one, two = (kind(PARTS, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 2))
    assert one.ensemble_ == two.ensemble_
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    np.testing.assert_array_equal(
        one.predict(X, missing={"lab": [0, 3]}), two.predict(X, missing={"lab": [0, 3]})
    )


def test_the_order_of_organizations_in_parts_changes_nothing(in_process: tuple[Ensemble, Any]) -> None:
    organizations, y = members()
    ensemble = gal.learn(
        y, organizations[::-1], label_holder="bank", rounds=3, seed=4, validation=gal.Validation(folds=3)
    )
    assert ensemble == in_process[0]


def test_a_large_view_is_shared_with_processes_and_not_changed() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 40))  # more than 1 MB: joblib maps it into memory, read-only
    y = X[:, 0] + X[:, 20]
    ensembles = []
    for n_jobs in (1, 2):
        organizations = [Organization("a", X[:, :20], Ridge()), Organization("b", X[:, 20:], Ridge())]
        with parallel_config("loky"):
            ensembles.append(gal.learn(y, organizations, rounds=2, n_jobs=n_jobs))
    assert ensembles[0] == ensembles[1]


class Counted(Ridge):  # type: ignore[misc]
    """Notes what it fits."""

    fitted: ClassVar[list[Any]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Counted:
        self.fitted.append(np.array(y))
        return super().fit(X, y, sample_weight)  # type: ignore[no-any-return]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_first_request_of_both_tracks_is_fitted_once(weighted: bool) -> None:
    organizations, y = members(local=Counted())
    Counted.fitted.clear()
    weight = np.random.default_rng(0).random(len(y)) if weighted else None
    ensemble = gal.learn(y, organizations, rounds=2, validation=gal.Validation(folds=3), sample_weight=weight)
    # The task and three folds, one of them the sentinel fold; then with assistance, and alone.
    assert len(Counted.fitted) == 4 + 1 + 2 * 4
    own = organizations[0].models
    assert own["assisted", 1] == own["alone", 1]
    assert own["assisted", 2] != own["alone", 2]
    assert np.isfinite(ensemble.alone_validation_loss)


class Idle(Driver):
    """Counts the jobs of a round trip, and does none."""

    jobs = 0

    def __call__(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        self.jobs += len(jobs)
        return [LocalModelError("idle") for _ in jobs]


def test_other_numbers_are_another_fit() -> None:
    rng = np.random.default_rng(0)
    residual, weight = rng.normal(size=(9, 1)).astype(np.float32), rng.random(9)
    asked = FitRequest(1, residual, ("bank",), weight)
    plain = replace(asked, sample_weight=None)
    pairs = [
        (asked, replace(asked, track="alone", residual=residual.copy(), sample_weight=+weight), True),
        (plain, replace(plain, track="alone"), True),
        (asked, replace(asked, round=2), False),
        (asked, replace(asked, fold=0), False),
        (asked, replace(asked, target="probe"), False),
        (asked, replace(asked, residual=-residual), False),
        (asked, plain, False),
        (plain, asked, False),
        (asked, replace(asked, sample_weight=2 * weight), False),
    ]
    X = rng.normal(size=(9, 2))
    task = make_task(regression_labels(X[:, 0], Options()), ["bank"], Options(), label_holder="bank")
    for one, other, same in pairs:
        idle = Idle()
        ask(task, {"bank": Organization("bank", X, SVR())}, idle, [one, other])
        assert idle.jobs == (1 if same else 2)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_of_any_kind_travel(n_jobs: int) -> None:
    class Needy(Ridge):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            raise MissingExtraError("deep", "torch", "this model")

    X, y = health(40)
    with pytest.raises(NoRepliesError, match=r"bank: failed: this model needs the package 'torch'"):
        gal.learn(y, [Organization("bank", X, Needy())], n_jobs=n_jobs, rounds=1)


# --- observers


def test_the_progress_bar_shows_round_loss_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    seen: list[Progress] = []
    console = Console(file=screen, force_terminal=True, width=150)
    organizations, y = members()
    with show_progress(3, seen.append, console=console) as observer:
        gal.learn(y, organizations, rounds=3, on_round=observer, validation=gal.Validation(fraction=0.2))
    shown = screen.getvalue()
    assert "3/3" in shown
    last = seen[-1].rounds[-1]
    assert describe_progress(seen[-1]) in " ".join(shown.split())
    for part in (f"loss {last.train_loss:.4g}", f"validation {last.validation_loss:.4g}"):
        assert part in describe_progress(seen[-1])
    assert f"bank {last.weights['bank']:.2f}" in describe_progress(seen[-1])


# --- resuming


@pytest.mark.parametrize("options", [{}, {"validation_fraction": 0.2}])
def test_a_resumed_task_gives_the_same_ensemble(options: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"rounds": 4, "seed": 4, "cross_validation": "auto", **options}
    organizations, y = members()
    saved: list[bytes] = []
    whole = gal.learn(y, organizations, on_round=lambda p: saved.append(pickle.dumps(p)), **grouped(settings))
    output = gal.predict(whole, organizations).output

    organizations, y = members()
    gal.learn(y, organizations, **grouped(settings | {"rounds": 2}))  # stopped after two rounds
    seen: list[int] = []
    resumed = gal.learn(
        y,
        organizations,
        progress=pickle.loads(saved[1]),
        on_round=lambda progress: seen.append(len(progress.rounds)),
        **grouped(settings),
    )
    assert seen == [3, 4]
    assert resumed == whole
    assert gal.predict(resumed, organizations).output.tobytes() == output.tobytes()


# --- Ctrl-C


@pytest.mark.parametrize(("cross_validation", "fits"), [(0, 2), (4, 4 + 5 + 9)])
def test_ctrl_c_keeps_the_finished_rounds(cross_validation: int, fits: int) -> None:
    # Fits: four rounds of the sentinel fold; in a round the task and its folds, with assistance
    # and (to compare) alone; in the first round both are the same.
    X, y = health()
    local = {"bank": Raising(KeyboardInterrupt(), Counter(fits + 1)), "lab": Ridge()}
    with pytest.warns(InterruptedWarning, match="interrupted: the 2 finished rounds are kept"):
        model = GALRegressor(
            PARTS, rounds=4, local_models=local, validation=gal.Validation(folds=cross_validation)
        ).fit(X, y)
    assert len(model.rounds_) == model.n_rounds_ == 2
    assert model.ensemble_.stopped == "ended on request in round 3"
    assert np.isfinite(model.rounds_[1].validation_loss) == (cross_validation > 0)
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(("cross_validation", "fits"), [(0, 1), (4, 3)], ids=["round 1", "sentinel fold"])
def test_ctrl_c_before_the_first_round_is_finished_leaves_nothing(cross_validation: int, fits: int) -> None:
    X, y = health()
    local = {"bank": Raising(KeyboardInterrupt(), Counter(fits)), "lab": Ridge()}
    with pytest.raises(NothingLearnedError, match="before its first round was finished"):
        GALRegressor(
            PARTS, rounds=4, local_models=local, validation=gal.Validation(folds=cross_validation)
        ).fit(X, y)


def test_an_interrupted_observer_keeps_the_rounds_that_it_saw() -> None:
    organizations, y = members()
    seen: list[int] = []

    def observe(progress: Any) -> None:
        seen.append(len(progress.rounds))
        if len(seen) == 2:
            raise KeyboardInterrupt

    ensemble = gal.learn(y, organizations, rounds=4, validation=gal.Validation(folds=3), on_round=observe)
    assert len(ensemble.rounds) == 2
    assert ensemble.stopped == "ended on request in round 3"


def test_models_of_the_cross_validation_are_not_kept() -> None:
    organizations, y = members(local=KNeighborsRegressor())
    gal.learn(y, organizations, rounds=2, validation=gal.Validation(folds=3))
    assert set(organizations[0].models) == {("assisted", 1), ("assisted", 2), ("alone", 1), ("alone", 2)}
    assert set(organizations[1].models) == {("assisted", 1), ("assisted", 2)}
