"""How likely what was sent is under each label: what mechanisms say of their own noise, for
the strongest attack there is.

The attacker is given more than any assistant has: the outputs F^{t-1} behind every residual, the scales, and
the quantiles at which the paper's mechanisms clip. Then a message tells of a label only through the
mechanism's noise, and that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss

if TYPE_CHECKING:
    from gal.privacy.leakage.transcript import SentRows

Floats = NDArray[np.float64]

EXACT = 1e-3
"""What is sent without noise is as expected up to this share of its size: rounding, and no more."""


@dataclass(frozen=True)
class Insight:
    """What the attacker is given beside the messages."""

    sent: SentRows
    loss: Loss
    """The loss whose residuals are sent."""
    y: Floats
    """The true labels (n, width) as the loss wants them: only for the clipping
    quantiles of the paper's mechanisms.
    """

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


def log_likelihood_as_sent(insight: Insight, labels: Sequence[Floats]) -> Floats:
    """Where nothing is noised: messages are what they must be, up to rounding;
    (n, G, E) under each of G labels.

    For classes there is one piece, for numbers one for each output.
    """
    messages = insight.sent.residual[:, :, :1]
    size = EXACT * float(np.sqrt(np.nanmean(np.square(messages))))
    return in_pieces(insight, [log_normal(messages, insight.scaled(label), size) for label in labels])


def noisy_labels(insight: Insight) -> Floats:
    """The noisy numbers (n, K), which the first residual gives away."""
    before, scales = insight.sent.before, insight.sent.scales
    assert before is not None
    assert scales is not None
    return np.asarray(insight.sent.residual[:, 0, 0] * scales[0] + before[:, 0])


def in_pieces(insight: Insight, entries: Sequence[Floats]) -> Floats:
    """Entries (n, T, B, K) under each label added up over all messages: (n, G, 1); of numbers (n, G, K)."""
    sums = np.stack([np.nansum(one, axis=(1, 2)) for one in entries], axis=1)
    return sums if insight.y.shape[1] == insight.loss.n_outputs else sums.sum(axis=2, keepdims=True)


def log_normal(sent: Floats, expected: Floats, scale: Any) -> Floats:
    """Of what was sent, entry by entry, up to what is the same for all labels."""
    return np.asarray(-0.5 * np.square((sent - expected) / scale) - np.log(scale))


def log_laplace(sent: Floats, expected: Floats, scale: Any) -> Floats:
    """Of what was sent, entry by entry, up to what is the same for all labels."""
    return np.asarray(-np.abs(sent - expected) / scale)
