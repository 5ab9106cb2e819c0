"""Log loss for labels under randomized response, with its minimum at the true labels' probabilities.

Forward correction: the model's probabilities of the true classes are mixed with the mechanism's public ones,
and the mixture is compared with the noisy label. The residual is the plain one times the chance that the
label is unchanged, so that rows whose noisy label the model firmly contradicts have little effect.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import BinaryLogLoss, MultinomialLogLoss
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]

DOUBT = 0.01
"""The share of changed labels that counts as if their rows had no information. Without any, the loss is
bounded, and a line search may walk to where all residuals vanish (outputs of 40,000 were seen). From
0.003 to 0.1 the accuracy is the same."""


@dataclass(frozen=True)
class CorrectedLogLoss:
    """Log loss of labels of which a share ``keep`` is true, and the others are any other class, all alike.

    ``y`` are noisy class codes (n, 1); outputs are those of the log loss for ``n_classes`` classes. With
    ``keep=1`` it is the log loss; below it is not convex.
    """

    n_classes: int
    keep: float
    one_output: bool = True
    """Whether two classes have one output (log-odds of the second) or two."""

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise InvalidOptionError(f"n_classes must be at least 2, got {self.n_classes!r}")
        if not (self.signal > 0 and self.keep <= 1):
            raise InvalidOptionError(
                f"keep must be above 1/{self.n_classes} and at most 1 for {self.n_classes} classes, got "
                f"{self.keep!r}"
            )

    @property
    def name(self) -> str:
        """What the loss is called."""
        return "corrected_log_loss"

    @property
    def plain(self) -> BinaryLogLoss | MultinomialLogLoss:
        """The log loss of true labels whose outputs these are."""
        single = self.n_classes == 2 and self.one_output
        return BinaryLogLoss() if single else MultinomialLogLoss(self.n_classes)

    @property
    def n_outputs(self) -> int:
        """K."""
        return self.plain.n_outputs

    @property
    def accident(self) -> float:
        """The probability with which the mechanism writes a class whatever is true: (1 - keep) / (C - 1)."""
        return (1 - self.keep) / (self.n_classes - 1)

    @property
    def signal(self) -> float:
        """How much more likely the mechanism writes a class where it is the true one."""
        return self.keep - self.accident

    def initial(self, y: Floats, sample_weight: Floats | None = None) -> Floats:
        """The debiased share of each class, as outputs (K,).

        A share is at least its standard error (at most what all classes alike would have), and half a row: a
        class hidden by the noise keeps a share above 0.
        """
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        seen = np.bincount(y[:, 0].astype(np.intp), weights=weight, minlength=self.n_classes) / weight.sum()
        rows = float(weight.sum() ** 2 / np.square(weight).sum())  # as many rows alike know as much
        error = np.sqrt(self.accident * (1 - self.accident) / rows) / self.signal
        least = min(max(error, 0.5 / rows), 1 / self.n_classes)
        share = np.maximum((seen - self.accident) / self.signal, least)
        logs = np.log(share / share.sum())
        return np.asarray(logs[1:] - logs[:1] if self.n_outputs == 1 else logs)

    def value(self, y: Floats, output: Floats) -> Floats:
        """Loss per row (n,)."""
        plain = self.plain.value(y, output)
        corrected, _ = self._with_shrinkage(plain)
        if self.doubt == 0:
            return corrected
        outputs = output if self.n_outputs > 1 else np.hstack([np.zeros_like(output), output])
        own = outputs[np.arange(len(y)), y[:, 0].astype(np.intp)]
        over_classes = plain + own - outputs.mean(axis=1)  # the mean log loss of all classes
        return np.asarray((1 - self.doubt) * corrected + self.doubt * over_classes)

    def pseudo_residual(self, y: Floats, output: Floats) -> Floats:
        """Minus the derivative by the outputs (n, K): that of the log loss, times the label's weight."""
        _, weight = self._with_shrinkage(self.plain.value(y, output))
        pull = ((1 - self.doubt) * weight)[:, None] * self.plain.pseudo_residual(y, output)
        if self.doubt > 0:
            probability = self.inverse_link(output)[:, -self.n_outputs :]
            pull += self.doubt * (1 / self.n_classes - probability)
        return pull

    def along(self, y: Floats, output: Floats, direction: Floats) -> tuple[Floats, Floats | None]:
        """First derivative per row along a direction, (n,); no second one, which can be negative here."""
        return -np.einsum("ij,ij->i", self.pseudo_residual(y, output), direction), None

    def inverse_link(self, output: Floats) -> Floats:
        """Probabilities (n, C) of the *true* classes."""
        return self.plain.inverse_link(output)

    def check(self, y: Floats) -> None:
        """Raise InvalidLabelsError where these are no class codes of this loss, or all the same."""
        self.plain.check(y)

    @property
    def doubt(self) -> float:
        """The share of a row's loss that says nothing: that of all classes alike."""
        return DOUBT * (1 - self.keep)

    def _with_shrinkage(self, plain: Floats) -> tuple[Floats, Floats]:
        """Corrected loss from the plain one, and the probability that the noisy
        label is no accident; all (n,).

        In logs: a probability of the class that underflows is no trouble.
        """
        signal = np.log(self.signal) - plain
        corrected = -np.logaddexp(np.log(self.accident), signal) if self.accident > 0 else -signal
        return corrected, np.exp(signal + corrected)
