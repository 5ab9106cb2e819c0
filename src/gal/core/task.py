"""A task: everything the label holder decides before the first round."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import ExactSearch, LineSearch
from gal.core.losses import Loss
from gal.core.outcome import Stopping
from gal.core.probes.kept_probes import SEEDS, ProbePlan
from gal.core.requests import Release, Terms
from gal.core.rows import Rows
from gal.core.stackers import StackerLearner
from gal.core.weights import AssistanceWeights, ExactWeights
from gal.errors import InvalidInputError, InvalidOptionError

Floats = NDArray[np.float64]

MOST_ROWS = 20_000
"""At most so many rows measure contributions."""

LARGEST_WEIGHT = 1e15
"""Weights travel as float32 and are squared."""


@dataclass(frozen=True)
class Task:
    """Labels, loss, who takes part, and how each step of Algorithm 1 is done."""

    y: Floats
    """Labels as the loss wants them, shape (n, K) or, for class codes, (n, 1)."""
    loss: Loss
    organizations: tuple[str, ...]
    rows: Rows
    label_holder: str | None = None
    """Its own organization's name; None where it holds labels only."""
    rounds: int = 10
    initial: Floats | None = None
    """F^0: shape (1, K), or (n, K) where it differs by row; None: the loss's best constant."""
    sample_weight: Floats | None = None
    weights: AssistanceWeights = field(default_factory=ExactWeights)
    line_search: LineSearch = field(default_factory=ExactSearch)
    stopping: Stopping = field(default_factory=Stopping)
    newton: bool = False
    """Send Newton residuals, and how much each row counts (see ``steps.py``)."""
    scale_residual: bool = True
    """Broadcast residuals with unit RMS, so that no local model meets tiny or huge numbers."""
    keep_fitted: bool = False
    """Keep all replies in the progress, for a later step of the caller."""
    guard: bool = True
    """Where rows validate: also learn the baseline, and use assistance only if it is better there."""
    stateful: tuple[str, ...] = ()
    """Organizations with stateful models: fitting a round changes their predictions of earlier ones, so they
    are re-evaluated after the last round (see ``reevaluation.py``)."""
    release: Release | None = None
    """Adds noise to residuals before they are sent; None: they are sent as they are."""
    stacker: StackerLearner | None = None
    """Learns the stacker from the labels and all replies, after the last round."""
    own_stacker: StackerLearner | None = None
    """Under a privacy guarantee: the same for the model that it learns by itself from the true labels."""
    probes: ProbePlan | None = None
    """Sends interaction probes after the last round, and learns from the replies (see ``probes``)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.label_holder is not None and self.label_holder not in self.organizations:
            raise InvalidOptionError(
                f"label holder {self.label_holder!r} is none of the organizations "
                f"{', '.join(self.organizations)}"
            )
        if self.stateful and self.rows.n_cv_folds > 0:
            raise InvalidOptionError(
                f"a cross-validation is not possible with stateful models ({', '.join(self.stateful)}): pass "
                "cross_validation=0, and validation_fraction=0.1 to choose the number of rounds"
            )
        self.loss.check(self.y)
        self._check_sample_weight()
        if self.initial is not None and (
            self.initial.shape not in {(1, self.loss.n_outputs), (len(self.y), self.loss.n_outputs)}
            or not np.isfinite(self.initial).all()
        ):
            raise InvalidInputError(
                f"initial outputs must be finite with shape (1, {self.loss.n_outputs}) or "
                f"({len(self.y)}, {self.loss.n_outputs}), got shape {self.initial.shape}"
            )

    def _check_sample_weight(self) -> None:
        weight = self.sample_weight
        if weight is None:
            return
        if weight.shape != (len(self.y),) or not np.isfinite(weight).all() or (weight < 0).any():
            raise InvalidInputError(f"sample_weight must be {len(self.y)} finite numbers >= 0")
        for role in ("fit", "search", "validation"):
            rows = getattr(self.rows, role)
            if len(rows) and not weight[rows].sum() > 0:
                raise InvalidInputError(f"sample_weight is 0 on all {role} rows: nothing to learn from there")
        if not 1 / LARGEST_WEIGHT <= (largest := float(weight.max())) <= LARGEST_WEIGHT:
            raise InvalidInputError(
                f"the largest sample_weight is {largest:.3g}, whose square float32 cannot hold: multiply all "
                f"weights so that it lies from {1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            )

    @property
    def alone(self) -> Task | None:
        """The task of the baseline without assistance; None where nothing compares them."""
        validated = len(self.rows.validation) > 0 or self.rows.n_cv_folds > 0
        if not (self.guard and validated) or self.label_holder is None or len(self.organizations) == 1:
            return None
        own = self.only(self.label_holder)
        return replace(own, stacker=self.stacker, keep_fitted=self.keeps_all_rows)

    @property
    def own_first(self) -> bool:
        """Whether only the label holder fits the first residual, so that the others learn what it cannot. A
        cross-validation has fewer rows, and loses a little by it.
        """
        usual = self.rows.n_cv_folds == 0 and self.release is None and not self.stateful
        return usual and self.rounds > 1 and self.alone is not None

    @property
    def needs_sentinel(self) -> bool:
        """Whether one fold of the cross-validation is learned before any of its rows are sent: something
        of the label holder's own is compared with assistance, here or by a private refit.
        """
        several = self.rows.n_cv_folds > 0 and len(self.organizations) > 1
        return several and (self.alone is not None or not self.guard)

    def only(self, organization: str) -> Task:
        """The same task with this one organization, as if the labels were its own."""
        stateful = tuple(name for name in self.stateful if name == organization)
        return replace(
            self,
            organizations=(organization,),
            label_holder=organization,
            stateful=stateful,
            keep_fitted=False,
            stacker=None,
            probes=None,
        )

    @property
    def sampled(self) -> Task:
        """The same task of the sample of rows that probes are about."""
        rows, initial, weight = self.rows.sample, self.first_output, self.sample_weight
        return replace(
            self,
            y=self.y[rows],
            rows=self.rows.of_probes,
            initial=initial if len(initial) == 1 else initial[rows],
            sample_weight=None if weight is None else weight[rows],
            probes=None,
        )

    @cached_property
    def contribution_rows(self) -> NDArray[np.intp]:
        """Rows that measure contributions: those that validate, or search where none do. Of more than
        `MOST_ROWS`, some that are evenly spread among those with a weight above 0.
        """
        rows = self.rows.validation if len(self.rows.validation) else self.rows.search
        if len(rows) <= MOST_ROWS:
            return rows
        if self.sample_weight is not None and self.sample_weight[rows].any():
            rows = rows[self.sample_weight[rows] > 0]
        return rows[:: -(-len(rows) // MOST_ROWS)]

    @cached_property
    def kept_rows(self) -> NDArray[np.intp]:
        """Rows whose fitted values a progress keeps: all, where a later step needs all; else those that
        validate, or else measure contributions.
        """
        if self.keeps_all_rows:
            return np.arange(self.rows.n)
        return self.rows.validation if len(self.rows.validation) else self.contribution_rows

    @property
    def keeps_all_rows(self) -> bool:
        """Whether a later step needs the fitted values of all rows."""
        looked_at = self.stacker is not None or self.probes is not None or self.keep_fitted
        return looked_at or self.rows.n_cv_folds > 0 or bool(self.stateful)

    @property
    def further(self) -> int:
        """How many rounds beyond its own there can be: of random targets, and of probes."""
        return 0 if self.probes is None else SEEDS + self.probes.probes

    @property
    def terms(self) -> Terms:
        """What every organization knows of the task."""
        return Terms(self.rows, self.loss.n_outputs, self.rounds, self.seed)

    @property
    def first_output(self) -> Floats:
        """F^0, shape (1, K) or (n, K)."""
        if self.initial is not None:
            return self.initial
        y, weight, fit = self.y, self.sample_weight, self.rows.fit
        if len(fit) < self.rows.n:  # where they are all, no copy
            y, weight = y[fit], None if weight is None else weight[fit]
        return self.loss.initial(y, weight)[None, :]

    def first_of(self, rows: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """F^0 of these rows, shape (n, K)."""
        return np.broadcast_to(self.first_output, (self.rows.n, self.loss.n_outputs))[rows]


def local_seed(task_seed: int, organization: str, round: int) -> int:
    """The seed of one local fit: it depends on nothing but these three.

    >>> local_seed(0, "bank", 1) == local_seed(0, "bank", 1) != local_seed(0, "bank", 2)
    True
    """
    text = f"{task_seed}\x00{organization}\x00{round}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
