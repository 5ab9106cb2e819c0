"""The losses and likelihoods that attackers reckon with, under any mechanism or none."""

from __future__ import annotations

from collections.abc import Sequence

from gal.core.losses import Loss, SquaredError, classification_loss
from gal.privacy.mechanisms.contract import Mechanism
from gal.privacy.mechanisms.likelihood import Floats, Insight, log_likelihood_as_sent


def public_loss(mechanism: Mechanism | None, loss: Loss) -> Loss:
    """The loss whose residuals are sent under this mechanism, or none."""
    return loss if mechanism is None else mechanism.public_loss(loss)


def plain_loss(classes: int | None, n_outputs: int) -> Loss:
    """The usual loss of so many classes (None: of numbers) with these outputs."""
    if classes is None:
        return SquaredError(n_outputs)
    return classification_loss("log_loss", classes, one_output=n_outputs == 1)


def log_likelihood(mechanism: Mechanism | None, insight: Insight, labels: Sequence[Floats]) -> Floats:
    """Of each row's messages under each of G labels (each (width,)): (n, G, E) in E pieces that add up."""
    if mechanism is None:
        return log_likelihood_as_sent(insight, labels)
    return mechanism.log_likelihood(insight, labels)
