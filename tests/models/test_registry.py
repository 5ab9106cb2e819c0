"""Local models by name: every one can be made and fitted, and errors list the names."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gal import Organization
from gal.errors import InvalidInputError, MissingExtraError
from gal.extras import require
from gal.models.adapters import is_stateful
from gal.models.registry import MODELS, is_known_stateless, make_model

DEEP = ("network", "shared_body")
NEEDS = dict.fromkeys(DEEP, "deep")


@pytest.mark.parametrize("name", MODELS)
def test_every_name_makes_a_local_model(name: str) -> None:
    if name in NEEDS:
        require(NEEDS[name], "this test")
    model = make_model("lab", name)
    assert Organization("lab", np.zeros((4, 2)), model).model is model
    assert make_model("lab", name) is not model


@pytest.mark.parametrize("name", MODELS)
def test_models_known_to_be_stateless_need_no_extra_and_are_stateless(name: str) -> None:
    assert is_known_stateless(name) == (name not in NEEDS)
    assert not is_known_stateless(name, {"some": "option"})
    if is_known_stateless(name):
        assert not is_stateful(make_model("lab", name))


@pytest.mark.parametrize("name", [name for name in MODELS if name not in DEEP])
def test_made_models_learn(name: str) -> None:
    if name in NEEDS:
        require(NEEDS[name], "this test")
    X = np.random.default_rng(0).normal(size=(80, 2))
    fitted = make_model("lab", name).fit(X, X[:, 0]).predict(X)
    assert np.mean((fitted - X[:, 0]) ** 2) < 0.5 * np.var(X[:, 0])


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "tabular": ({"alpha": 3.0}, "alpha"),
    "ridge": ({"alpha": 3.0}, "ridge__alpha"),
    "svr": ({"C": 3.0}, "svr__C"),
    "random_forest": ({"n_estimators": 3}, "n_estimators"),
    "sklearn.linear_model:Lasso": ({"alpha": 3.0}, "alpha"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_reach_the_model(name: str) -> None:
    options, parameter = OPTIONS[name]
    assert make_model("lab", name, options).get_params()[parameter] == 3


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("magic", None, "no local model is called 'magic'. Choose one of tabular, linear"),
        ("no_such_module:Model", None, "cannot make 'no_such_module:Model'"),
        ("sklearn.linear_model:Nothing", None, "Nothing"),
        ("math:pi", None, "it is a float, no class"),
        ("tabular", {"alhpa": 1}, r"cannot make 'tabular' with options \{'alhpa': 1\}: .*alhpa"),
        ("ridge", {"strength": 1}, "cannot make 'ridge' with options .*strength"),
        ("sklearn.pipeline:Pipeline", None, "steps"),
    ],
)
def test_models_that_cannot_be_made_are_errors(name: str, options: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason) as caught:
        make_model("lab", name, options)
    assert "organization 'lab'" in str(caught.value)


def test_networks_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == "torch" or name.startswith("gal.models.deep")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="deep"):
        make_model("lab", "network")
