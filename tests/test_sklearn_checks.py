"""scikit-learn's own checks of its estimators; none is left out but the array API, which we do not claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator

from gal import GALClassifier, GALRegressor

ESTIMATORS = [
    GALRegressor(),
    GALClassifier(),
    GALRegressor(local_models=Ridge()),
    GALClassifier(local_models=Ridge()),
]


def _checks() -> Iterator[Any]:
    for estimator in ESTIMATORS:
        for one, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if name != "check_array_api_input":
                yield pytest.param(one, check, id=f"{estimator}-{name}")


@pytest.mark.parametrize(("estimator", "check"), list(_checks()))
def test_is_a_scikit_learn_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
