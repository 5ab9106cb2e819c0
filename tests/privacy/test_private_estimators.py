"""Estimators under a privacy mechanism: nothing private shows in what is sent, and the
private refit repairs the rest.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from gal.assembling import grouped
from gal.core.requests import FitRequest, Request
from gal.core.state import plain
from gal.errors import InvalidLabelsError, InvalidOptionError, PrivacyError
from gal.privacy import GaussianLabels, LaplaceLabels, PaperInterval, RandomisedResponse, SeededNoise
from noise_sources import SameNoise

Values = NDArray[Any]
PARTS = {"bank": [0, 1], "shop": [2, 3], "lab": [4, 5]}
CLASSES = [0, 1, 2]


class Sent:
    """Every byte that leaves for others, in order, and who is asked."""

    def __init__(self) -> None:
        self.traffic: list[Any] = []

    def __call__(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]) -> None:
        for request in requests:
            if not isinstance(request, FitRequest) or request.track == "assisted":
                residual = request.residual.tobytes() if isinstance(request, FitRequest) else b""
                part = request.fold if isinstance(request, FitRequest) else None
                self.traffic.append((request.organizations, part, residual))


def table(n: int = 240, seed: int = 0) -> tuple[Values, Values]:
    """Six columns, three classes that follow from all of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    score = X @ rng.normal(size=(6, 3)) * 2 + 0.3 * rng.normal(size=(n, 3))
    return X, score.argmax(axis=1)


def classifier(privacy: Any, make: Any = GALClassifier, **options: Any) -> Any:
    given = {"local_models": Ridge(), "random_state": 0, "rounds": 4} | options
    return make(PARTS, privacy=privacy, **grouped(given))


def regressor(privacy: Any, **options: Any) -> Any:
    return classifier(privacy, GALRegressor, **options)


def noisy_response(epsilon: float, seed: int = 3) -> RandomisedResponse:
    return RandomisedResponse(epsilon, CLASSES, SeededNoise(seed))


# --- what is sent


