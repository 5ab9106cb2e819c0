"""Labels and options, made into a Task: names looked up, "auto" and presets resolved."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.line_search import line_search
from gal.core.local_losses import LocalLoss
from gal.core.losses import AbsoluteError, has_curvature
from gal.core.outcome import Stopping
from gal.core.probes.kept_probes import ProbePlan
from gal.core.requests import Release
from gal.core.rows import Rows, assign_rows, with_probes
from gal.core.task import Task
from gal.core.weights import PROVEN, AssistanceWeights, GuardedWeights, assistance_weights
from gal.errors import InvalidInputError, InvalidOptionError
from gal.learner.labels import Labels, weights_of_rows
from gal.learner.options import MOST_ROUNDS, Options, chosen, is_auto
from gal.learner.stacking import Stacking, check_stacking, stackable

Floats = NDArray[np.float64]

LARGE = 2000
"""From so many rows on a tenth of them validates."""

ENOUGH = 1000
"""Validation rows, or search rows, that are enough; at least a twentieth of all rows."""

SMALL = 50
"""Fewest rows for a cross-validation."""

FOLDS = 4
"""Folds of a cross-validation."""

STACKER_BYTES = 4 * 2**30
"""At most so many bytes of fitted values are kept for a stacker by default."""

PROBES, PROBES_FOR_THREE = 10, 4
"""How many interaction probes each organization gets with ``interactions=True``; and how many more where
there are three organizations, if no two show anything together.
"""

STACKER_ROWS = 1_000_000
"""Most rows for a stacker by default."""


def make_task(
    labels: Labels,
    organizations: Sequence[str],
    options: Options,
    *,
    label_holder: str | None,
    label_holder_loss: str | LocalLoss | None = None,
    initial: Any = "auto",
    sample_weight: Any = None,
    stateful: Collection[str] = (),
    release: Release | None = None,
    private: bool = False,
    tables: bool = True,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Task:
    """The task that these options describe; ``stateful`` names organizations with stateful models.

    ``tables``: whether all views are tables, not images or series. ``private``: labels are noisy, or
    ``release`` protects them; then all replies are kept for a private refit to the true labels. ``n_jobs``:
    cores for the stacker.
    """
    n, paper, protected = len(labels.y), options.paper, private or release is not None
    plain = not (paper or protected or stateful) and tables
    rows = make_rows(labels, options, np.random.default_rng(seed), cross_validate=not stateful)
    weight = weights_of_rows(labels, options.class_weight, sample_weight, private=protected)
    members = [] if release is not None else sorted(set(organizations) - set(stateful))
    probes = _probes(options, labels, rows, members, n_jobs, private=private)
    rounds = MOST_ROUNDS if plain and _may_continue(options, rows) else options.usual_rounds
    stacks_own = private and _stacks_own(options, labels, rows)
    stacking = not private and _uses_stacker(options, labels, rows, len(organizations) * rounds)
    return Task(
        y=labels.y,
        loss=labels.loss,
        organizations=tuple(sorted(organizations)),
        rows=rows
        if probes is None
        else with_probes(rows, np.random.default_rng([seed, PROBES]), labels.groups),
        label_holder=label_holder,
        rounds=rounds,
        initial=initial_output(initial, labels, rows, options, weight),
        sample_weight=weight,
        weights=_weights(options, labels, rows, label_holder_loss),
        line_search=line_search(chosen(options.line_search, "lbfgs" if paper else "exact")),
        stopping=Stopping(None, None, None)
        if paper
        else Stopping(patience=options.patience, plateau=options.plateau),
        newton=plain and n >= LARGE and has_curvature(labels.loss),
        scale_residual=bool(chosen(options.scale_residual, not paper)),
        keep_fitted=private,
        guard=not private,
        stateful=tuple(sorted(stateful)),
        release=release,
        stacker=Stacking(n_jobs) if stacking else None,
        own_stacker=Stacking(n_jobs) if stacks_own else None,
        probes=probes,
        seed=seed,
    )


def _may_continue(options: Options, rows: Rows) -> bool:
    """Whether learning may take more rounds than the paper's while they help: in a cross-validation."""
    return rows.n_cv_folds > 0 and is_auto(options.rounds) and options.patience is not None


def _weights(
    options: Options, labels: Labels, rows: Rows, local: str | LocalLoss | None
) -> AssistanceWeights:
    """The weight finder: by default shrunk, among fitted values that go along with the residual, on rows that
    were not fitted significantly.
    """
    local = local or ("l1" if options.paper and labels.classes is None else "l2")
    if not is_auto(options.weights) or options.paper:
        return assistance_weights(chosen(options.weights, "softmax_adam"), local)
    unseen = rows.folds is None and not np.isin(rows.search, rows.fit).any()
    return GuardedWeights(assistance_weights("shrunk", local), PROVEN if unseen else 0.0)


