"""From a user's options to a Task: names are looked up, "auto" is decided, the preset applied.

``preset="paper"`` is the authors' algorithm in every detail of their code; the default goes
beyond it. An option that is given always wins over the preset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import LineSearch, line_search
from gal.core.losses import AbsoluteError, Loss, classification_loss, regression_loss
from gal.core.releases import Release
from gal.core.residual_losses import LocalLoss
from gal.core.rows import FittedValues, Rows, assign_rows
from gal.core.stopping import Stopping
from gal.core.task import Task
from gal.core.weights import AssistanceWeights, assistance_weights
from gal.engine.labels import is_missing
from gal.engine.stacking import check_closing, closes
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError

Floats = NDArray[np.float64]

LARGE = 2000
"""From this many rows on a tenth of them is worth more as judges than as examples."""

SMALL = 50
"""With fewer rows there is nothing to cross-validate with."""

PARTS = 4
"""Parts of a cross-validation."""

CLOSING_BYTES = 4 * 2**30
"""Fitted values larger than this together are not kept for a closing model unless asked to."""

CLOSING_ROWS = 1_000_000
"""A forest on more rows than this takes gigabytes and hours: only where it is asked for."""


@dataclass(frozen=True)
class Options:
    """How to learn; "auto" takes the preset's value. See ``docs/ref-options.md``."""

    rounds: int = 10
    loss: Any = "auto"
    weights: str | AssistanceWeights = "auto"
    line_search: str | float | LineSearch = "auto"
    fitted: str = "auto"
    validation_fraction: str | float = "auto"
    cross_validation: str | int = "auto"
    held_out_fraction: float = 0.1
    n_folds: int = 5
    fully_corrective: bool = False
    closing: Any = "auto"
    scale_residual: str | bool = "auto"
    min_rate: float | None = 1e-6
    patience: int | None = 3
    plateau: float | None = None
    preset: str = "default"

    def __post_init__(self) -> None:
        if self.preset not in {"default", "paper"}:
            raise InvalidOptionError(f"preset must be default or paper, got {self.preset!r}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int | np.integer) or self.rounds < 1:
            raise InvalidOptionError(f"rounds must be a whole number of at least 1, got {self.rounds!r}")
        own = hasattr(self.closing, "fit") and not isinstance(self.closing, type)
        if not (own or isinstance(self.closing, bool) or _auto(self.closing)):
            raise InvalidOptionError(f"closing must be 'auto', True, False or a model, got {self.closing!r}")

    @property
    def paper(self) -> bool:
        """Whether the authors' choices fill in for "auto"."""
        return self.preset == "paper"


@dataclass(frozen=True)
class Labels:
    """Labels as the loss wants them, and how to read its predictions."""

    y: Floats
    """Shape (n, K), or class codes (n, 1)."""
    loss: Loss
    classes: NDArray[Any] | None = None

    @property
    def groups(self) -> NDArray[np.intp] | None:
        """Class codes, to keep shares of classes alike in all parts; None for regression."""
        return None if self.classes is None else self.y[:, 0].astype(np.intp)


def regression_labels(y: Any, options: Options) -> Labels:
    """Labels of shape (n,) or (n, K) and their loss: squared error, absolute error in the paper."""
    try:
        columns = _rows_of_labels(y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidLabelsError(f"regression labels must be numbers: {error}") from error
    columns = columns.reshape(len(columns), -1)
    loss = ("absolute_error" if options.paper else "squared_error") if _auto(options.loss) else options.loss
    return Labels(columns, regression_loss(loss, columns))


def _rows_of_labels(y: Any) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.ndim > 2:
        raise InvalidLabelsError(f"labels must have shape (n,) or (n, K), got {labels.shape}")
    if labels.ndim == 0 or len(labels) == 0:
        raise InvalidLabelsError(f"labels must be one per row, got {'none' if labels.ndim else repr(y)}")
    return labels


def class_labels(y: Any, options: Options) -> Labels:
    """Class labels of any type and the log loss: one output for two classes, two in the paper."""
    given = _rows_of_labels(y)
    missing = is_missing(given.reshape(len(given)))
    if missing.any():
        raise InvalidLabelsError(
            f"{int(missing.sum())} of {len(given)} labels are missing (first at row {int(missing.argmax())}): "
            "remove these rows or fill in their labels"
        )
    try:
        classes, codes = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise InvalidLabelsError(f"class labels of different types cannot be told apart: {error}") from error
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(codes)} labels are of one class ({classes.tolist()}): classification needs at least two"
        )
    loss = classification_loss(
        "log_loss" if _auto(options.loss) else options.loss, len(classes), one_output=not options.paper
    )
    return Labels(codes.reshape(-1, 1).astype(np.float64), loss, classes)


