"""True labels and options, made into what leaves: the only place of privacy in learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gal.core.requests import Release, Track
from gal.core.state import Floats, Floats32
from gal.errors import InvalidOptionError, PrivacyError
from gal.learner.initial import ScoreColumn
from gal.learner.labels import Labels, class_labels
from gal.learner.options import Options, is_auto
from gal.learner.task_making import FOLDS, SMALL
from gal.privacy.mechanisms.contract import (
    KindOfLabels,
    LabelMechanism,
    Mechanism,
    PaperMechanism,
)
from gal.privacy.noise import NoiseSource, SystemNoise
from gal.privacy.registry import KINDS

CROSS_VALIDATED: dict[str, Any] = {"cross_validation": "always", "patience": None}
"""Options under label DP: all rounds are learned, and validated on the true labels afterwards."""


@dataclass(frozen=True)
class Protected:
    """What learning may see, and how the label holder's own predictions are made."""

    labels: Labels
    """Noisy ones under a label mechanism."""
    options: Options
    release: Release | None = None
    """What is sent instead of residuals under any other mechanism."""
    private: bool = False
    """Whether a guarantee holds: what is visible follows from noisy labels or releases, and the true labels
    come in only in the private refit, after the last round."""


@dataclass(frozen=True)
class PaperRelease:
    """The paper's mechanisms as a release: weights and rates still look at the true residual."""

    mechanism: PaperMechanism
    seed: int
    takes_scaled = True

    def __call__(self, residual: Floats | Floats32, round: int, track: Track, fold: int | None) -> Floats32:
        """Noised; the same seed and request give the same."""
        key = [self.seed, round, track == "alone", 0 if fold is None else fold + 1]
        return self.mechanism(residual, np.random.default_rng(key))


def check_privacy(privacy: Any) -> None:
    """Say now that this is no mechanism."""
    if privacy is None or isinstance(privacy, Mechanism):
        return
    names = ", ".join(kind.__name__ for kind in KINDS.values())
    raise InvalidOptionError(
        f"privacy must be None or a mechanism of gal.privacy ({names}), got {privacy!r:.200}"
    )


def has_guarantee(privacy: Any) -> bool:
    """Whether this mechanism has a guarantee: what is visible then follows from noisy labels."""
    return isinstance(privacy, LabelMechanism)


def true_labels(
    privacy: Mechanism | None, y: Any, options: Options, read: Callable[[Any, Options], Labels]
) -> Labels:
    """The true labels: read as ever, or in the way that is public under a label mechanism.

    ``read`` is ``class_labels`` or ``regression_labels``.
    """
    if not isinstance(privacy, LabelMechanism):
        return read(y, options)
    kind: KindOfLabels = "classes" if read is class_labels else "numbers"
    if kind not in privacy.suits:
        fitting = " or ".join(one.__name__ for one in KINDS.values() if one.suits == (kind,))
        raise InvalidOptionError(
            f"these labels are {kind}: protect them with {fitting}, not {type(privacy).__name__}"
        )
    return privacy.read(y, options)


def protect(
    privacy: Mechanism | None,
    labels: Labels,
    options: Options,
    *,
    seed: int,
    fresh: NoiseSource | None = None,
) -> Protected:
    """What learning may see of these (true) labels under a mechanism; noise is drawn here, or in the rounds.

    ``fresh``: where noise of the rounds comes from, if not from where that of the labels does.
    """
    if isinstance(privacy, LabelMechanism):
        source, public = privacy.source or SystemNoise(), public_options(options)
        noisy, release = privacy.noisy(labels, source), None
        if privacy.columns is not None:
            if options.interactions:
                raise InvalidOptionError(
                    "interactions cannot be used with noise for columns: interaction probes would be sent "
                    "without it. Leave interactions away, or columns_epsilon"
                )
            facts = privacy.bounds, options.usual_rounds, parts_at_most(options, len(noisy.y))
            release = privacy.columns.release(noisy, *facts, source if fresh is None else fresh)
        return Protected(noisy, public, release, private=True)
    if isinstance(privacy, PaperMechanism):
        return Protected(labels, options, PaperRelease(privacy, seed))
    if privacy is not None:  # never unprotected by mistake
        raise InvalidOptionError(f"{type(privacy).__name__} is no noise on labels")
    return Protected(labels, options)


def parts_at_most(options: Options, n_rows: int) -> int:
    """In how many parts a task under noise on labels is cross-validated at most; 0: it is not."""
    folds = public_options(options).cross_validation
    if isinstance(folds, str):
        return FOLDS if folds == "always" and n_rows >= SMALL else 0
    return 0 if folds is None else int(folds)


def private_options(privacy: Any, options: Options) -> Options:
    """Under noise on labels a task is cross-validated by default: private stacking needs held-out values.

    Fixed where a task is made: agreed terms do not change with a later version of gal-learn.
    """
    free = all(map(is_auto, (options.fitted, options.validation_fraction, options.cross_validation)))
    if not isinstance(privacy, LabelMechanism) or options.paper or not free:
        return options
    return replace(options, **CROSS_VALIDATED)


def public_options(options: Options) -> Options:
    """Options for learning on noisy labels: every round is used, and the private refit weighs them.

    Validation on noisy labels is possible. A stacker is only of what the label holder learns by itself.
    """
    if options.stacking is not False and options.stacking != "auto":
        raise InvalidOptionError("stacking is not possible with privacy: the private refit takes its place")
    folds, fraction = options.cross_validation, options.validation_fraction
    return replace(
        options,
        rounds=options.usual_rounds,
        cross_validation=0 if folds == "auto" else folds,
        validation_fraction=0.0 if fraction == "auto" else fraction,
    )


def check_public(privacy: Any, sample_weight: Any, initial: Any) -> None:
    """Whether what else shapes the residuals is public; only a guarantee needs it."""
    if not isinstance(privacy, LabelMechanism):
        return
    if sample_weight is not None:
        raise PrivacyError(
            "sample_weight is sent to the organizations and may reveal labels: learn without it under "
            "a privacy mechanism"
        )
    words = {"auto", "zero", "best", "mean", "median"}
    if not isinstance(initial, str) or initial not in words:
        raise PrivacyError(
            f"initial must be one of {', '.join(sorted(words))} under this privacy mechanism, got "
            f"{initial!r:.100}: what was learned from the labels would show in every residual"
        )


def check_constant(privacy: Any, initial: str | ScoreColumn) -> None:
    """Whether F^0 is a constant: a column of the table that is called like the word is
    a score, fitted to the labels.
    """
    if isinstance(privacy, LabelMechanism) and isinstance(initial, ScoreColumn):
        raise PrivacyError(
            "initial names a column of the table, whose score would be fitted to the true labels, and would "
            "show in every residual: rename the column, or pass another word"
        )
