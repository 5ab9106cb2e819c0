"""scikit-learn's checks as pytest parameters; all but the array API, which we do not claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

NOT_CLAIMED = {"check_array_api_input"}


def scikit_learn_checks(*estimators: Any, expected_to_fail: Mapping[str, str] | None = None) -> list[Any]:
    """(estimator, check) pairs; those expected to fail carry their reason."""
    found = []
    for estimator in estimators:
        for one, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            if name in NOT_CLAIMED:
                continue
            reason = (expected_to_fail or {}).get(name)
            marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
            found.append(pytest.param(one, check, id=f"{estimator}-{name}", marks=marks))
    return found