def make_task(
    labels: Labels,
    organizations: Sequence[str],
    options: Options,
    *,
    label_holder: str | None,
    label_holder_loss: str | LocalLoss | None = None,
    initial: Any = "auto",
    sample_weight: Any = None,
    moving: Collection[str] = (),
    release: Release | None = None,
    private: bool = False,
    seed: int = 0,
) -> Task:
    """The task that these options describe; ``moving`` names the organizations whose models move.

    ``private``: its labels are noisy ones, or ``release`` protects them; then all replies are kept, for a private refit
    that judges them on the true labels.
    """
    local = label_holder_loss or ("l1" if options.paper and labels.classes is None else "l2")
    method = ("softmax_adam" if options.paper else "shrunk") if _auto(options.weights) else options.weights
    search = ("lbfgs" if options.paper else "exact") if _auto(options.line_search) else options.line_search
    scale = not options.paper if _auto(options.scale_residual) else options.scale_residual
    if not isinstance(scale, bool | np.bool_):
        raise InvalidOptionError(f"scale_residual must be 'auto', True or False, got {scale!r}")
    steered = release is not None and release.steers
    # Where labels are protected by releases only, even which rows are held out must not follow from them.
    drawn_by = replace(labels, classes=None) if steered else labels
    rows = make_rows(drawn_by, options, np.random.default_rng(seed), cross_validate=not moving)
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return Task(
        y=labels.y,
        loss=labels.loss,
        organizations=tuple(sorted(organizations)),
        rows=rows,
        label_holder=label_holder,
        rounds=int(options.rounds),
        initial=first_output(
            "zero" if steered and isinstance(initial, str) else initial, labels, rows, options, weight
        ),
        sample_weight=weight,
        weights=assistance_weights(method, local),
        line_search=line_search(search),
        stopping=Stopping(None, None, None)
        if options.paper
        else Stopping(options.min_rate, options.patience, options.plateau),
        scale_residual=bool(scale),
        fully_corrective=options.fully_corrective,
        keep_fitted=private or _will_close(options, labels, rows, len(organizations)),
        guard=not private,
        moving=tuple(sorted(moving)),
        release=release,
        seed=seed,
    )


def _will_close(options: Options, labels: Labels, rows: Rows, organizations: int) -> bool:
    """Whether a closing model is wanted and possible: it needs validation rows and all replies in memory."""
    validated = len(rows.validation) > 0
    check_closing(options.closing, labels.loss, validated=validated)
    if not isinstance(options.closing, str):
        return options.closing is not False
    size = 4 * rows.n * labels.loss.n_outputs * organizations * int(options.rounds)
    wanted = not options.paper and LARGE <= len(labels.y) <= CLOSING_ROWS and size <= CLOSING_BYTES
    return wanted and validated and closes(labels.loss)


def make_rows(
    labels: Labels, options: Options, rng: np.random.Generator, *, cross_validate: bool = True
) -> Rows:
    """Row roles; by default small tables are cross-validated (unless told not to), large ones hold two tenths back."""
    n = len(labels.y)
    large = n >= LARGE and not options.paper
    fitted: Any = ("held-out" if large else "in-sample") if _auto(options.fitted) else options.fitted
    fraction = (0.1 if large else 0.0) if _auto(options.validation_fraction) else options.validation_fraction
    if isinstance(fraction, str):
        raise InvalidOptionError(f"validation_fraction must be 'auto' or a number, got {fraction!r}")
    parts = options.cross_validation
    if _auto(parts):
        untouched = _auto(options.fitted) and _auto(options.validation_fraction) and not options.paper
        parts = PARTS if untouched and cross_validate and SMALL <= n < LARGE else 0
    if parts is None:
        parts = 0
    if not isinstance(parts, int | np.integer) or isinstance(parts, bool) or parts < 0 or parts == 1:
        raise InvalidOptionError(
            f"cross_validation must be 'auto', 0 (off) or at least 2 parts, got {parts!r}"
        )
    chosen: FittedValues = fitted
    return assign_rows(
        n,
        rng,
        fitted=chosen,
        validation_fraction=0.0 if fraction is None else float(fraction),
        held_out_fraction=options.held_out_fraction,
        n_folds=options.n_folds,
        n_parts=int(parts),
        groups=labels.groups,
    )


def first_output(
    initial: Any, labels: Labels, rows: Rows, options: Options, sample_weight: Floats | None
) -> Floats | None:
    """F^0: a word, or an array of outputs in link space; None leaves it to the loss."""
    if isinstance(initial, str):
        if initial == "auto":
            initial = "mean" if options.paper and isinstance(labels.loss, AbsoluteError) else "best"
        if initial == "best":
            return None
        if initial == "zero":
            return np.zeros((1, labels.loss.n_outputs))
        if initial in {"mean", "median"} and labels.classes is None:
            y = labels.y[rows.fit]
            if initial == "median":
                return np.median(y, axis=0)[None, :]
            weight = None if sample_weight is None else sample_weight[rows.fit]
            return np.average(y, axis=0, weights=weight)[None, :]
        raise InvalidOptionError(
            f"initial must be auto, best, zero, mean or median (regression only), or outputs, got {initial!r}"
        )
    output = np.asarray(initial, dtype=np.float64)
    output = output.reshape(-1, labels.loss.n_outputs) if output.ndim < 2 else output
    if len(output) not in {1, len(labels.y)}:
        raise InvalidInputError(f"initial has {len(output)} rows, the labels {len(labels.y)}")
    return output


def local_losses_by_name(local_losses: Any, names: Sequence[str]) -> Mapping[str, str | LocalLoss | None]:
    """One local loss for all, or a mapping by organization (those not named: None)."""
    if isinstance(local_losses, Mapping):
        unknown = sorted(set(local_losses) - set(names))
        if unknown:
            raise InvalidOptionError(
                f"local_losses names {', '.join(map(repr, unknown))}, but the organizations are {', '.join(names)}"
            )
        return {name: local_losses.get(name) for name in names}
    return dict.fromkeys(names, local_losses)


def _auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
