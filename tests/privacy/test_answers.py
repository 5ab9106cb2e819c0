"""Noise on an organization's answers: cut at a public bound, as much as was asked for, and
honest about what it protects.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from gal.errors import BudgetSpentError, InvalidOptionError
from gal.privacy.accounting import Event, spent
from gal.privacy.ledger import Budget, Charge, Ledger, row_keys
from gal.privacy.mechanisms.answers import BLOCK, AnswerNoise
from gal.privacy.noise import SeededNoise

LAPLACE = AnswerNoise("laplace", clip=2.0, epsilon=0.5)


class NoNoise:
    """Adds nothing, and remembers what it was asked for."""

    secure = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, float]] = []

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> Any:
        raise NotImplementedError

    def laplace(self, values: Any, scale: float) -> Any:
        self.asked.append(("laplace", len(values), scale))
        return values

    def gaussian(self, values: Any, scale: float) -> Any:
        self.asked.append(("gaussian", len(values), scale))
        return values


def gaussian(**given: Any) -> AnswerNoise:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    chosen: dict[str, Any] = {"noise": "gaussian", "clip": 2.0, "epsilon": 1.0, "delta": 1e-6}
    return AnswerNoise(**chosen | given)


def test_answers_are_cut_and_nothing_slips_through() -> None:
    source = NoNoise()
    values = np.array([[0.5, -3.0], [np.inf, -np.inf], [np.nan, 2.0]], dtype=np.float32)
    cut = AnswerNoise("laplace", 2.0, 0.5, source=source)(values)
    np.testing.assert_array_equal(cut, [[0.5, -2.0], [2.0, -2.0], [0.0, 2.0]])
    assert np.isnan(values[2, 0])  # what was given is left alone


@pytest.mark.parametrize("shape", [(5, 1), (5, 3), (4, 5, 3), (2, 0, 1), (BLOCK + 3, 1)])
def test_every_answer_gets_noise_of_its_own_in_any_shape(shape: tuple[int, ...]) -> None:
    source = NoNoise()
    assert AnswerNoise("laplace", 2.0, 0.5, source=source)(np.zeros(shape)).shape == shape
    assert sum(n_rows for _, n_rows, _ in source.asked) == math.prod(shape[:-1])
    assert all(scale == LAPLACE.scale(shape[-1]) for _, _, scale in source.asked)
    noisy = AnswerNoise("laplace", 2.0, 0.5, source=SeededNoise(0))(np.zeros(shape))
    assert len(np.unique(noisy)) == noisy.size


FLOATS = st.floats(-1e6, 1e6)


@given(arrays(float, (2, 3), elements=FLOATS), st.floats(0.01, 10), st.floats(0.01, 20))
def test_two_rows_are_never_further_apart_than_epsilon_allows(rows: Any, clip: float, epsilon: float) -> None:
    """Laplace densities of two answers differ by at most a factor e^epsilon: the sum of
    their distances over the scale.
    """
    noise = AnswerNoise("laplace", clip, epsilon, source=NoNoise())
    one, other = noise(rows)
    assert np.abs(one - other).sum() / noise.scale(3) <= epsilon * (1 + 1e-9)


@settings(max_examples=25)
@given(arrays(float, (2, 3), elements=FLOATS), st.floats(0.01, 10))
def test_gaussian_noise_is_wide_enough_for_the_farthest_rows(rows: Any, clip: float) -> None:
    noise = gaussian(clip=clip, source=NoNoise())
    one, other = noise(rows)
    distance = float(np.linalg.norm(one - other)) / noise.scale(3)
    assert distance <= (1 + 1e-9) / noise.event().parameter


def test_one_answer_costs_what_was_asked_for_and_answers_add_up() -> None:
    assert spent([LAPLACE.event()], 0.0) == pytest.approx(0.5)
    assert spent([LAPLACE.event(count=7)], 0.0) == pytest.approx(3.5)
    noise = gaussian()
    assert 0.99 < spent([noise.event()], 1e-6) <= 1.0
    assert spent([noise.event(count=2)], 1e-6) > 1.3
    assert (noise.cost.epsilon, noise.cost.delta) == (1.0, 1e-6)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_ledger_takes_as_many_answers_as_are_said_to_be_allowed(kind: str) -> None:
    noise = LAPLACE if kind == "laplace" else gaussian()
    budget = Budget(4.0, 0.0 if kind == "laplace" else 1e-5)
    allowed = noise.allowed(budget.epsilon, budget.delta)
    assert allowed == 8 if kind == "laplace" else allowed > 8
    charge = Charge("t", "answers", "risk", ("clinic",), noise.event())
    with Ledger(":memory:") as ledger:
        for _ in range(allowed):
            ledger.charge(charge, row_keys([1]), budget, again=True)
        with pytest.raises(BudgetSpentError):
            ledger.charge(charge, row_keys([1]), budget, again=True)


@pytest.mark.parametrize("subject", ["answers", "labels: outcome"])
def test_a_spent_budget_says_what_to_do_about_this_subject(subject: str) -> None:
    with Ledger(":memory:") as ledger, pytest.raises(BudgetSpentError) as caught:
        ledger.charge(Charge("t", subject, "risk", ("clinic",), LAPLACE.event(9)), row_keys([1]), Budget(4.0))
    of_answers = subject == "answers"
    assert ("raise answer_budget_epsilon in node.toml, or let the label" in str(caught.value)) is of_answers
    assert ("leave out the rows that earlier tasks used" in str(caught.value)) is not of_answers


PURE, BELL, OPEN = Event("laplace", 2.0), Event("gaussian", 5.0), Event("none", 0.0)


@pytest.mark.parametrize(
    ("subject", "earlier", "now", "said"),
    [
        ("answers", None, BELL, "'clinic' has Gaussian noise, .* at delta 0: .* set answer_budget_delta"),
        ("labels: outcome", BELL, PURE, "sent before .* has Gaussian noise, .* set label_delta"),
        ("labels: outcome", None, OPEN, "'clinic' is without a mechanism, .* has no bound"),
        ("labels: outcome", OPEN, PURE, "sent before .* without a mechanism, .* has no bound"),
    ],
)
def test_no_refusal_speaks_of_infinite_costs(
    subject: str, earlier: Event | None, now: Event, said: str
) -> None:
    with Ledger(":memory:") as ledger:
        if earlier is not None:
            ledger.charge(Charge("s", subject, "before", ("clinic",), earlier), row_keys([1]), None)
        with pytest.raises(BudgetSpentError, match=said) as caught:
            ledger.charge(Charge("t", subject, "risk", ("clinic",), now), row_keys([1]), Budget(4.0))
    assert re.search(r"\b(inf|nan)\b", str(caught.value)) is None


def test_what_is_said_is_what_holds() -> None:
    said = LAPLACE.describe()
    assert "epsilon 0.5" in said
    assert "local differential privacy" in said
    assert "What a row has taught the model" in said
    assert "is not protected" in said
    assert "delta 1e-06" in gaussian().describe()


def test_the_systems_noise_is_the_default_and_never_the_same() -> None:
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    first, second = LAPLACE(np.zeros((20, 1))), LAPLACE(np.zeros((20, 1)))
    assert not np.isin(first, second).any()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such noise": ({"noise": "uniform"}, "laplace or gaussian"),
    "no noise": ({"noise": "none"}, "laplace or gaussian"),
    "epsilon 0": ({"epsilon": 0.0}, "epsilon must be"),
    "a tiny epsilon": ({"epsilon": 9e-7}, "epsilon must be .* from 1e-06"),
    "epsilon below 0": ({"epsilon": -1.0}, "epsilon must be"),
    "no bound": ({"clip": None}, "public bound of answers"),
    "bound 0": ({"clip": 0.0}, "public bound of answers"),
    "no finite bound": ({"clip": math.inf}, "public bound of answers"),
    "a truth": ({"clip": True}, "public bound of answers"),
    "delta for Laplace": ({"delta": 1e-6}, "needs no delta"),
    "none for Gaussian": ({"noise": "gaussian"}, "delta must be"),
}


@pytest.mark.parametrize(("given_", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_makes_no_sense_is_said(given_: dict[str, Any], said: str) -> None:
    chosen: dict[str, Any] = {"noise": "laplace", "clip": 2.0, "epsilon": 0.5}
    with pytest.raises(InvalidOptionError, match=said):
        AnswerNoise(**chosen | given_)


@pytest.mark.parametrize(
    ("epsilon", "budget", "answers"), [(0.01, 4.0, 400), (0.5, 0.4, 0), (0.3, 0.3, 1), (0.25, 1.8, 7)]
)
def test_as_many_answers_as_the_budget_divided_by_the_cost(
    epsilon: float, budget: float, answers: int
) -> None:
    assert AnswerNoise("laplace", 3.0, epsilon).allowed(budget) == answers


def test_a_budget_without_end_is_not_counted_to_its_end() -> None:
    assert 2**19 <= AnswerNoise("laplace", 3.0, 1e-6).allowed(1e6) <= 2**20


def test_the_deviation_is_that_of_the_noise() -> None:
    """Of the Laplace distribution sqrt(2) times its scale, of the normal one its scale."""
    for outputs in (1, 3):
        assert LAPLACE.deviation(outputs) == pytest.approx(stats.laplace(scale=LAPLACE.scale(outputs)).std())
        assert gaussian().deviation(outputs) == gaussian().scale(outputs)


def test_so_many_answers_are_one_event_of_the_ledger() -> None:
    assert (LAPLACE.event().count, LAPLACE.event(5).count) == (1, 5)
    assert LAPLACE.event(5).parameter == pytest.approx(1 / 0.5)
