"""Noise on an organization's answers: cut at a public bound, as much as was asked for, and
honest about what it protects.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gal.errors import InvalidOptionError
from gal.privacy.accounting import spent
from gal.privacy.mechanisms.answers import BLOCK, AnswerNoise
from gal.privacy.noise import SeededNoise
from noise_sources import NoNoise

LAPLACE = AnswerNoise("laplace", clip=2.0, epsilon=0.5)


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


def test_one_answer_costs_what_was_asked_for_and_answers_add_up() -> None:
    assert spent([LAPLACE.event()], 0.0) == pytest.approx(0.5)
    assert spent([LAPLACE.event(count=7)], 0.0) == pytest.approx(3.5)
    noise = gaussian()
    assert 0.99 < spent([noise.event()], 1e-6) <= 1.0
    assert spent([noise.event(count=2)], 1e-6) > 1.3
    assert (noise.cost.epsilon, noise.cost.delta) == (1.0, 1e-6)


def test_the_systems_noise_is_the_default_and_never_the_same() -> None:
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    first, second = LAPLACE(np.zeros((20, 1))), LAPLACE(np.zeros((20, 1)))
    assert not np.isin(first, second).any()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such noise": ({"noise": "uniform"}, "laplace or gaussian"),
    "a tiny epsilon": ({"epsilon": 9e-7}, "epsilon must be .* from 1e-06"),
    "no bound": ({"clip": None}, "public bound of replies"),
    "no finite bound": ({"clip": math.inf}, "public bound of replies"),
    "delta for Laplace": ({"delta": 1e-6}, "needs no delta"),
    "none for Gaussian": ({"noise": "gaussian"}, "delta must be"),
}


@pytest.mark.parametrize(("given_", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_makes_no_sense_is_said(given_: dict[str, Any], said: str) -> None:
    chosen: dict[str, Any] = {"noise": "laplace", "clip": 2.0, "epsilon": 0.5}
    with pytest.raises(InvalidOptionError, match=said):
        AnswerNoise(**chosen | given_)
