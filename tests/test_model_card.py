"""The card of a fitted estimator says who helped, how good it is, and nothing that undoes privacy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from gal import GALClassifier, GALRegressor
from gal.extras import is_installed

PARTS = {"clinic": ["a", "b"], "lab": ["c", "d"]}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(80, 4)), columns=list("abcd"))


def test_it_tells_what_was_learned(table: pd.DataFrame) -> None:
    model = GALRegressor(PARTS, rounds=3, random_state=7).fit(table, table["a"] + 2 * table["c"])
    card = model.card()
    assert card.startswith("# GALRegressor of clinic\n")
    assert "with the help of lab" in card
    assert model.contributions_ is not None
    lab = model.contributions_.by_organization["lab"]
    assert f"| lab | 2 | c, d | {lab.value:.4g} ({lab.low:.4g} to {lab.high:.4g}): helped |" in card
    assert f"{model.contributions_.own:.4g} alone |" in card
    assert f"| clinic alone | {model.ensemble_.alone_validation_loss:.6g} |" in card
    assert f"| with assistance | {model.ensemble_.assisted_validation_loss:.6g} |" in card
    assert "- `rounds = 3`" in card
    assert "- `random_state = 7`" in card
    assert "organizations =" not in card


def test_without_validation_it_says_so(table: pd.DataFrame) -> None:
    model = GALClassifier(PARTS, rounds=1, preset="paper").fit(table, np.where(table["c"] > 0, "yes", "no"))
    card = model.card()
    assert "classes (no, yes)" in card
    assert "No rows validated" in card


def test_who_is_not_fitted_has_none() -> None:
    with pytest.raises(NotFittedError):
        GALRegressor(PARTS).card()


@pytest.mark.skipif(not is_installed("dp_accounting"), reason="needs the extra privacy")
def test_seeds_of_noise_are_not_in_it(table: pd.DataFrame) -> None:
    from gal.privacy import RandomisedResponse
    from gal.privacy.noise import SeededNoise

    noise = RandomisedResponse(epsilon=1.0, classes=["no", "yes"], source=SeededNoise(424242))
    model = GALClassifier(PARTS, rounds=1, privacy=noise, random_state=515151)
    card = model.fit(table, np.where(table["c"] > 0, "yes", "no")).card()
    assert "epsilon" in card
    assert "424242" not in card
    assert "515151" not in card
