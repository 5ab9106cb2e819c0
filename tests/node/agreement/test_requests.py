"""Roles of rows and requests of the engine, as messages and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gal.errors import AlignmentError
from gal.node.agreement.requests import (
    asked_tokens,
    check_roles,
)
from gal.protocol import Message

TASK = "0" * 32


def roles(**arrays: list[int]) -> dict[str, Any]:
    return {
        name: np.array(values, dtype=np.uint8 if name == "fit" else np.int32)
        for name, values in arrays.items()
    }


@pytest.mark.parametrize(
    "arrays",
    [
        roles(fit=[1, 1]),
        roles(fit=[1, 1, 1, 1]),
        roles(fit=[0, 0, 0]),
        roles(fit=[1, 2, 1]),
        roles(fit=[1, 1, 1], folds=[0, 1]),
        roles(fit=[1, 1, 0], folds=[0, 1, 1]),
        roles(fit=[1, 1, 1], folds=[0, 1, -1]),
        roles(fit=[1, 1, 1], folds=[0, 1, 2**31 - 1]),
        roles(fit=[1, 1, 1], folds=[0, 1, -2]),
        roles(fit=[1, 1, 1], parts=[0, 1, -1]),
        roles(fit=[1, 1, 0], parts=[0, 1, 0]),
        roles(fit=[1, 1, 1], parts=[0, 1, 3]),
    ],
    ids=str,
)
def test_roles_that_cannot_be(arrays: dict[str, Any]) -> None:
    with pytest.raises(AlignmentError, match="clinic"):
        check_roles(arrays, 3, "clinic")


@pytest.mark.parametrize(
    "arrays", [{}, {"integers": np.arange(2), "texts": np.array(["a", "b"], dtype=object)}]
)
def test_exactly_one_kind_of_ids(arrays: dict[str, Any]) -> None:
    message = Message("predict", TASK, 1, "predict 1", {"kind": "integer", "method": "plain"}, arrays)
    with pytest.raises(AlignmentError, match="kinds of row ids"):
        asked_tokens(message, "clinic")