OPTIONS: list[dict[str, Any]] = [
    {},
    {"fitted": "held-out"},
    {"validation_fraction": 0.2},
    {"cross_validation": 3},
    {"preset": "paper"},
    {"plateau": 0.01, "rounds": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.usefixtures("few_penalties")
def test_two_label_vectors_with_the_same_noisy_copy_give_byte_identical_traffic(
    options: dict[str, Any],
) -> None:
    X, y = table()
    other = np.random.default_rng(5).permutation(y)
    traffic = []
    for labels in (y, other, np.zeros_like(y)):
        sent = Sent()
        how = {"rounds": 2} | options
        model = classifier(RandomisedResponse(1.0, CLASSES, SameNoise()), **how)
        model.fit(X, labels, on_message=sent)
        told = plain(model.contributions_)  # an organization may learn its contribution
        traffic.append((sent.traffic, model.ensemble_.requested(), model.n_rounds_, model.traffic_, told))
    assert traffic[0] == traffic[1] == traffic[2]
    assert len(traffic[0][0]) >= 1


@pytest.mark.usefixtures("few_penalties")
def test_contributions_follow_the_noisy_copy_also_with_noise_on_residuals() -> None:
    """Not so under the paper's mechanisms, as the page says."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    X, y = table()
    found: dict[str, list[Any]] = {"label DP": [], "paper": []}
    for labels in (y, np.random.default_rng(5).permutation(y)):
        noisy = RandomisedResponse(1.0, CLASSES, SameNoise(), columns_epsilon=4.0, columns_delta=1e-6)
        for name, privacy in (("label DP", noisy), ("paper", PaperInterval())):
            model = classifier(privacy, rounds=2).fit(X, labels)
            found[name].append(plain(model.contributions_))
    assert found["label DP"][0] == found["label DP"][1]
    assert found["paper"][0] != found["paper"][1]


class Hostile(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Answers anything: the residual that it got, much too large, or as little as there is; now and then it
    fails. What it says follows from what it received alone.
    """

    def __init__(self, how: str = "echo") -> None:
        self.how = how

    def fit(self, X: Values, y: Values) -> Hostile:
        self.drawn_ = np.random.default_rng(zlib.crc32(y.tobytes()))
        if self.how == "fails" and self.drawn_.random() < 0.5:
            raise ValueError("no")
        self.told_ = y
        return self

    def predict(self, X: Values) -> Values:
        if self.how == "huge":
            return 1e30 * self.drawn_.normal(size=len(X))
        if self.how == "nothing":
            return np.zeros(len(X))
        return np.asarray(np.resize(self.told_, len(X)) * self.drawn_.choice([-1.0, 1.0, 50.0]))


@pytest.mark.parametrize("how", ["echo", "huge", "nothing", "fails"])
@pytest.mark.usefixtures("few_penalties")
@pytest.mark.filterwarnings("ignore")
def test_hostile_replies_do_not_disclose_more_of_the_labels(how: str) -> None:
    """Replies change weights, rates, the number of rounds and later requests; true labels do not."""
    X, y = table(120)
    y, traffic = np.minimum(y, 1), []
    for labels in (y, np.random.default_rng(5).permutation(y)):
        sent = Sent()
        models = {"bank": Ridge(), "shop": Hostile(how), "lab": Hostile(how)}
        privacy = RandomisedResponse(1.0, [0, 1], SameNoise())
        options: dict[str, Any] = {"rounds": 3, "random_state": 0}
        model = GALClassifier(PARTS, local_models=models, privacy=privacy, **options)
        model.fit(X, labels, on_message=sent)
        told = plain(model.contributions_), model.ensemble_.coefficients
        traffic.append((sent.traffic, model.ensemble_.requested(), model.n_rounds_, told))
    assert traffic[0] == traffic[1]


@pytest.mark.parametrize("kind", [LaplaceLabels, GaussianLabels])
def test_numbers_too(kind: Any) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    X, y = table()
    delta = () if kind is LaplaceLabels else (1e-5,)
    traffic = []
    for labels in (y.astype(float), np.full(len(y), 0.5)):
        sent = Sent()
        regressor(kind(1.0, *delta, 0.0, 2.0, SameNoise())).fit(X, labels, on_message=sent)
        traffic.append(sent.traffic)
    assert traffic[0] == traffic[1]


def test_without_a_mechanism_the_labels_do_show() -> None:
    """The tests above can fail: plain residuals of other labels differ."""
    X, y = table()
    traffic = []
    for labels in (y, np.random.default_rng(5).permutation(y)):
        sent = Sent()
        classifier(None).fit(X, labels, on_message=sent)
        traffic.append(sent.traffic)
    assert traffic[0] != traffic[1]


@pytest.mark.usefixtures("few_penalties")
def test_a_tasks_seed_does_not_fix_production_noise() -> None:
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    X, y = table()
    first, second = Sent(), Sent()
    once: dict[str, Any] = {"random_state": 7, "rounds": 1, "cross_validation": 0}
    for sent in (first, second):
        classifier(RandomisedResponse(1.0, CLASSES), **once).fit(X, y, on_message=sent)
    assert first.traffic[0] != second.traffic[0]


# --- what it costs, and what the private track brings


@pytest.mark.usefixtures("few_penalties")
def test_the_statement_names_the_cost_or_that_there_is_none() -> None:
    X, y = table()
    private = classifier(noisy_response(1.0)).fit(X, y)
    assert private.privacy_.cost is not None
    assert private.privacy_.cost.epsilon == 1.0
    assert "at most 57.6%" in str(private.privacy_)
    assert "from a seed" in str(private.privacy_)
    paper = classifier(PaperInterval()).fit(X, y)
    assert (paper.privacy_.cost, paper.private_refit_) == (None, None)
    assert "can know every training label" in str(classifier(None).fit(X, y).privacy_)


# --- what is refused, before anything is sent


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_an_epsilon_that_is_none(epsilon: Any) -> None:
    with pytest.raises(InvalidOptionError, match="epsilon must be a number above 0"):
        RandomisedResponse(epsilon, CLASSES)


@pytest.mark.parametrize("classes", [None, [], ["a"], ["a", "a"], "ab"])
def test_classes_that_are_none(classes: Any) -> None:
    with pytest.raises(InvalidOptionError, match="public set of all classes"):
        RandomisedResponse(1.0, classes)


@pytest.mark.parametrize("privacy", ["randomised-response", 1.0, RandomisedResponse, object()])
def test_an_unknown_mechanism(privacy: Any) -> None:
    X, y = table()
    with pytest.raises(InvalidOptionError, match="privacy must be None or a mechanism"):
        classifier(privacy).fit(X, y)


def test_labels_outside_of_what_is_public() -> None:
    X, y = table()
    sent = Sent()
    with pytest.raises(InvalidLabelsError, match=r"none of the public classes \[0, 1\].*Nothing was sent"):
        classifier(RandomisedResponse(1.0, [0, 1], SeededNoise(0))).fit(X, y, on_message=sent)
    with pytest.raises(InvalidLabelsError, match=r"outside of the public bounds 0 to 1.*Nothing was sent"):
        regressor(LaplaceLabels(1.0, 0.0, 1.0, SeededNoise(0))).fit(X, y.astype(float), on_message=sent)
    assert sent.traffic == []


def test_what_might_carry_labels_is_refused() -> None:
    X, y = table()
    with pytest.raises(PrivacyError, match="sample_weight"):
        classifier(noisy_response(1.0)).fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(PrivacyError, match="initial"):
        classifier(noisy_response(1.0), initial=0).fit(X, y)
    with pytest.raises(InvalidOptionError, match="stacking"):
        classifier(noisy_response(1.0), stacking=True).fit(X, y)
    with pytest.raises(InvalidOptionError, match=r"need true labels \(label differential privacy"):
        classifier(noisy_response(2.0), interactions=4, validation_fraction=0.1).fit(X, y)


def test_the_wrong_kind_of_labels() -> None:
    X, y = table()
    with pytest.raises(InvalidOptionError, match="these labels are classes"):
        classifier(LaplaceLabels(1.0, 0.0, 2.0)).fit(X, y)
    with pytest.raises(InvalidOptionError, match="these labels are numbers"):
        regressor(noisy_response(1.0)).fit(X, y.astype(float))
    with pytest.raises(InvalidOptionError, match="squared error"):
        regressor(LaplaceLabels(1.0, 0.0, 2.0), loss="absolute_error").fit(X, y.astype(float))


def test_a_column_that_is_called_like_a_word_is_no_initial_output() -> None:
    """It would be taken for a score, and fitted to the true labels."""
    pandas = pytest.importorskip("pandas")
    X, y = table()
    named = pandas.DataFrame(X, columns=["auto", "zero", "c", "d", "e", "f"])
    for word in ("auto", "zero"):
        with pytest.raises(PrivacyError, match="names a column of the table"):
            classifier(noisy_response(1.0), initial=word).fit(named, y)
