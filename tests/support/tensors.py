"""Tensors that must be alike, compared without the two seconds of imports that torch needs for it."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_close(found: Any, expected: Any, *, rtol: float = 1.3e-6, atol: float = 1e-5) -> None:
    """The same type, the same shape, and nearly the same numbers; torch's own tolerances of float32."""
    assert (found.dtype, found.shape, found.device) == (expected.dtype, expected.shape, expected.device)
    np.testing.assert_allclose(found.detach().cpu(), expected.detach().cpu(), rtol=rtol, atol=atol)
