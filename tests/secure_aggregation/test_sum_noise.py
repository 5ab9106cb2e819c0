"""Distributed noise on sums: it has the agreed variance, and keeps few-valued columns from being read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression

pytest.importorskip("cryptography", reason="cryptography is not installed")
pytest.importorskip("opendp", reason="opendp is not installed")

from few_values import columns_read
from gal import Organization, learn, predict
from gal.assembling import grouped
from gal.core.state import ensemble_of, plain
from gal.errors import InvalidOptionError
from gal.privacy import noise_multiplier
from gal.privacy.accounting import Event, spent
from gal.secure_aggregation import Sums
from low_bits import sums_of
from small_groups import NAMES, Round, group_of, member_of

N = 600
MULTIPLIER, CLIP = 0.5, 2.0


def noisy_round(drop_outs: int = 0) -> Round:
    group = replace(group_of(NAMES, drop_outs), noise=(MULTIPLIER, CLIP))
    return Round(group, {name: member_of(group, name) for name in NAMES}).keys()


def opened(one: Round, said: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    one.ask(said)
    return one.open()


@pytest.mark.parametrize(("drop_outs", "gone"), [(0, 0), (1, 0), (1, 1)])
def test_shares_add_up_to_the_noise_that_was_agreed_also_where_one_drops_out(
    drop_outs: int, gone: int
) -> None:
    zeros = {name: np.zeros((4000, 2)) for name in NAMES[gone:]}
    found = opened(noisy_round(drop_outs), zeros).std()
    agreed = MULTIPLIER * 2 * CLIP * np.sqrt(2)
    more = np.sqrt(len(zeros) / (len(NAMES) - drop_outs))
    assert found == pytest.approx(agreed * more, rel=0.05)
    assert more >= 1, "never less than agreed"


def test_values_are_clipped_so_that_two_rows_are_no_further_apart_than_is_paid_for() -> None:
    huge = {name: np.full((4000, 1), 1000.0) for name in NAMES}
    deviation = MULTIPLIER * 2 * CLIP
    assert opened(noisy_round(), huge).mean() == pytest.approx(
        len(NAMES) * CLIP, abs=5 * deviation / 4000**0.5
    )


def test_each_sum_draws_anew_and_without_noise_nothing_of_the_agreement_changes() -> None:
    said = {name: np.zeros((50, 1)) for name in NAMES}
    assert (opened(noisy_round(), said) != opened(noisy_round(), said)).any()
    assert replace(group_of(), noise=()).digest == group_of().digest
    assert replace(group_of(), noise=(MULTIPLIER, CLIP)).digest != group_of().digest


def test_options_out_of_range_are_errors() -> None:
    for wrong in ({"noise_multiplier": -1.0}, {"noise_multiplier": float("nan")}, {"clip": 0.0}):
        with pytest.raises(InvalidOptionError, match="noise_multiplier must be from 0"):
            Sums(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "releases"), [(0.5, 1), (4.0, 10), (100.0, 50)])
def test_the_multiplier_costs_what_was_asked_for(epsilon: float, releases: int) -> None:
    """zCDP of discrete noise is stated a little above the exact cost of continuous noise, never below."""
    multiplier = noise_multiplier(epsilon, 1e-6, releases)
    cost = spent([Event("discrete-gaussian", multiplier, releases)], 1e-6)
    assert 0.999 * epsilon < cost <= epsilon
    assert spent([Event("gaussian", multiplier, releases)], 1e-6) <= cost
    rho = releases / (2 * multiplier**2)
    assert cost <= rho + 2 * np.sqrt(rho * np.log(1e6)), "the usual bound is looser"
    half = [Event("discrete-gaussian", multiplier, releases // 2 or 1), Event("randomised-response", 1.0)]
    assert spent(half, 1e-6) > 1.0


def organizations(model: Any) -> tuple[list[Organization], NDArray[np.float64], list[NDArray[np.intp]]]:
    """A label holder, and three others with a two-valued column each."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2, N) for _ in range(3)]
    own = rng.normal(size=(N, 1))
    y = own[:, 0] + sum((one - 0.5) * (0.5 + 0.15 * m) for m, one in enumerate(columns))
    made = [Organization("bank", own, model)]
    made += [Organization(f"m{m}", one[:, None].astype(float), model) for m, one in enumerate(columns)]
    return made, y + 0.3 * rng.normal(size=N), columns


MODELS = [LinearRegression(), GradientBoostingRegressor(n_estimators=5, random_state=0)]


@pytest.mark.parametrize("model", MODELS, ids=["linear", "boosting"])
def test_exact_sums_of_few_values_give_every_column_away_and_noisy_ones_do_not(model: Any) -> None:
    made, y, columns = organizations(model)
    options = grouped({"rounds": 6, "cross_validation": 0, "validation_fraction": 0.0, "fitted": "in-sample"})
    with sums_of() as exact:
        learn(y, made, secure_aggregation="sums", **options)
    assert min(columns_read(exact, columns)) > 0.9
    with sums_of() as noisy:
        ensemble = learn(y, made, secure_aggregation=Sums(noise_multiplier=0.1), **options)
    assert max(columns_read(noisy, columns)) < 0.5
    with sums_of() as predicted:
        first = predict(ensemble, made).output
    assert (predict(ensemble, made).output != first).any(), "sums of predictions have noise of their own"
    stored = ensemble_of(json.loads(json.dumps(plain(ensemble))))
    assert stored.summed_noise == (0.1, 2.0)
    assert np.std(predict(stored, made).output - first) > 0
    assert len(predicted) == 1
