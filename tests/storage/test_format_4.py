"""Estimators that were saved in format 4 predict what they predicted then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal import GALClassifier, GALRegressor

FOLDER = Path(__file__).with_name("format_4")
"""Saved by commit 7b6f27b0, with what each predicted of five rows."""
PREDICTED: dict[str, Any] = json.loads((FOLDER / "predictions.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PREDICTED)
def test_a_saved_estimator_predicts_as_before(name: str, tmp_path: Path) -> None:
    X, expected = pd.DataFrame(PREDICTED[name]["rows"]), np.array(PREDICTED[name]["predicted"])
    kind = GALRegressor if expected.ndim == 1 else GALClassifier
    model = kind.load(FOLDER / f"{name}.gal")
    model.save(tmp_path / "again.gal")
    for one in (model, kind.load(tmp_path / "again.gal")):
        found = one.predict(X) if expected.ndim == 1 else one.predict_proba(X)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert (model.stacker_ is not None) == (name == "stacked")
    assert model.get_params(deep=False).keys() == kind().get_params(deep=False).keys()
