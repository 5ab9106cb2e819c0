"""Which columns of a pooled table belong to which organization."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices
from sklearn.utils.validation import validate_data

from gal.errors import InvalidColumnsError, InvalidInputError, InvalidOptionError, printable
from gal.models.tabular.columns import is_frame, is_plain
from gal.warnings import SharedColumnsWarning

Columns = Iterable[str] | Iterable[int] | str | int | slice | Callable[[Any], Any]

EXAMPLE = '{"bank": ["income", "debt"], "shop": ["basket"]}'
"""How organizations are given, as messages show it."""

SHOWN = 20
"""Column names that a message lists."""


@dataclass(frozen=True)
class DividedColumns:
    """The columns of a pooled table by organization."""

    positions: Mapping[str, list[int]]
    """Of each organization's columns."""
    names: list[str] | None
    """Of all columns; None where the table had none."""

    def view(self, X: Any, name: str) -> Any:
        """An organization's columns of a table."""
        if is_frame(X) and X.columns.tolist() == self.names:
            return X.take(self.positions[name], axis=1)
        own = None if self.names is None else [self.names[position] for position in self.positions[name]]
        lacking = missing_columns(X, own)
        if lacking:
            raise InvalidColumnsError(
                f"organization {name!r}: the table lacks its columns {', '.join(lacking)}; "
                f"pass missing=[{name!r}] to predict without it"
            )
        return view_of(X, self.positions[name], own)


def check_table(
    estimator: Any, X: Any, *, reset: bool, text: bool, finite: bool | str, lenient: bool = False
) -> Any:
    """The table as given (frames stay frames), with scikit-learn's own error messages.

    ``text``: whether the local models take it. ``finite``: as in scikit-learn.
    ``lenient``: columns may be missing.
    """
    if not reset and _as_learned(estimator, X):
        return X
    if hasattr(X, "columns") and hasattr(X, "shape"):
        twice = [printable(str(name)) for name, count in Counter(X.columns).items() if count > 1]
        if twice:
            raise InvalidColumnsError(
                f"the table has several columns of one name: {', '.join(twice)}. Rename them, or leave all "
                "but one out"
            )
        if not lenient or getattr(estimator, "feature_names_in_", None) is None:
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        if X.shape[0] == 0:
            raise InvalidInputError(
                f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required."
            )
        if X.shape[1] == 0:
            raise InvalidColumnsError(f"0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
        return X
    has_text = np.asarray(X).dtype.kind in "OUS" if not hasattr(X, "tocsr") else False
    return validate_data(
        estimator,
        X,
        reset=reset,
        dtype=None if has_text and text else "numeric",
        ensure_all_finite=False if lenient else finite,
    )


def _as_learned(estimator: Any, X: Any) -> bool:
    """Whether scikit-learn would accept this table as it is; its own check takes 0.2 ms."""
    names = getattr(estimator, "feature_names_in_", None)
    if is_frame(X):
        return names is not None and len(X) > 0 and X.columns.tolist() == names.tolist()
    return names is None and is_plain(X) and X.shape[1] == estimator.n_features_in_


def columns_by_organization(
    organizations: Mapping[str, Columns] | None, X: Any, names: list[str] | None
) -> dict[str, list[int]]:
    """Positions of each organization's columns, as the user's mapping describes them.

    Columns are given by name, by position, as a slice (of positions, or of names with both ends
    included), as a mask, or by a callable or scikit-learn selector that gets the table. A column may
    belong to two organizations, with a warning.
    """
    if organizations is None:
        raise InvalidOptionError(
            "no organizations are given: name each one with its columns of the table, for example "
            f"organizations={EXAMPLE}; the first is the label holder. For one organization with all columns: "
            '{"all": slice(None)}'
        )
    if not isinstance(organizations, Mapping):
        raise InvalidOptionError(
            f"organizations must map names to columns, got {type(organizations).__name__}: "
            f"for example {EXAMPLE}"
        )
    if not organizations:
        raise InvalidInputError(f"organizations is empty: name at least one, for example {EXAMPLE}")
    found = {}
    for name, columns in organizations.items():
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"an organization's name must be text, got {name!r}")
        found[name] = positions_of(f"organization {name!r}", columns, X, names)
        if not found[name]:
            raise InvalidColumnsError(f"organization {name!r} has no columns: give it some or leave it out")
        if len(set(found[name])) < len(found[name]):
            raise InvalidColumnsError(f"organization {name!r} lists a column twice: {found[name]}")
    _warn_of_shared(found, names)
    return found


