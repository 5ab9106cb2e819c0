"""The rows to learn from and to score, and each organization's columns, of one run.

Two protocols, named in every table: *per seed* draws rows and columns anew for each seed, *paper* takes the
authors' one split of the rows for all seeds (and their columns by seed). Large sets with official test rows
(Adult) are scored on those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError, MissingDataError
from gal_bench.data.datasets import Dataset, Partition

PROTOCOLS = ("per seed", "paper")
OFFICIAL = "official test rows"

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Train and test rows, whose index is their position in the data set, and
    the columns of each organization.
    """

    X_train: pd.DataFrame
    y_train: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[Any]
    organizations: Partition
    """The first is the label holder."""
    classes: bool
    dataset: str
    protocol: str


def per_seed(dataset: Dataset, organizations: int, seed: int) -> Split:
    """Rows and columns drawn by seed, exactly as the authors' code draws them."""
    parts = random_partition(list(dataset.X.columns), organizations, seed)
    return _split(dataset, draw_rows(len(dataset.y), seed), parts, PROTOCOLS[0], standardised=True)


def split_by_name(dataset: Dataset, seed: int) -> Split:
    """The partition by name, with the official test rows where there are
    some, else with rows drawn by seed.
    """
    if dataset.partition is None:
        raise InvalidInputError(
            f"{dataset.name} has no partition by name: use a random one, or Adult, CreditDefault, Covertype"
        )
    parts = dataset.partition
    if dataset.test is None:
        return _split(dataset, draw_rows(len(dataset.y), seed), parts, PROTOCOLS[0])
    train = np.setdiff1d(np.arange(len(dataset.y)), dataset.test)
    return _split(dataset, (train, dataset.test), parts, OFFICIAL)


def paper(reference: Path | None, name: str, organizations: int, seed: int) -> Split:
    """The authors' one split of the rows, with their columns for this seed."""
    if reference is None:
        raise MissingDataError(
            "the paper's split is read from a folder, and none is given: set GAL_REFERENCE to one that holds "
            "splits_paper/, with files like Wine_M8_seed0.npz"
        )
    return stored(reference / "splits_paper", name, organizations, seed, protocol=PROTOCOLS[1])


def stored(folder: Path, name: str, organizations: int, seed: int, *, protocol: str = PROTOCOLS[0]) -> Split:
    """One file that the authors' code left, standardised with its own statistics;
    columns are ``x0``, ``x1``, ...

    Their standard deviations are those of ``per_seed`` up to float32, but up to 0.1 % larger where there are
    more than 512 training rows (QSAR): they are pooled over batches of 512.
    """
    path = folder / f"{name}_M{organizations}_seed{seed}.npz"
    if not path.is_file():
        raise MissingDataError(
            f"{path} is not there: GAL_REFERENCE names a folder whose {folder.name}/ holds one file for each "
            "data set, number of organizations and seed, with X_train, y_train, X_test, y_test, stats_mean, "
            "stats_std and feature_split_0, ..."
        )
    with np.load(path) as found:
        tables = [(found[key] - found["stats_mean"]) / found["stats_std"] for key in ("X_train", "X_test")]
        labels = [found[key].ravel() for key in ("y_train", "y_test")]
        parts = {
            f"organization {m + 1}": [f"x{j}" for j in found[f"feature_split_{m}"]]
            for m in range(organizations)
        }
    columns = [f"x{j}" for j in range(tables[0].shape[1])]
    X_train, X_test = (pd.DataFrame(table, columns=columns) for table in tables)
    classes = labels[0].dtype.kind != "f"
    y_train, y_test = (y.astype(np.int64 if classes else np.float64) for y in labels)
    return Split(X_train, y_train, X_test, y_test, parts, classes, name, protocol)


def draw_rows(n: int, seed: int) -> tuple[Positions, Positions]:
    """Positions of the train rows (80 %, rounded down) and of the test rows, in the order drawn."""
    order = np.random.RandomState(seed).permutation(n)
    return order[: int(0.8 * n)], order[int(0.8 * n) :]


def _split(
    dataset: Dataset,
    rows: tuple[Positions, Positions],
    parts: Partition,
    protocol: str,
    *,
    standardised: bool = False,
) -> Split:
    train, test = rows
    X_train, X_test = dataset.X.iloc[train], dataset.X.iloc[test]
    if standardised:  # as the authors do; large sets by name are left as they are
        X_train, X_test = z_scores(X_train, X_test)
    y = dataset.y
    return Split(X_train, y[train], X_test, y[test], parts, dataset.classes, dataset.name, protocol)


def z_scores(X_train: pd.DataFrame, X_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """z-scores with the training rows' statistics, which each organization can compute on its own.

    Columns that are not numbers stay as they are.
    """
    numbers = X_train.select_dtypes("number").columns
    mean, spread = X_train[numbers].mean(), X_train[numbers].std(ddof=1)
    spread = spread.where(spread > 0, 1.0)
    scaled = [X.assign(**(X[numbers] - mean) / spread) for X in (X_train, X_test)]
    return scaled[0], scaled[1]


# --- who holds which columns


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


def _name(position: int) -> str:
    return f"organization {position + 1}"
