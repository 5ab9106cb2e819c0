"""How likely what was sent is under each label: the strongest attack there is, if the mechanism is known.

The attacker is given more than any assistant has: the outputs F^{t-1} behind every residual, the scales, and the quantiles at
which the paper's mechanisms clip. Then a message tells of a label only through the mechanism's noise, and that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss, SquaredError, classification_loss
from gal.privacy.corrected_loss import CorrectedLogLoss
from gal.privacy.labels import GaussianLabels, LaplaceLabels, RandomisedResponse
from gal.privacy.leakage.transcript import Sent
from gal.privacy.paper import QUANTILES, PaperInterval, PaperLaplace
from gal.privacy.residuals import GaussianResiduals, LaplaceResiduals

Floats = NDArray[np.float64]

EXACT = 1e-3
"""What is sent without noise is as expected up to this share of its size: rounding, and no more."""

IMPOSSIBLE = -60.0
"""The log-likelihood of an entry that cannot be: not minus infinity, because F^{t-1} of a cross-validation is not known
exactly, and one entry must not outvote all others."""


@dataclass(frozen=True)
class Insight:
    """What the attacker is given beside the messages."""

    sent: Sent
    loss: Loss
    """The loss whose residuals are sent."""
    y: Floats
    """The true labels (n, width) as the loss wants them: only for the clipping quantiles of the paper's mechanisms."""
    rounds: int
    """How many the task could have had: the noise of residuals is made for so many."""

    def expected(self, label: Floats) -> Floats:
        """The residual (n, T, K) of this label (width,), or of the labels (n, width), before it is scaled."""
        before = self.sent.before
        assert before is not None
        labels = np.broadcast_to(label, (len(before), label.shape[-1])).astype(np.float64)
        return np.stack(
            [self.loss.pseudo_residual(labels, before[:, t]) for t in range(before.shape[1])], axis=1
        )

    def scaled(self, label: Floats) -> Floats:
        """The same as it is sent, (n, T, 1, K)."""
        assert self.sent.scales is not None
        return (self.expected(label) / self.sent.scales[:, None])[:, :, None]

    def unscaled(self) -> Floats:
        """Messages times their scales, (n, T, 1 + P, K)."""
        assert self.sent.scales is not None
        return self.sent.residual * self.sent.scales[:, None, None]


def public_loss(mechanism: Any, loss: Loss) -> Loss:
    """The loss whose residuals are sent under this mechanism."""
    if isinstance(mechanism, RandomisedResponse):
        return CorrectedLogLoss(len(mechanism.classes), mechanism.keep, one_output=loss.n_outputs == 1)
    return loss


def plain_loss(classes: int | None, n_outputs: int) -> Loss:
    """The usual loss of so many classes (None: of numbers) with these outputs."""
    if classes is None:
        return SquaredError(n_outputs)
    return classification_loss("log_loss", classes, one_output=n_outputs == 1)


@singledispatch
def log_likelihood(mechanism: Any, insight: Insight, labels: Sequence[Floats]) -> Floats:  # noqa: ARG001
    """Of each row's messages under each of G labels (each (width,)): (n, G, E) in E pieces that add up.

    For classes there is one piece, for numbers one for each output. Without a mechanism (this one) messages are what they
    must be, up to rounding.
    """
    messages = insight.sent.residual[:, :, :1]
    size = EXACT * float(np.sqrt(np.nanmean(np.square(messages))))
    entries = [_normal(messages, insight.scaled(label), size) for label in labels]
    return _pieces(insight, entries)


@log_likelihood.register
def _(mechanism: RandomisedResponse, insight: Insight, labels: Sequence[Floats]) -> Floats:
    """The noisy label is read off the messages; the mechanism says how likely it is under each true one."""
    codes = np.arange(len(mechanism.classes), dtype=np.float64)
    clear = log_likelihood(None, insight, [np.array([code]) for code in codes])[:, :, 0]
    drawn = clear.argmax(axis=1)
    other = (1 - mechanism.keep) / (len(codes) - 1)
    same = np.array([[label[0] for label in labels]]) == drawn[:, None]
    return np.log(np.where(same, mechanism.keep, max(other, 1e-300)))[:, :, None]


@log_likelihood.register
def _(mechanism: LaplaceLabels, insight: Insight, labels: Sequence[Floats]) -> Floats:
    noisy = _noisy_labels(insight)
    scale = mechanism.scale(noisy.shape[1])
    within = [np.clip(label, mechanism.lower, mechanism.upper) for label in labels]
    return np.stack([-np.abs(noisy - label) / scale for label in within], axis=1)


