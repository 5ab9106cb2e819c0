"""Saved models: they come back the same, and nothing untrusted comes in."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR

from gal import GALClassifier, GALRegressor
from gal.assembling import grouped
from gal.errors import StoredModelError
from gal.storage import read_archive
from gal.storage.archive import FORMAT, _written
from small_tables import PARTS, Floats, health, ill, stages

MODELS = {
    "default": None,
    "ridge": Ridge(),
    "svr": SVR(),
    "histogram boosting": HistGradientBoostingRegressor(max_iter=5),
    "boosting": GradientBoostingRegressor(n_estimators=5),
    "neighbours": KNeighborsRegressor(),
    "pipeline": make_pipeline(StandardScaler(), Ridge()),
    "each their own": {"bank": SVR(), "lab": make_pipeline(StandardScaler(), Ridge())},
}


class Steady(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A model of an unknown package."""

    def fit(self, X: Any, y: Any) -> Steady:
        self.ridge_ = Ridge().fit(X, y)
        return self

    def predict(self, X: Any) -> Floats:
        return np.asarray(self.ridge_.predict(X))


def regressor(**options: Any) -> GALRegressor:
    chosen = {"rounds": 2, "local_models": Ridge(), "cross_validation": 0, "random_state": 0, **options}
    return GALRegressor(chosen.pop("organizations", PARTS), **grouped(chosen))


@pytest.mark.parametrize("local", MODELS.values(), ids=MODELS.keys())
def test_a_loaded_regressor_is_the_saved_one(local: Any, tmp_path: Path) -> None:
    X, y = health(60)
    model = regressor(local_models=local).fit(X, y)
    model.save(tmp_path / "model.gal")
    again = GALRegressor.load(tmp_path / "model.gal")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(X, missing=["lab"]), model.predict(X, missing=["lab"]))
    pd.testing.assert_frame_equal(again.explain(X), model.explain(X))
    assert again.contributions_ == model.contributions_
    assert [one.weights for one in again.rounds_] == [one.weights for one in model.rounds_]
    assert [one.seconds for one in again.rounds_] == [one.seconds for one in model.rounds_]
    assert again.n_rounds_ == model.n_rounds_
    assert repr(again.get_params()) == repr(model.get_params())
    assert [path.name for path in tmp_path.iterdir()] == ["model.gal"]


@pytest.mark.parametrize("table", [ill, stages])
def test_a_loaded_classifier_is_the_saved_one(table: Any, tmp_path: Path) -> None:
    X, y = table()
    model = GALClassifier(PARTS, rounds=2, random_state=0).fit(X, y)
    model.save(tmp_path / "model.gal")
    again = GALClassifier.load(tmp_path / "model.gal")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.ensemble_ == model.ensemble_


@pytest.mark.parametrize(
    "options",
    [
        {"organizations": {"bank": range(2), "lab": slice(2, 4)}},
        {
            "organizations": {"bank": np.array([0, 1]), "lab": [True] * 2 + [False] * 2},
            "label_holder": "bank",
        },
        {"organizations": {"bank": pd.Index(["income", "debt"]), "lab": ["sugar", "pulse"]}},
        {"initial": "pulse"},
        {"loss": "huber", "local_losses": "l2"},
        {"preset": "paper", "local_models": None},
        {"random_state": np.random.RandomState(3)},
    ],
    ids=lambda options: " ".join(options),
)
@pytest.mark.filterwarnings("ignore::gal.warnings.SharedColumnsWarning")
def test_options_of_all_kinds_can_be_stored(options: dict[str, Any], tmp_path: Path) -> None:
    X, y = health(60)
    model = regressor(**options).fit(X, y)
    model.save(tmp_path / "model.gal")
    np.testing.assert_array_equal(GALRegressor.load(tmp_path / "model.gal").predict(X), model.predict(X))


# --- what is refused


def test_there_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoredModelError, match=r"there is no file '.*nowhere\.gal'"):
        GALRegressor.load(tmp_path / "nowhere.gal")


def test_garbage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "garbage.gal"
    path.write_bytes(b"\x80\x04\x95 this is a pickle, or not")
    with pytest.raises(StoredModelError, match=r"garbage\.gal' is not a saved GAL model"):
        GALRegressor.load(path)
    with pytest.raises(StoredModelError, match="is not a saved GAL model"):
        GALRegressor.load(tmp_path)


