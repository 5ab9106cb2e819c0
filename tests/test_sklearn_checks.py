"""scikit-learn's own checks of its estimators; none is left out but the array API, which we do not claim."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from sklearn_check_list import scikit_learn_checks

ALONE = {"all": slice(None)}
"""The checks' tables have one to ten columns."""

ESTIMATORS = [
    GALRegressor(ALONE),
    GALClassifier(ALONE),
    GALRegressor(ALONE, local_models=Ridge()),
    GALClassifier(ALONE, local_models=Ridge()),
]


@pytest.mark.parametrize(("estimator", "check"), scikit_learn_checks(*ESTIMATORS))
def test_is_a_scikit_learn_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
