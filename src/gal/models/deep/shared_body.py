"""Deep Model Sharing: one body for all rounds, one output layer per round."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gal.core.residual_losses import local_loss as find_local_loss
from gal.errors import InvalidInputError
from gal.models.deep.networks import Inputs, WithHead, count_features, make_body
from gal.models.deep.torch_model import DeepModel, Floats, row_weight
from gal.models.deep.training import Trainer, residual_objective, seeded
from gal.models.deep.views import TensorView

LATER = 0.5
"""How much a round's residual counts beside that of the round before: what is left is ever more noise."""
GENTLER = 0.03
"""The body's learning rate after the first round, relative to that of the output
layers: it has found its place.
"""
PLACES = 10
"""Output layers that are made at once, so that one trainer serves so many
rounds; unused ones count nothing.
"""


class SharedBodyModel(DeepModel):
    """A local model whose rounds share one feature extractor, trained on the residuals of all rounds so far.

    It takes the memory of one network and an output layer per round. Because the body moves, so do the fitted
    values of earlier rounds: the label holder asks for all of them once more after the last round and finds
    weights and rates anew. ``network``: a name, or a function that gets ``Inputs`` and returns a body, an
    ``nn.Module`` with features (n, features). Other parameters as in :class:`TorchModel`.
    """

    moving = True

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
        """Train the body of ``previous`` on, with one output layer more; returns
        what serves all rounds so far.
        """
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
        # For the next round only: `release` drops it.
        self._past: dict[int, NDArray[np.float32]] | None = {**past, round: target.cpu().numpy()}
        with seeded(view.device, seed):
            start = self._module()
        if previous is not None:
            _carry_over(previous.module_, start, len(past) * self.n_outputs_)
        self.module_ = self._train(start, view, row_weight(sample_weight, view), seed)
        return self

    def _past_of(self, previous: Self | None, round: int) -> dict[int, NDArray[np.float32]]:
        """Residuals of earlier rounds; one that is learned anew, after a
        restart, replaces what came after it.
        """
        if previous is None:
            return {}
        if previous._past is None:
            raise InvalidInputError(f"round {round} cannot follow: residuals of earlier rounds were released")
        return {one: residual for one, residual in previous._past.items() if one < round}

    def _train(self, start: nn.Module, view: TensorView, weight: Tensor | None, seed: int) -> nn.Module:
        past = list((self._past or {}).values())
        width = len(start.head.bias)
        targets = torch.zeros((len(view), width), device=view.device)
        for place, residual in enumerate(past):
            stretch = slice(place * self.n_outputs_, (place + 1) * self.n_outputs_)
            targets[:, stretch] = torch.from_numpy(residual).to(view.device)
        key = (self._recipe(), width, weight is None)

        def make() -> tuple[Trainer, Tensor]:
            own, shares = copy.deepcopy(start), torch.zeros(width, device=view.device)
            objective = residual_objective(find_local_loss(self.local_loss), shares)
            trainer = Trainer(
                *(own, view, width, objective, self._training()),
                weighted=weight is not None,
                slow=own.body,
                chancy=callable(self.network),
            )
            return trainer, shares

        trainer, shares = view.lend(key, make)
        order = torch.arange(width, device=view.device) // self.n_outputs_
        shares.copy_((LATER**order) * (order < len(past)) / self.n_outputs_)
        trainer.slowness.fill_(1.0 if len(past) == 1 else GENTLER)
        trainer.fit(start.state_dict(), targets, weight, seed)
        start.load_state_dict(trainer.module.state_dict())
        view.hand_back(key, (trainer, shares))
        return start.eval()

    def release(self) -> None:
        """Drop what only further rounds would need: the residuals so far."""
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