def positions_of(subject: str, columns: Columns, X: Any, names: list[str] | None) -> list[int]:
    """Positions of columns in the table, as scikit-learn finds them; ``subject`` names them in errors."""
    if callable(columns):
        columns = columns(X)
    if isinstance(columns, slice) and not isinstance(columns.start or columns.stop, str):
        columns = range(int(X.shape[1]))[columns]
    if isinstance(columns, set | frozenset):
        columns = sorted(columns)  # a set of names has another order in every process
    if isinstance(columns, Iterable) and not isinstance(columns, str) and not hasattr(columns, "__array__"):
        columns = list(columns)
    try:
        return list(_get_column_indices(X, columns))
    except (ValueError, TypeError, NotImplementedError) as error:
        there = f"the table has {X.shape[1]} columns without names: pass a data frame, or give positions. A "
        there += "step before it in a Pipeline, such as a scaler, made an array of it? Then "
        there += 'pipeline.set_output(transform="pandas") keeps the names'
        if names is not None:
            more = ", ..." if len(names) > SHOWN else ""
            there = f"the table has {len(names)} columns: {', '.join(names[:SHOWN])}{more}"
        raise InvalidColumnsError(f"{subject}: no columns {columns!r:.200} ({error}); {there}") from error


def plain_columns(organizations: Any) -> Any:
    """The same mapping without arrays or an index of pandas, which cannot be stored as they are."""
    if not isinstance(organizations, Mapping):
        return organizations
    return {
        name: columns.tolist() if hasattr(columns, "tolist") else columns
        for name, columns in organizations.items()
    }


def view_of(X: Any, positions: list[int], column_names: list[str] | None = None) -> Any:
    """These columns of the table, by name where the table has names."""
    if column_names is not None and hasattr(X, "columns"):
        return _safe_indexing(X, column_names, axis=1)
    if type(X) is not np.ndarray:
        return _safe_indexing(X, positions, axis=1)
    first, last = positions[0], positions[-1]
    side_by_side = positions == list(range(first, last + 1))  # then they need not be copied
    return X[:, first : last + 1] if side_by_side else X.take(positions, axis=1)


def missing_columns(X: Any, column_names: list[str] | None) -> list[str]:
    """Which of these columns a table with named columns lacks."""
    if column_names is None or not hasattr(X, "columns"):
        return []
    present = {str(column) for column in X.columns}
    return [name for name in column_names if name not in present]


def _warn_of_shared(found: Mapping[str, list[int]], names: list[str] | None) -> None:
    claims = Counter(position for positions in found.values() for position in positions)
    shared = [printable(str(names[one] if names else one)) for one, times in claims.items() if times > 1]
    if shared:
        warnings.warn(
            f"{len(shared)} column(s) belong to more than one organization ({', '.join(shared[:5])}): "
            "each of them gets it",
            SharedColumnsWarning,
            stacklevel=5,
        )


def row_mask(name: str, rows: Any, n_rows: int) -> NDArray[np.bool_]:
    """True at rows without an organization's data; given as a mask or as positions."""
    mask, chosen = np.zeros(n_rows, dtype=np.bool_), np.asarray(rows)
    try:
        mask[chosen if chosen.size else slice(0)] = True
    except IndexError as error:
        raise InvalidInputError(
            f"missing[{name!r}] must be a mask or positions of the {n_rows} rows: {error}"
        ) from error
    return mask
