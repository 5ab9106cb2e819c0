"""Tables of any kind as what the default local model reads: a pandas frame, or an array of numbers."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # importing pandas takes long, and a table of plain numbers does without
    import pandas as pd

Table: TypeAlias = "pd.DataFrame | NDArray[Any]"


def as_frame(X: Any) -> pd.DataFrame:
    """A pandas frame of any table: pandas, polars, or an array of objects."""
    if is_frame(X):
        return X  # type: ignore[no-any-return]
    import pandas as pd

    if hasattr(X, "columns") and hasattr(X, "get_column"):  # polars, without needing pyarrow
        return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})
    return pd.DataFrame(np.asarray(X)).infer_objects()


def as_table(X: Any) -> Table:
    """What a ``TableEncoder`` takes: numbers in an array as they are, any other table as a pandas frame."""
    return X if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else as_frame(X)


def is_plain(X: Any) -> bool:
    """Whether this is an array of finite numbers, of which scikit-learn would say nothing; it looks at a row
    for a tenth of a millisecond.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0
        return plain and isfinite(X.sum())


def is_frame(X: Any) -> bool:
    """Whether this is a pandas frame, found out without importing pandas."""
    return all(hasattr(type(X), name) for name in ("iloc", "columns", "dtypes"))
