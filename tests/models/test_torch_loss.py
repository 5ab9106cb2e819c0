"""A torch function as the overarching loss."""

from __future__ import annotations

import numpy as np
import pytest

from gal import GALRegressor
from gal.errors import InvalidOptionError
from gal.models import torch_loss

torch = pytest.importorskip("torch", reason="needs the extra deep")


def test_gradient_is_that_of_the_function() -> None:
    rng = np.random.default_rng(0)
    y, output = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    loss = torch_loss(lambda y, f: torch.log(torch.cosh(y - f)).sum(dim=1), n_outputs=2)
    np.testing.assert_allclose(loss.value(y, output), np.log(np.cosh(y - output)).sum(axis=1))
    np.testing.assert_allclose(loss.pseudo_residual(y, output), np.tanh(y - output))


def test_learns_with_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X.sum(axis=1)
    loss = torch_loss(lambda y, f: torch.log(torch.cosh(y - f)).sum(dim=1))
    model = GALRegressor({"a": [0, 1], "b": [2, 3]}, loss=loss, validation_fraction=0).fit(X, y)
    losses = [done.train_loss for done in model.rounds_]
    assert losses[-1] < 0.05 * model.ensemble_.initial_train_loss
    assert losses == sorted(losses, reverse=True)


def test_wrong_shape_is_named() -> None:
    loss = torch_loss(lambda y, f: ((y - f) ** 2).sum())
    with pytest.raises(InvalidOptionError, match="one loss per row"):
        loss.value(np.zeros((3, 1)), np.zeros((3, 1)))
