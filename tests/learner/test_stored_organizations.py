"""Organizations and the label holder's ensemble as files: what is read back predicts the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from gal import Organization, Validation, learn, predict
from gal.errors import StoredModelError
from gal.storage import load_ensemble, load_organization, save_ensemble, save_organization
from moving_models import Drifting

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))


def learned(model: Any) -> tuple[Any, list[Organization]]:
    members = [Organization("bank", X[:, :2], model), Organization("shop", X[:, 2:], Ridge())]
    return learn(X.sum(axis=1), members, rounds=3, validation=Validation(folds=0), seed=0), members


@pytest.mark.parametrize("model", [Ridge(), Drifting()], ids=["ordinary", "moving"])
def test_what_is_read_back_predicts_the_same(model: Any, tmp_path: Path) -> None:
    ensemble, members = learned(model)
    save_ensemble(ensemble, tmp_path / "label holder.gal")
    for one in members:
        save_organization(one, tmp_path / f"{one.name}.gal")
    trusted = ["moving_models.Drifting"]
    back = [load_organization(tmp_path / f"{one.name}.gal", trusted=trusted) for one in members]
    views = {"bank": X[:5, :2], "shop": X[:5, 2:]}
    again = predict(load_ensemble(tmp_path / "label holder.gal"), back, views)
    np.testing.assert_array_equal(again.output, predict(ensemble, members, views).output)


def test_a_view_is_given_not_stored(tmp_path: Path) -> None:
    ensemble, members = learned(Ridge())
    save_organization(members[0], tmp_path / "bank.gal")
    back = load_organization(tmp_path / "bank.gal", X[:7, :2])
    assert back.view.shape == (7, 2)
    assert (tmp_path / "bank.gal").stat().st_size < 20_000
    assert predict(ensemble, [back, Organization("shop", X[:7, 2:], Ridge())]).missing.keys() == {"shop"}


def test_other_files_are_named(tmp_path: Path) -> None:
    ensemble, members = learned(Ridge())
    save_ensemble(ensemble, tmp_path / "e.gal")
    save_organization(members[0], tmp_path / "o.gal")
    with pytest.raises(StoredModelError, match="holds a Ensemble, not an organization"):
        load_organization(tmp_path / "e.gal")
    with pytest.raises(StoredModelError, match="holds a Organization, not an ensemble"):
        load_ensemble(tmp_path / "o.gal")
    with pytest.raises(StoredModelError, match="'new' has fitted nothing yet"):
        save_organization(Organization("new", X, Ridge()), tmp_path / "n.gal")


def test_networks_on_images_are_stored(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")
    from gal.models.deep import SharedBodyModel

    images = RNG.normal(size=(40, 1, 8, 8)).astype(np.float32)
    ward = Organization("ward", images, SharedBodyModel("mlp", epochs=1, device="cpu"))
    ensemble = learn(images.mean(axis=(1, 2, 3)), [ward], rounds=2, validation=Validation(folds=0), seed=0)
    save_organization(ward, tmp_path / "ward.gal")
    back = load_organization(tmp_path / "ward.gal")
    views = {"ward": images[:4]}
    np.testing.assert_array_equal(
        predict(ensemble, [back], views).output, predict(ensemble, [ward], views).output
    )
