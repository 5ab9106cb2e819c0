"""A model that was fitted on a cluster, stored and read where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gal
from gal import Organization
from gal.storage import load_organization, save_organization

NOBODY = "tcp://127.0.0.1:9"
"""Where no scheduler is."""


def check_stored(
    model: Any, X: NDArray[Any], y: NDArray[Any], path: Path, forget: Callable[[], None] = lambda: None
) -> None:
    """Whether it predicts the same when it was read; ``forget`` lets go of what is remembered of it."""
    one = Organization("lab", X, model)
    ensemble = gal.learn(y, [one], rounds=2, closing=False)
    expected = gal.predict(ensemble, [one]).output
    for models in one.models.values():  # as fitted on a cluster that is no more
        for fitted in models:
            wrapped: Any = fitted
            wrapped.estimator_.set_params(scheduler=NOBODY)
    save_organization(one, path)
    forget()
    again = load_organization(path, X)
    np.testing.assert_array_equal(gal.predict(ensemble, [again]).output, expected)