@log_likelihood.register
def _(mechanism: GaussianLabels, insight: Insight, labels: Sequence[Floats]) -> Floats:
    noisy = _noisy_labels(insight)
    scale = mechanism.scale(noisy.shape[1])
    within = [np.clip(label, mechanism.lower, mechanism.upper) for label in labels]
    return np.stack([_normal(noisy, label, scale) for label in within], axis=1)


@log_likelihood.register
def _(mechanism: GaussianResiduals, insight: Insight, labels: Sequence[Floats]) -> Floats:
    return _noised(mechanism, insight, labels, _normal)


@log_likelihood.register
def _(mechanism: LaplaceResiduals, insight: Insight, labels: Sequence[Floats]) -> Floats:
    return _noised(mechanism, insight, labels, _laplace)


@log_likelihood.register
def _(mechanism: PaperLaplace, insight: Insight, labels: Sequence[Floats]) -> Floats:
    low, high = _quantiles(insight)
    messages, scale = insight.sent.residual, (high - low) / mechanism.alpha
    return _pieces(
        insight, [_laplace(messages, np.clip(insight.scaled(label), low, high), scale) for label in labels]
    )


@log_likelihood.register
def _(mechanism: PaperInterval, insight: Insight, labels: Sequence[Floats]) -> Floats:
    low, high = _quantiles(insight)
    places = (insight.sent.residual - low) / (high - low)
    expected = [np.clip((insight.scaled(label) - low) / (high - low), 0.0, 1.0) for label in labels]
    likely: Callable[[Floats, Floats], Floats] = _one_threshold
    if mechanism.intervals > 1:
        likely = lambda sent, true: _normal(sent, true, np.sqrt(_spread(true) / mechanism.intervals))  # noqa: E731
    return _pieces(insight, [likely(places, one) for one in expected])


# --- parts of the above


def _noised(
    mechanism: GaussianResiduals | LaplaceResiduals,
    insight: Insight,
    labels: Sequence[Floats],
    likely: Callable[[Floats, Floats, Any], Floats],
) -> Floats:
    """Noise of one scale on residuals clipped at a public bound, in every round anew."""
    nobody: Any = None  # draws nothing here: only the scale is asked for
    scale = mechanism.release(insight.loss, insight.rounds, nobody).scale
    messages = insight.unscaled()
    expected = [
        np.clip(insight.expected(label), -mechanism.clip, mechanism.clip)[:, :, None] for label in labels
    ]
    return _pieces(insight, [likely(messages, one, scale) for one in expected])


def _noisy_labels(insight: Insight) -> Floats:
    """The noisy numbers (n, K), which the first residual gives away."""
    before = insight.sent.before
    assert before is not None
    return np.asarray(insight.unscaled()[:, 0, 0] + before[:, 0])


def _quantiles(insight: Insight) -> tuple[Floats, Floats]:
    """Where the paper's mechanisms clipped in each round, shape (T, 1, 1)."""
    true = insight.scaled(insight.y)
    low, high = np.quantile(true, QUANTILES, axis=(0, 2, 3))
    high = np.maximum(high, low + 1e-12)  # a residual that is the same everywhere
    return low[:, None, None], high[:, None, None]


def _pieces(insight: Insight, entries: Sequence[Floats]) -> Floats:
    """Entries (n, T, B, K) under each label added up over all messages: (n, G, 1), or (n, G, K) of numbers."""
    sums = np.stack([np.nansum(one, axis=(1, 2)) for one in entries], axis=1)
    return sums if insight.y.shape[1] == insight.loss.n_outputs else sums.sum(axis=2, keepdims=True)


def _normal(sent: Floats, expected: Floats, scale: Any) -> Floats:
    return np.asarray(-0.5 * np.square((sent - expected) / scale) - np.log(scale))


def _laplace(sent: Floats, expected: Floats, scale: Any) -> Floats:
    return np.asarray(-np.abs(sent - expected) / scale)


def _one_threshold(sent: Floats, true: Floats) -> Floats:
    """Of 2t - 1 where ``true`` < t and 2t otherwise, with t uniform in [0, 1]."""
    above, below = (sent + 1) / 2, sent / 2  # the thresholds that would have sent this
    density = 0.5 * ((true < above) & (above <= 1) & (above >= 0)) + 0.5 * (
        (true >= below) & (below >= 0) & (below <= 1)
    )
    with np.errstate(divide="ignore"):
        log = np.log(density)
    return np.asarray(np.where(np.isnan(sent), np.nan, np.maximum(log, IMPOSSIBLE)))


def _spread(true: Floats) -> Floats:
    """The variance of what one threshold makes of a value in [0, 1]."""
    return np.asarray(4 * true**3 / 3 + (1 - (2 * true - 1) ** 3) / 6 - true**2)
