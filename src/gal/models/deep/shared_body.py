"""Deep Model Sharing: one body for all rounds, one output layer per round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gal.errors import InvalidInputError
from gal.models.deep.networks import Inputs, WithHead, count_features, make_body
from gal.models.deep.torch_model import DeepModel, Floats, row_weight
from gal.models.deep.training import seeded

LATER = 0.5
"""Share of a round's residual in the loss, relative to the round before: later residuals are noisier."""
GENTLER = 0.03
"""The body's learning rate after the first round, relative to that of the output layers."""
PLACES = 10
"""Output layers made at once, so that one trainer serves that many rounds; unused ones count nothing."""


class SharedBodyModel(DeepModel):
    """A local model whose rounds share one feature extractor, trained on the residuals of all rounds so far.

    It takes the memory of one network and an output layer per round. Training the body changes the fitted
    values of earlier rounds: the label holder re-evaluates all rounds after the last one, and refits weights
    and rates. ``network``: a name, or a function that gets ``Inputs`` and returns a body, an ``nn.Module``
    with features (n, features). Other parameters as in :class:`TorchModel`.
    """

    stateful = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a fresh body with one output layer on ``y`` (n,) or (n, K)."""
        self._single_output = np.ndim(y) == 1
        return self._learn(X, y, 1, None, sample_weight)

    def predict(self, X: Any) -> Floats:
        """The fitted values of the last round: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self, "module_")
        values = self.predict_round(X, self.rounds_[-1])
        return values[:, 0] if self._single_output else values

    def fit_round(
        self, X: Any, residual: Any, *, round: int, previous: Self | None, sample_weight: Any = None
    ) -> Self:
        """Continue the body of ``previous`` with one more output layer; returns the model of all rounds."""
        self._single_output = False
        return self._learn(X, residual, round, previous, sample_weight)

    def predict_round(self, X: Any, round: int) -> Floats:
        """The values (n, K) of one round."""
        return np.asarray(self.predict_rounds(X, [round])[0])

    def predict_rounds(self, X: Any, rounds: Sequence[int]) -> Floats:
        """The values (len(rounds), n, K) of these rounds, from one pass of the body."""
        check_is_fitted(self, "module_")
        unknown = [one for one in rounds if one not in self.rounds_]
        if unknown:
            raise InvalidInputError(f"no output layer for round {unknown[0]}; there are {self.rounds_}")
        outputs = self._outputs(self.module_, X)
        values = outputs.reshape(len(outputs), -1, self.n_outputs_)
        places = [self.rounds_.index(one) for one in rounds]
        return np.ascontiguousarray(values[:, places].transpose(1, 0, 2))

    def _learn(self, X: Any, y: Any, round: int, previous: Self | None, sample_weight: Any) -> Self:
        view, seed = self.prepare(X), self._seed()
        target = self._target(y, view)
        past = self._past_of(previous, round)
        self.inputs_: Inputs = view.inputs
        self.n_outputs_ = int(target.shape[1])
        self.rounds_: tuple[int, ...] = (*past, round)
        # For the next round only; `release` drops it.
        self._past: dict[int, NDArray[np.float32]] | None = {**past, round: target.cpu().numpy()}
        with seeded(view.device, seed):
            start = self._module()
        if previous is not None:
            _carry_over(previous.module_, start, len(past) * self.n_outputs_)
        width = len(start.head.bias)
        targets = torch.zeros((len(view), width), device=view.device)
        for place, residual in enumerate(self._past.values()):
            stretch = slice(place * self.n_outputs_, (place + 1) * self.n_outputs_)
            targets[:, stretch] = torch.from_numpy(residual).to(view.device)
        order = torch.arange(width, device=view.device) // self.n_outputs_
        shares = (LATER**order) * (order <= len(past)) / self.n_outputs_
        slowness = GENTLER if past else 1.0
        weight = row_weight(sample_weight, view)
        self.module_ = self._trained(start, view, targets, weight, seed, shares, slowness)
        return self

    def _past_of(self, previous: Self | None, round: int) -> dict[int, NDArray[np.float32]]:
        """Residuals of earlier rounds; a round learned again after a restart replaces later ones."""
        if previous is None:
            return {}
        if previous._past is None:
            raise InvalidInputError(f"round {round} cannot follow: residuals of earlier rounds were released")
        return {one: residual for one, residual in previous._past.items() if one < round}

    def release(self) -> None:
        """Drop the residuals so far, which only further rounds need."""
        self._past = None

    def _module(self) -> nn.Module:
        body = make_body(self.network, self.inputs_)  # type: ignore[arg-type]
        places = PLACES * -(-len(self.rounds_) // PLACES)
        return WithHead(body, count_features(body, self.inputs_), self.n_outputs_ * places)


def _carry_over(old: nn.Module, new: nn.Module, known: int) -> None:
    """The body and the first ``known`` outputs; the new output layer starts from nothing."""
    with torch.no_grad():
        new.body.load_state_dict(old.body.state_dict())
        for part in ("weight", "bias"):
            values = getattr(new.head, part)
            values.zero_()
            values[:known] = getattr(old.head, part)[:known]