@pytest.mark.parametrize("content", ["[1, 2]", '"text"', "{}", '{"format": 3}', '{"format": 99}'])
def test_other_formats_are_refused(content: str, tmp_path: Path) -> None:
    path = archive(tmp_path, content, b"")
    with pytest.raises(StoredModelError, match=r"has format (None|3|99), this version .* reads 4 and 5"):
        read_archive(path)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, f'{{"format": {FORMAT}, "facts": {{}}, "ensemble": {{}}}}', b"no skops")
    with pytest.raises(StoredModelError, match=r"the models in '.*broken\.gal' cannot be read"):
        read_archive(path)


def test_a_damaged_ensemble_is_refused(tmp_path: Path) -> None:
    X, y = health(40)
    regressor().fit(X, y).save(tmp_path / "model.gal")
    with zipfile.ZipFile(tmp_path / "model.gal") as saved:
        content, models = json.loads(saved.read("gal.json")), saved.read("models.skops")
    del content["ensemble"]["rounds"]
    path = archive(tmp_path, json.dumps(content), models)
    with pytest.raises(StoredModelError, match=r"broken\.gal' cannot be read"):
        GALRegressor.load(path)


def test_a_classifier_is_no_regressor(tmp_path: Path) -> None:
    X, y = health(40)
    regressor().fit(X, y).save(tmp_path / "model.gal")
    with pytest.raises(StoredModelError, match=r"holds a GALRegressor: use GALRegressor\.load"):
        GALClassifier.load(tmp_path / "model.gal")


def test_types_of_others_must_be_trusted_by_name(tmp_path: Path) -> None:
    X, y = health(40)
    model = regressor(local_models={"lab": Steady(), "bank": Ridge()}).fit(X, y)
    model.save(tmp_path / "model.gal")
    with pytest.raises(
        StoredModelError, match=r"not trusted: test_storage\.Steady\..*trusted=\['test_storage\.Steady'\]"
    ):
        GALRegressor.load(tmp_path / "model.gal")
    again = GALRegressor.load(tmp_path / "model.gal", trusted=["test_storage.Steady"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("function", [pd.read_pickle, pd.eval], ids=["read_pickle", "eval"])
def test_functions_of_trusted_packages_are_not_trusted(function: Any, tmp_path: Path) -> None:
    X, y = health(40)
    model = regressor(local_models=make_pipeline(FunctionTransformer(), Ridge())).fit(X, y)
    model.local_models.set_params(functiontransformer__func=function)
    model.save(tmp_path / "model.gal")
    with pytest.raises(StoredModelError, match=rf"not trusted: pandas\.[\w.]*{function.__name__}"):
        GALRegressor.load(tmp_path / "model.gal")


def test_objects_that_cannot_be_stored_are_errors_and_nothing_is_written(tmp_path: Path) -> None:
    X, y = health(40)
    model = regressor(organizations={"bank": lambda table: [0, 1], "lab": [2, 3]}).fit(X, y)
    (tmp_path / "model.gal").write_bytes(b"the old one")
    with pytest.raises(StoredModelError, match=r"cannot be saved: .*<lambda>.*importable module"):
        model.save(tmp_path / "model.gal")
    assert (tmp_path / "model.gal").read_bytes() == b"the old one"
    assert len(list(tmp_path.iterdir())) == 1


def archive(folder: Path, content: str, models: bytes) -> Path:
    with zipfile.ZipFile(folder / "broken.gal", "w") as made:
        made.writestr("gal.json", content)
        made.writestr("models.skops", models)
    return folder / "broken.gal"


def test_bytes_are_those_of_skops_without_blanks() -> None:
    """But for names of files of arrays, which are drawn, and places in memory."""
    model = Ridge().fit(np.eye(3), [1.0, 2.0, 3.0])
    objects = {"model": model, "facts": [1, 2.5, None, "ä", (True, {"a": b"b"})]}
    found: list[tuple[Any, list[bytes]]] = []
    for data in (_written(objects), skops.io.dumps(objects)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = archive.read("schema.json").decode()
            arrays = sorted({*archive.namelist()} - {"schema.json"}, key=text.index)
            contents = [archive.read(name) for name in arrays]
        assert ("\n" in text) == bool(found), "indentation is slow and unused"
        for number, name in enumerate(arrays):
            text = text.replace(name, f"array {number}")
        found.append((json.loads(re.sub(r'"__id__": \d+', '"__id__": 0', text)), contents))
    assert found[0] == found[1]
    assert len(found[0][1]) > 1
