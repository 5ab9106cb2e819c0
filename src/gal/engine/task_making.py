"""From labels and options to a Task: names are looked up, "auto" is decided, the preset applied."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.guards.guarded_weights import PROVEN, GuardedWeights
from gal.core.line_search import LineSearch, line_search
from gal.core.losses import AbsoluteError, MultinomialLogLoss, knows_curvature
from gal.core.probes.kept_probes import ProbePlan
from gal.core.requests import Release
from gal.core.residual_losses import LocalLoss
from gal.core.rows import FittedValues, Rows, assign_rows, with_probes
from gal.core.stopping import Stopping
from gal.core.task import Task
from gal.core.weights import AssistanceWeights, assistance_weights
from gal.engine.class_weights import weights_of_rows
from gal.engine.labels import Labels
from gal.engine.options import MOST_ROUNDS, Options, is_auto
from gal.engine.stacking import Stacking, check_closing, closes
from gal.errors import InvalidInputError, InvalidOptionError

Floats = NDArray[np.float64]

LARGE = 2000
"""From this many rows on a tenth of them is worth more as judges than as examples."""

JUDGES = 1000
"""Rows that are enough to judge, or to search, on: more are worth more as examples, up to a twentieth."""

LARGER = 20_000
"""From this many rows on several classes may take more than ten rounds; with 8,000 some were worse."""

SMALL = 50
"""With fewer rows there is nothing to cross-validate with."""

PARTS = 4
"""Parts of a cross-validation."""

CLOSING_BYTES = 4 * 2**30
"""Fitted values larger than this together are not kept for a closing model unless asked to."""

PROBES, PROBES_FOR_THREE = 10, 4
"""How many interaction probes each organization gets with ``interactions=True``; and how many more where
there are three organizations, if no two show anything together.
"""

CLOSING_ROWS = 1_000_000
"""A forest on more rows than this takes gigabytes and hours: only where it is asked for."""


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
    tables: bool = True,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Task:
    """The task that these options describe; ``moving`` names the organizations whose models move.

    ``tables``: whether all views are such, not images or series. ``private``: its labels are noisy ones, or
    ``release`` protects them; then all replies are kept, for a private refit that judges them on the true
    labels. ``n_jobs``: cores for the closing model.
    """
    local = label_holder_loss or ("l1" if options.paper and labels.classes is None else "l2")
    rows = make_rows(labels, options, np.random.default_rng(seed), cross_validate=not moving)
    apart = private or release is not None
    weight = weights_of_rows(labels, options.class_weight, sample_weight, private=apart)
    members = () if release is not None else sorted(set(organizations) - set(moving))
    probes = _probes(options, labels, rows, members, n_jobs, private=private)
    other = apart or bool(moving) or not tables
    rounds = _most_rounds(options, labels, rows, apart=other)
    closing = _closing(options, labels, rows, (len(organizations), rounds), n_jobs, private=private)
    return Task(
        y=labels.y,
        loss=labels.loss,
        organizations=tuple(sorted(organizations)),
        rows=rows if probes is None else _with_probes(rows, labels, seed),
        label_holder=label_holder,
        rounds=rounds,
        initial=initial_output(initial, labels, rows, options, weight),
        sample_weight=weight,
        weights=_weights(options, local, rows),
        line_search=_line_search(options),
        stopping=_stopping(options),
        curved=_curved(options, labels, apart=other),
        scale_residual=_scales(options),
        keep_fitted=private,
        guard=not private,
        moving=tuple(sorted(moving)),
        release=release,
        closing=None if private else closing,
        own_closing=closing if private else None,
        probes=probes,
        seed=seed,
    )


def _line_search(options: Options) -> LineSearch:
    usual = "lbfgs" if options.paper else "exact"
    return line_search(usual if is_auto(options.line_search) else options.line_search)


def _most_rounds(options: Options, labels: Labels, rows: Rows, *, apart: bool) -> int:
    """How many rounds at most. Small tables that are cross-validated, and several classes in large ones,
    take more than the paper's as long as that helps, unless something is ``apart`` about the task.
    """
    several = isinstance(labels.loss, MultinomialLogLoss) and len(rows.validation) > 0
    judged = rows.n_parts > 0 or (several and len(labels.y) >= LARGER)
    free = is_auto(options.rounds) and not options.paper and not apart and options.patience is not None
    return MOST_ROUNDS if free and judged else options.usual_rounds


def _stopping(options: Options) -> Stopping:
    """When learning ends before its last round; the paper's never does."""
    if options.paper:
        return Stopping(None, None, None)
    return Stopping(options.min_rate, options.patience, options.plateau)


def _scales(options: Options) -> bool:
    """Whether residuals are sent with unit RMS."""
    scale = not options.paper if is_auto(options.scale_residual) else options.scale_residual
    if not isinstance(scale, bool | np.bool_):
        raise InvalidOptionError(f"scale_residual must be 'auto', True or False, got {scale!r}")
    return bool(scale)


def _weights(options: Options, local: Any, rows: Rows) -> AssistanceWeights:
    """How replies are weighed. By default, what is not along with the residual counts nothing; on rows that
    nobody fits it has to be proven.
    """
    if not is_auto(options.weights) or options.paper:
        return assistance_weights("softmax_adam" if is_auto(options.weights) else options.weights, local)
    finder = assistance_weights("shrunk", local)
    unseen = rows.folds is None and not np.isin(rows.search, rows.fit).any()
    return GuardedWeights(finder, PROVEN if unseen else 0.0)


