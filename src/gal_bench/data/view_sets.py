"""Data sets in which every organization has its own kind of view: image
patches, camera views, time series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ViewSet:
    """Training and test rows as each organization sees them; the same rows, in the same order, for all."""

    name: str
    train: Mapping[str, Any]
    """By organization: an array (n, ...) or ``Sequences``; the first is the label holder's."""
    y_train: NDArray[Any]
    """Shape (n,): float64, or int64 codes 0, 1, ... of the classes."""
    test: Mapping[str, Any]
    y_test: NDArray[Any]
    metric: str
    """accuracy, auc (two classes) or mad."""
    whole_train: Any = None
    """All views as one, for who holds everything; None where they do not fit together."""
    whole_test: Any = None

    @property
    def classes(self) -> bool:
        """Whether classes are predicted, or numbers."""
        return self.metric != "mad"

    @property
    def label_holder(self) -> str:
        """The first organization."""
        return next(iter(self.train))