def _probes(
    options: Options, labels: Labels, rows: Rows, members: Sequence[str], n_jobs: int | None, *, private: bool
) -> ProbePlan | None:
    """The interaction probes after the rounds; None by default, because probes reveal columns."""
    wanted = options.interactions
    if not wanted:
        return None
    needed = {
        "at least two organizations with stateless models and no noise on residuals": len(members) > 1,
        "true labels (label differential privacy gives noisy ones)": not private,
        "a log loss or squared error": stackable(labels.loss),
        f"validation rows (there are some by default from {LARGE:,} rows on; with fewer rows pass "
        "validation_fraction=0.1)": len(rows.validation) > 0,
    }
    missing = [what for what, there in needed.items() if not there]
    if missing:
        raise InvalidOptionError(
            f"interactions={wanted!r} is not possible here: interaction probes need {'; '.join(missing)}. "
            "Leave interactions out, or provide this"
        )
    if isinstance(wanted, bool | np.bool_):
        return ProbePlan(PROBES + PROBES_FOR_THREE * (len(members) > 2), PROBES, Stacking(n_jobs))
    return ProbePlan(int(wanted), int(wanted), Stacking(n_jobs))


def _uses_stacker(options: Options, labels: Labels, rows: Rows, replies: int) -> bool:
    """Whether there is a stacker: it needs validation rows, and so many replies in memory."""
    validated = len(rows.validation) > 0
    check_stacking(options.stacking, labels.loss, validated=validated)
    usual = not options.paper and validated and stackable(labels.loss) and _fits(labels, rows, replies)
    return bool(chosen(options.stacking, usual))


def _stacks_own(options: Options, labels: Labels, rows: Rows) -> bool:
    """Whether a model that the label holder learns alone has a stacker, as it would without privacy."""
    fits = _fits(labels, rows, options.usual_rounds * (rows.n_cv_folds + 1))
    return is_auto(options.stacking) and not options.paper and fits


def _fits(labels: Labels, rows: Rows, replies: int) -> bool:
    """Whether there are enough rows for a stacker, and so many replies are not too large to be kept."""
    return LARGE <= rows.n <= STACKER_ROWS and 4 * rows.n * labels.loss.n_outputs * replies <= STACKER_BYTES


def make_rows(
    labels: Labels, options: Options, rng: np.random.Generator, *, cross_validate: bool = True
) -> Rows:
    """Row roles; by default small tables are cross-validated, and large ones hold a tenth to a fifth back."""
    n, folds, paper = len(labels.y), options.cross_validation, options.paper
    always = folds == "always" and cross_validate and n >= SMALL
    large = n >= LARGE and not paper and not always
    kept = min(0.1, max(0.05, ENOUGH / n))
    fraction = float(chosen(options.validation_fraction, kept if large else 0.0) or 0.0)
    untouched = is_auto(options.fitted) and is_auto(options.validation_fraction) and not paper
    if is_auto(folds):
        folds = FOLDS if untouched and cross_validate and SMALL <= n < LARGE else 0
    if folds is None or folds == "always":
        folds = FOLDS if always else 0
    return assign_rows(
        n,
        rng,
        fitted=chosen(options.fitted, "held-out" if large else "in-sample"),
        validation_fraction=fraction,
        held_out_fraction=fraction if fraction > 0 else kept,
        n_cv_folds=int(folds),
        groups=labels.groups,
    )


def initial_output(
    initial: Any, labels: Labels, rows: Rows, options: Options, sample_weight: Floats | None
) -> Floats | None:
    """F^0: a word, or an array of outputs in link space; None leaves it to the loss."""
    if not isinstance(initial, str):
        output = np.asarray(initial, dtype=np.float64)
        output = output.reshape(-1, labels.loss.n_outputs) if output.ndim < 2 else output
        if len(output) not in {1, len(labels.y)}:
            raise InvalidInputError(f"initial has {len(output)} rows, the labels {len(labels.y)}")
        return output
    means = options.paper and isinstance(labels.loss, AbsoluteError)
    word, y = chosen(initial, "mean" if means else "best"), labels.y[rows.fit]
    if word == "best":
        return None
    if word == "zero":
        return np.zeros((1, labels.loss.n_outputs))
    if word == "median" and labels.classes is None:
        return np.median(y, axis=0)[None, :]
    if word == "mean" and labels.classes is None:
        weight = None if sample_weight is None else sample_weight[rows.fit]
        return np.average(y, axis=0, weights=weight)[None, :]
    raise InvalidOptionError(
        f"initial must be auto, best, zero, mean or median (regression only), or outputs, got {initial!r}"
    )
