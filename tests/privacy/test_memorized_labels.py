"""Label DP: a memorizer of the sent residuals gets no weight in the private stack."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from gal import GALClassifier
from gal.privacy import RandomisedResponse, SeededNoise

PARTS = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


class Memorizer(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts the last target of each row that it was fitted on, and 0 for others."""

    sent: ClassVar[dict[bytes, NDArray[Any]]] = {}

    def fit(self, X: Any, y: Any) -> Memorizer:
        self.nothing_ = np.zeros_like(np.asarray(y, dtype=float)[0])
        self.sent.update(zip((row.tobytes() for row in X), np.asarray(y, dtype=float), strict=True))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return np.array([self.sent.get(row.tobytes(), self.nothing_) for row in X])


@pytest.mark.usefixtures("few_penalties")
def test_a_memorizer_of_noisy_labels_is_left_out_of_the_private_stack() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = (X[:, 0] + 2 * X[:, 2] + 0.5 * rng.normal(size=400) > 0).astype(int)
    for hostile in (False, True):
        Memorizer.sent.clear()
        noise = RandomisedResponse(3.0, [0, 1], SeededNoise(1))
        local: dict[str, Any] = {"a": Ridge(), "b": Ridge(), "c": Memorizer() if hostile else Ridge()}
        model = GALClassifier(PARTS, rounds=3, local_models=local, privacy=noise, random_state=0).fit(X, y)
        refit = model.private_refit_
        assert refit is not None
        used = {name for counts in refit.coefficients for name in counts}
        assert used == ({"a", "b"} if hostile else {"a", "b", "c"})
