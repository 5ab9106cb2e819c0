"""scikit-learn's own checks of its estimators; none is left out but the array API, which we do not claim."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from sklearn_check_list import scikit_learn_checks

ESTIMATORS = [
    GALRegressor(),
    GALClassifier(),
    GALRegressor(local_models=Ridge()),
    GALClassifier(local_models=Ridge()),
]


@pytest.mark.parametrize(("estimator", "check"), scikit_learn_checks(*ESTIMATORS))
def test_is_a_scikit_learn_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
