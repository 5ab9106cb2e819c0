"""Late fusion: every organization learns the labels on its own columns; only outputs are combined.

The labels themselves go to every organization, once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gal.assembling import AssembledTask, Learned, group_of
from gal.estimators import _GAL, GALClassifier, GALRegressor
from gal.learner.drivers import drive_learning
from gal.models import PaperLinear
from gal_bench.baselines.ensembles import NAN, finished_ensemble
from gal_bench.baselines.late_paper import learn_layers


class _Late(_GAL):
    """Every F_m is learned by GAL with one organization, which takes all options. What it adds to F^0 counts
    fully in the sum F^0 + sum_m (F_m - F^0), the paper's, or 1/M in the mean, the authors' code. With
    ``preset="paper"`` and linear models they are the authors' layers, without F^0: see ``late_paper``.
    """

    _average = False

    def _learn(self, learning: AssembledTask, **observers: Any) -> Learned:  # noqa: ARG002
        task, members = learning.task, learning.members
        share = 1 / len(members) if self._average else 1.0
        others = len(members) - 1
        self.traffic_.trips += min(others, 1)
        self.traffic_.sent += others * task.y.astype(np.float32).nbytes
        paper = group_of("algorithm", self.algorithm).preset == "paper"
        if paper and all(isinstance(one.model, PaperLinear) for one in members.values()):
            ensemble = learn_layers(task, members, share)
            return Learned(ensemble, [NAN] * len(ensemble.rounds))
        single = {name: drive_learning(task.only(name), {name: members[name]}) for name in task.organizations}
        if any(one.outcome is not None and one.outcome.ended.on_request for one in single.values()):
            raise KeyboardInterrupt
        coefficients, means = [], []
        for index in range(max(one.n_rounds for one in single.values())):
            # Organizations that validated fewer rounds take no part in the later ones.
            counts = {
                name: share * one.coefficients[index][name]
                for name, one in single.items()
                if index < one.n_rounds and name in one.coefficients[index]
            }
            coefficients.append(counts)
            means.append({name: single[name].rounds[index].mean_fitted[name] for name in counts})
        losses = [NAN] * len(coefficients)
        return Learned(finished_ensemble(task, task.first_output, coefficients, means, losses), losses)


class LateSumRegressor(_Late, GALRegressor):
    """Summed late fusion for regression."""


class LateSumClassifier(_Late, GALClassifier):
    """Summed late fusion for classification."""


class LateAverageRegressor(_Late, GALRegressor):
    """Averaged late fusion for regression."""

    _average = True


class LateAverageClassifier(_Late, GALClassifier):
    """Averaged late fusion for classification."""

    _average = True
