"""One run as plain data: the cell is its input, the outcome its result.

The same cell gives the same outcome (but for the seconds). The standard library is enough here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROUNDS = 10

DEEP_SETS: dict[str, str] = {
    "MNIST": "accuracy",
    "CIFAR10": "accuracy",
    "ModelNet40": "accuracy",
    "ShapeNet55": "accuracy",
    "MIMICL": "mad",
    "MIMICM": "auc",
    "MIMICL demo": "mad",
    "MIMICM demo": "auc",
    "PhysioNet stay": "mad",
    "PhysioNet mortality": "auc",
}
"""Data sets of images, camera views and time series, and what they are scored with."""

ON_REQUEST = ("ShapeNet55", "MIMICL", "MIMICM", "MIMICL demo", "MIMICM demo")
"""Given out to registered users, and not read here: tables show the paper's figures, and what was kept."""

IMAGE_SETS = ("MNIST", "CIFAR10")
"""Organizations hold patches of one image."""

OFFICIAL = "official"
"""The one protocol of deep tables: the data set's own training and test rows for all seeds."""

DEEP_METHODS = ("gal", "alone", "joint", "late", "intermediate", "assisted_learning")

DEEP_MODELS = ("Network", "Network shared body", "Residual network", "Augmented network", "Wide network")
"""Local models; which network a name stands for depends on the data set."""


@dataclass(frozen=True)
class Sources:
    """The folders of the data sets and of the authors' splits."""

    data: Path | None = None
    reference: Path | None = None


@dataclass(frozen=True)
class Cell:
    """Everything that decides the outcome."""

    dataset: str
    organizations: int | str
    protocol: str
    seed: int
    method: str = "gal"
    models: tuple[str, ...] = ("Linear",)
    local_losses: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    disturbance: str | None = None
    sigma: float = 0.0
    metered: bool = False
    rounds: int = ROUNDS
    privacy: str | None = None
    """What protects the labels: a name of ``tabular_cells.mechanism_of``."""
    epsilon: float | None = None
    delta: float | None = None
    leak: bool = False
    """Whether the leak meter attacks what a second fit, with canaries among the labels, sends."""

    @property
    def deep(self) -> bool:
        """Whether it needs torch: images, camera views, time series."""
        return self.dataset in DEEP_SETS

    @property
    def large(self) -> bool:
        """Whether it should have the machine for itself."""
        return self.organizations == "by name"

    @property
    def words(self) -> str:
        """A description for people.

        >>> Cell("Wine", 8, "per seed", 2, models=("GB", "SVM")).words
        'Wine, 8 organizations, per seed, seed 2: gal GB-SVM'
        >>> Cell("MNIST", 8, "official", 0, disturbance="answers", sigma=5.0, options={"weights": "uniform"}).words
        'MNIST, 8 organizations, official, seed 0: gal Linear, weights=uniform, answers σ=5'
        >>> Cell("Iris", 4, "per seed", 1, privacy="noisy-labels", epsilon=0.5).words
        'Iris, 4 organizations, per seed, seed 1: gal Linear, noisy-labels ε=0.5'
        """
        organizations = self.organizations if self.large else f"{self.organizations} organizations"
        learned = [f"{self.method} {'-'.join(self.models)}"]
        if self.local_losses:
            learned.append("-".join(self.local_losses))
        learned += [f"{name}={value}" for name, value in self.options.items()]
        if self.disturbance is not None:
            noisy = self.disturbance in {"answers", "residual"}
            learned.append(f"{self.disturbance} σ={self.sigma:g}" if noisy else self.disturbance)
        if self.privacy is not None:
            learned.append(self.privacy if self.epsilon is None else f"{self.privacy} ε={self.epsilon:g}")
        return f"{self.dataset}, {organizations}, {self.protocol}, seed {self.seed}: {', '.join(learned)}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Cell:
        """The cell behind plain values.

        >>> cell = Cell("Wine", 8, "per seed", 2, models=("GB", "SVM"))
        >>> Cell.from_json(cell.to_json()) == cell
        True
        """
        tuples = {name: tuple(values[name]) for name in ("models", "local_losses") if name in values}
        return cls(**{**values, **tuples})


@dataclass(frozen=True)
class Outcome:
    """The result of a cell on the test rows."""

    metric: str
    """mad (lower is better), accuracy (in percent) or auc (0 to 1)."""
    scores: list[float]
    """Before the first round, then after each round of the final model."""
    rates: list[float]
    weights: list[dict[str, float]]
    validation_loss: float | None
    """Of the final model on rows that it was not fitted to, of the training
    rows; what models are chosen by.
    """
    label_holder: str
    chosen: str = ""
    """What a method that chooses has chosen."""
    facts: dict[str, float] = field(default_factory=dict)
    """log_loss, auc (two classes), seconds, trips, sent, received, peak_memory; and, where metered,
    fit_seconds (all local fits), critical_seconds (the slowest of every round where organizations work side
    by side, else all) and stored_bytes (local models). Deep runs: also label_holder_seconds, fit_seconds,
    stored_bytes, revisit_bytes (of the last pass over a shared body) and peak_device_memory."""
    device: str = ""
    """Of deep runs: what they were computed on, with the version of torch."""
    leak: dict[str, Any] = field(default_factory=dict)
    """Where it was measured, what the leak meter found, as ``tabular_cells`` writes it."""
    commit: str = ""
    """Of deep runs: whose sources made it."""

    @property
    def final(self) -> float:
        """The score of the final model."""
        return self.scores[-1]

    @property
    def best(self) -> float:
        """The score of its best round on the test rows, as the paper reports it."""
        return min(self.scores) if self.metric == "mad" else max(self.scores)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
