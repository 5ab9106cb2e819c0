"""Label DP with secure aggregation: organizations see post-processed noise, the label holder sees sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal import GALClassifier, Organization
from gal.assembling import grouped
from gal.core.state import plain
from gal.privacy import (
    RandomisedResponse,
    SeededNoise,
)
from gal.secure_aggregation.member import GroupMember
from noise_sources import SameNoise

Values = NDArray[Any]
PARTS = {"bank": [0, 1], "a": [2], "b": [3], "c": [4, 5]}
OTHERS = ("a", "b", "c")
NOISY: dict[str, Any] = {
    "response": lambda source: RandomisedResponse(1.0, [0, 1], source),
    "response and columns": lambda source: RandomisedResponse(
        1.0, [0, 1], source, columns_epsilon=10.0, columns_delta=1e-6
    ),
}


def table(n: int = 300, *, others: float = 1.5, seed: int = 0) -> tuple[Values, Values]:
    """The label follows the bank's columns, and the others' as far as ``others`` says."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    signal = X @ np.array([1.0, -1.0, others, -others, others, 0.0])
    return X, (rng.logistic(size=n) < signal).astype(int)


def fitted(X: Values, y: Values, privacy: Any, make: Any = GALClassifier, **options: Any) -> Any:
    given: dict[str, Any] = {
        "local_models": Ridge(),
        "rounds": 3,
        "random_state": 0,
        "secure_aggregation": "sums",
    }
    return make(PARTS, privacy=privacy, **grouped(given | options)).fit(X, y)


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All requests to organizations so far: residuals, sums and their units, rows to predict."""
    seen: list[Any] = []
    fit, answer = Organization.keep, GroupMember.answer

    def keeping(one: Organization, request: Any, models: Any) -> Any:
        if one.name in OTHERS:
            weight = b"" if request.sample_weight is None else request.sample_weight.tobytes()
            seen.append((one.name, request.round, request.fold, request.track, request.residual.tobytes()))
            seen.append(weight)
        return fit(one, request, models)

    def answering(one: GroupMember, ask: Any, boxes: Any, values: Any, **how: Any) -> Any:
        seen.append((one.name, "sum", ask.content, ask.shape, ask.unit, ask.members))
        return answer(one, ask, boxes, values, **how)

    monkeypatch.setattr(Organization, "keep", keeping)
    monkeypatch.setattr(GroupMember, "answer", answering)
    return seen


def all_traffic(traffic: list[Any], model: Any, X: Values) -> tuple[Any, ...]:
    """All requests of a learning and a prediction, and the results that an organization may learn."""
    del traffic[:]
    model = model()
    model.predict(X)
    told = plain(model.contributions_), model.traffic_.trips, model.n_rounds_
    return list(traffic), told, model


@pytest.mark.parametrize("mechanism", NOISY)
@pytest.mark.usefixtures("few_penalties")
def test_other_labels_with_the_same_noise_give_the_same_requests_and_sums(
    mechanism: str, traffic: list[Any]
) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    X, y = table()
    noisy = np.where(np.random.default_rng(0).random(len(y)) < 0.3, 1 - y, y)
    found = []
    for labels in (y, np.random.default_rng(5).permutation(y), np.zeros_like(y)):
        privacy = NOISY[mechanism](SameNoise(noisy))
        found.append(all_traffic(traffic, lambda y=labels, how=privacy: fitted(X, y, how), X))
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][1] == found[1][1] == found[2][1]
    if mechanism == "response":
        used = [one.private_refit_.own.used for _, _, one in found[:2]]
        assert used == [True, False], "although different models predict"
    assert [one for one in found[0][0] if one and one[1] == "sum"]


@pytest.mark.usefixtures("few_penalties")
def test_noise_for_columns_is_on_every_residual_but_the_first(traffic: list[Any]) -> None:
    """Of the task and of each fold, before secure aggregation."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    X, y = table(60)
    found = []
    for mechanism in ("response", "response and columns"):
        privacy = NOISY[mechanism](SameNoise(y))
        sent = all_traffic(traffic, lambda how=privacy: fitted(X, y, how, rounds=2), X)[0]
        fits = [one for one in sent if one and one[:2] in (("a", 1), ("a", 2))]
        found.append({(t, part): np.frombuffer(residual, np.float32) for _, t, part, _, residual in fits})
    plain, noised = found
    assert plain.keys() == noised.keys() == {(t, part) for t in (1, 2) for part in (None, 0, 1, 2, 3)}
    for (t, part), residual in plain.items():
        alike = np.corrcoef(residual, noised[t, part])[0, 1]
        assert alike > 0.9999 if t == 1 else alike < 0.9, (t, part)


@pytest.mark.usefixtures("few_penalties")
def test_every_residual_and_every_prediction_is_one_sum(traffic: list[Any]) -> None:
    X, y = table()
    model = fitted(X, y, RandomisedResponse(1.0, [0, 1], SeededNoise(3)))
    sums = [one for one in traffic if one and one[1] == "sum"]
    assert len(sums) == len(OTHERS) * 3 * (1 + 4), "of the task and each fold; none of the own model"
    assert len({content for _, _, content, *_ in sums}) == 3 * (1 + 4), "one sum of each residual"
    assert {members for *_, members in sums} == {OTHERS}
    assert {one[3] for one in traffic if one and one[1] != "sum"} == {"assisted"}
    del traffic[:]
    model.predict(X[:7])
    assert [one[3] for one in traffic] == [(7, 1)] * 3, "one sum of all rounds, with any rates"
