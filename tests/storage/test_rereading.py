"""Reads are repeated after errors of Python's parser."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from gal.node.store.views import load_view, save_view
from gal.storage import load_models, save_models
from gal.storage.rereading import ATTEMPTS, reread


def failing(times: int, parse: Callable[[str], Any] = ast.literal_eval) -> Callable[[str], Any]:
    """``literal_eval`` as it is where so many times another thread parses at the same moment."""
    left = [times]

    def parse_or_fail(text: str) -> Any:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=165, after=131)")
        return parse(text)

    return parse_or_fail


def test_models_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Ridge().fit(np.eye(3), np.arange(3.0))
    save_models(tmp_path / "models.gal", "lab", {("main", 1): (model,)})
    monkeypatch.setattr(ast, "literal_eval", failing(3))
    (found,) = load_models(tmp_path / "models.gal")["main", 1]
    assert np.array_equal(found.predict(np.eye(3)), model.predict(np.eye(3)))


def test_views_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_view(np.eye(3), tmp_path / "view")
    monkeypatch.setattr(ast, "literal_eval", failing(3))
    assert np.array_equal(load_view(tmp_path / "view"), np.eye(3))


def test_not_for_ever() -> None:
    reads = []

    def read() -> None:
        reads.append(1)
        raise SystemError("always")

    with pytest.raises(SystemError):
        reread(read)
    assert len(reads) == ATTEMPTS
