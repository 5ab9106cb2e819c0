"""Who holds which columns: at random by seed, by name, or the least
informative ones with the label holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

from gal.errors import InvalidInputError, InvalidOptionError
from gal_bench.data.datasets import Dataset, Partition

FEW_VALUES = 20
"""A column of numbers with no more distinct values than these counts as discrete."""

MOST_ROWS = 10_000
"""Rows on which columns are ranked: the neighbours that mutual information looks for take long to find."""


def random_partition(columns: Sequence[str], organizations: int, seed: int) -> Partition:
    """The authors' drawing: equal numbers of columns, and the remainder to the last organization.

    >>> random_partition(["a", "b", "c", "d", "e"], 2, seed=0)
    {'organization 1': ['e', 'a'], 'organization 2': ['b', 'd', 'c']}
    """
    sizes = part_sizes(len(columns), organizations)
    drawn = iter([columns[j] for j in torch_permutation(len(columns), seed)])
    return {_name(m): [next(drawn) for _ in range(size)] for m, size in enumerate(sizes)}


def part_sizes(columns: int, organizations: int) -> list[int]:
    """
    >>> part_sizes(13, 8)
    [1, 1, 1, 1, 1, 1, 1, 6]
    """
    if not 1 <= organizations <= columns:
        raise InvalidOptionError(
            f"organizations must be from 1 to {columns}, the number of columns: each needs one; got "
            f"{organizations}"
        )
    size = columns // organizations
    return [size] * (organizations - 1) + [columns - size * (organizations - 1)]


def torch_permutation(n: int, seed: int) -> list[int]:
    """``torch.randperm(n)`` after ``torch.manual_seed(seed)``, without torch (n below 2 ** 32 / 20).

    Both draw 32 bits at a time from the same Mersenne twister.
    """
    bits = np.frombuffer(np.random.RandomState(seed).bytes(4 * n), dtype="<u4")
    order = list(range(n))
    for i in range(n - 1):
        j = i + int(bits[i]) % (n - i)
        order[i], order[j] = order[j], order[i]
    return order


def named_partition(dataset: Dataset) -> Partition:
    """Columns that belong together, by who would hold them."""
    if dataset.partition is None:
        raise InvalidInputError(
            f"{dataset.name} has no partition by name: use a random or a skewed one, or Adult, "
            "CreditDefault, Covertype"
        )
    return {organization: list(columns) for organization, columns in dataset.partition.items()}


def skewed_partition(
    X: pd.DataFrame, y: NDArray[np.generic], organizations: int, *, classes: bool, seed: int
) -> Partition:
    """The least informative columns to the label holder; the others get comparable shares of the rest.

    As many columns each as in ``random_partition``. ``X`` and ``y`` are the training rows. Columns go, the
    most informative first, to the organization that has least so far; the seed decides between equals.
    """
    sizes = part_sizes(X.shape[1], organizations)
    order = torch_permutation(X.shape[1], seed)
    worth = informativeness(X, y, classes=classes, seed=seed)
    least_first = sorted(order, key=lambda j: worth[j])
    parts = [least_first[: sizes[0]], *([] for _ in sizes[1:])]
    for j in reversed(least_first[sizes[0] :]):
        open_parts = [m for m in range(1, organizations) if len(parts[m]) < sizes[m]]
        poorest = min(open_parts, key=lambda m: worth[parts[m]].sum())
        parts[poorest].append(j)
    return {_name(m): [str(X.columns[j]) for j in part] for m, part in enumerate(parts)}


def informativeness(
    X: pd.DataFrame, y: NDArray[np.generic], *, classes: bool, seed: int
) -> NDArray[np.float64]:
    """Mutual information of each column with the labels, by itself; shape (columns,)."""
    rows = np.random.RandomState(seed).permutation(len(X))[:MOST_ROWS]
    codes = [_codes(X[column].iloc[rows]) for column in X.columns]
    discrete = np.array([_is_discrete(X[column].dtype, code) for column, code in zip(X, codes, strict=True)])
    estimate = mutual_info_classif if classes else mutual_info_regression
    found = estimate(np.column_stack(codes), y[rows], discrete_features=discrete, random_state=seed)
    return np.asarray(found, dtype=np.float64)


def _codes(column: pd.Series) -> NDArray[np.float64]:
    """Numbers with the median for what is missing; codes of everything else, missing a code of its own."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return np.asarray(pd.factorize(column, sort=False)[0], dtype=np.float64)
    middle = column.median()
    return column.fillna(0 if pd.isna(middle) else middle).to_numpy(np.float64)


def _is_discrete(kind: Any, codes: NDArray[np.float64]) -> bool:
    distinct = len(np.unique(codes))
    return distinct < len(codes) and (not pd.api.types.is_numeric_dtype(kind) or distinct <= FEW_VALUES)


def _name(position: int) -> str:
    return f"organization {position + 1}"


def vertibench_partition(columns: Sequence[str], organizations: int, alpha: float, seed: int) -> Partition:
    """As ``ImportanceSplitter(organizations, alpha, seed)`` of VertiBench 0.1.2 draws it, without it.

    Shares of the columns come from a Dirichlet distribution: the smaller ``alpha``, the more uneven.
    """
    rng = np.random.RandomState(seed)
    shares = [rng.beta(alpha, alpha * (organizations - 1))]
    for place in range(1, organizations - 1):
        part = rng.beta(alpha, alpha * (organizations - place - 1))
        shares.append((1 - sum(shares)) * part)
    shares.append(1 - sum(shares))
    first = rng.choice(len(columns), size=organizations, replace=False)
    drawn = rng.choice(organizations, size=len(columns), p=shares)
    parts = [[int(one)] for one in first]
    for position in range(len(columns)):
        if position not in first:
            parts[drawn[position]].append(position)
    return {_name(m): [columns[j] for j in part] for m, part in enumerate(parts)}