def _probes(
    options: Options, labels: Labels, rows: Rows, members: Sequence[str], n_jobs: int | None, *, private: bool
) -> ProbePlan | None:
    """Which interaction probes follow the rounds; None unless they are asked for: probes reveal columns."""
    wanted = options.interactions
    if not wanted:
        return None
    needed = {
        "at least two organizations whose models do not move, and residuals without noise": len(members) > 1,
        "true labels (label differential privacy gives noisy ones)": not private,
        "a log loss or squared error": closes(labels.loss),
        f"validation rows (there are some by default from {LARGE:,} rows on; with fewer rows pass "
        "validation_fraction=0.1)": len(rows.validation) > 0,
    }
    missing = [what for what, there in needed.items() if not there]
    if missing:
        raise InvalidOptionError(
            f"interactions={wanted!r} is not possible here: interaction probes need {'; '.join(missing)}. "
            "Leave interactions away, or see to that"
        )
    stacking = Stacking(n_jobs)
    if isinstance(wanted, bool | np.bool_):
        return ProbePlan(PROBES + PROBES_FOR_THREE * (len(members) > 2), PROBES, stacking)
    return ProbePlan(int(wanted), int(wanted), stacking)


def _curved(options: Options, labels: Labels, *, apart: bool) -> bool:
    """Whether residuals go by the curve of the loss: for classes in large tables, unless something else
    is ``apart`` about the task.
    """
    if not is_auto(options.curvature):
        if not isinstance(options.curvature, bool | np.bool_):
            raise InvalidOptionError(f"curvature must be 'auto', True or False, got {options.curvature!r}")
        return bool(options.curvature)
    return not options.paper and not apart and len(labels.y) >= LARGE and knows_curvature(labels.loss)


def _closing(
    options: Options, labels: Labels, rows: Rows, asked: tuple[int, int], n_jobs: int | None, *, private: bool
) -> Stacking | None:
    """How the answers are closed or, where labels are noisy, the model that she learns by herself.

    ``asked``: how many organizations, in how many rounds at most.
    """
    closed = _closes_own(options, labels, rows) if private else _will_close(options, labels, rows, *asked)
    return Stacking(n_jobs) if closed else None


def _will_close(options: Options, labels: Labels, rows: Rows, organizations: int, rounds: int) -> bool:
    """Whether a closing model is wanted and possible: it needs validation rows and all replies in memory."""
    validated = len(rows.validation) > 0
    check_closing(options.closing, labels.loss, validated=validated)
    if not isinstance(options.closing, str):
        return bool(options.closing)
    size = 4 * rows.n * labels.loss.n_outputs * organizations * rounds
    wanted = not options.paper and LARGE <= len(labels.y) <= CLOSING_ROWS and size <= CLOSING_BYTES
    return wanted and validated and closes(labels.loss)


def _closes_own(options: Options, labels: Labels, rows: Rows) -> bool:
    """Whether a model that the label holder learns by herself is closed as it would be without privacy."""
    size = 4 * rows.n * labels.loss.n_outputs * options.usual_rounds * (rows.n_parts + 1)
    possible = LARGE <= rows.n <= CLOSING_ROWS and size <= CLOSING_BYTES
    return is_auto(options.closing) and not options.paper and possible


def make_rows(
    labels: Labels, options: Options, rng: np.random.Generator, *, cross_validate: bool = True
) -> Rows:
    """Row roles; by default small tables are cross-validated (unless told not to),
    large ones hold a tenth to two tenths back.
    """
    n = len(labels.y)
    always = options.cross_validation == "always" and cross_validate and n >= SMALL
    large = n >= LARGE and not options.paper and not always
    fitted: Any = ("held-out" if large else "in-sample") if is_auto(options.fitted) else options.fitted
    kept = min(0.1, max(0.05, JUDGES / n))
    fraction = (
        (kept if large else 0.0) if is_auto(options.validation_fraction) else options.validation_fraction
    )
    held_out = kept if is_auto(options.held_out_fraction) else options.held_out_fraction
    if isinstance(held_out, str):
        raise InvalidOptionError(f"held_out_fraction must be 'auto' or a number, got {held_out!r}")
    if isinstance(fraction, str):
        raise InvalidOptionError(f"validation_fraction must be 'auto' or a number, got {fraction!r}")
    parts = options.cross_validation
    if is_auto(parts):
        untouched = is_auto(options.fitted) and is_auto(options.validation_fraction) and not options.paper
        parts = PARTS if untouched and cross_validate and SMALL <= n < LARGE else 0
    if parts is None or parts == "always":
        parts = PARTS if always else 0
    if not isinstance(parts, int | np.integer) or isinstance(parts, bool) or parts < 0 or parts == 1:
        raise InvalidOptionError(
            f"cross_validation must be 'auto', 'always', 0 (off) or at least 2 parts, got {parts!r}"
        )
    chosen: FittedValues = fitted
    return assign_rows(
        n,
        rng,
        fitted=chosen,
        validation_fraction=0.0 if fraction is None else float(fraction),
        held_out_fraction=float(held_out),
        n_folds=options.n_folds,
        n_parts=int(parts),
        groups=labels.groups,
    )


def _with_probes(rows: Rows, labels: Labels, seed: int) -> Rows:
    return with_probes(rows, np.random.default_rng([seed, PROBES]), labels.groups)


def initial_output(
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
