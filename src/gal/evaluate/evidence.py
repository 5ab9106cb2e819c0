"""What a simulation keeps for a report, part by part: learning curves, what moved, what was said of rows."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest, Request
from gal.engine.observing import LearningCurve, curve_of
from gal.evaluate.comparing.splitting import Splits
from gal.evaluate.metrics import Metric, log_loss
from gal.evaluate.quality import quality_of


@dataclass(frozen=True)
class Exchange:
    """What learning moves between the label holder and the others, measured once; bytes by organization."""

    rows: int
    """Rows learned from."""
    trips: int
    residuals: Mapping[str, int]
    """From the label holder to each of the others."""
    fitted: Mapping[str, int]
    """From each of the others to the label holder."""


@dataclass
class Evidence:
    """Collects while a simulation goes on."""

    metric: Metric
    classes: Sequence[Any] | None
    """Names of the classes, whose codes are learned; None for numbers."""
    holder: str
    curves: list[LearningCurve] = field(init=False, default_factory=list)
    exchange: Exchange | None = field(init=False, default=None)
    _said: dict[str, list[NDArray[Any]]] = field(init=False, default_factory=lambda: defaultdict(list))
    _trips: int = field(init=False, default=0)
    _residuals: dict[str, int] = field(init=False, default_factory=lambda: defaultdict(int))
    _fitted: dict[str, int] = field(init=False, default_factory=lambda: defaultdict(int))

    def message(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]) -> None:
        """A round trip of the first part: what goes to each of the others, and what comes back."""
        if self.exchange is not None:
            return
        asked = False
        for request, answers in zip(requests, replies, strict=True):
            for name in request.organizations:
                if name == self.holder:
                    continue
                asked = True
                if isinstance(request, FitRequest):
                    weight = 0 if request.sample_weight is None else request.sample_weight.nbytes
                    self._residuals[name] += request.residual.nbytes + weight
                self._fitted[name] += getattr(answers[name], "nbytes", 0)
        self._trips += asked

    def output(self, name: str, model: Any, X: Any) -> NDArray[Any]:
        """What the metric needs of a model's predictions of these rows; what a report needs is kept."""
        if not self.metric.classes:
            output = self.metric.output(model, X)
            self._said[name].append(output)
            return output
        assert self.classes is not None
        known = np.asarray(model.predict_proba(X))
        whole = np.zeros((len(known), len(self.classes)))
        whole[:, np.asarray(model.classes_, dtype=int)] = known
        self._said[name].append(whole)
        return self.metric.from_said(whole)

    def learned(self, assisted: Any, rows: int) -> None:
        """The end of a part."""
        self.curves.append(curve_of(assisted.ensemble_))
        if self.exchange is None:
            self.exchange = Exchange(rows, self._trips, dict(self._residuals), dict(self._fitted))

    def facts(self, truth: NDArray[Any], splits: Splits) -> dict[str, Any]:
        """As a ``Simulation`` has them: log losses of all repeats, curves and quality of the first."""
        said = {name: splits.gathered(parts) for name, parts in self._said.items()}
        return {
            "learning": self.curves[: len(splits.repeats[0])],
            "log_losses": None
            if self.classes is None
            else {
                name: float(np.mean([log_loss(truth, one) for one in repeats]))
                for name, repeats in said.items()
            },
            "quality": quality_of(
                truth, {name: said[name][0] for name in ("alone", "assisted", "pooled")}, self.classes
            ),
            "exchange": self.exchange,
            "software": software(),
        }


def software() -> dict[str, str]:
    """What computes, with versions."""
    from gal import __version__

    found = {"gal-learn": __version__, "Python": platform.python_version()}
    for package in ("numpy", "scipy", "scikit-learn", "pandas"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


__all__ = ["Evidence", "Exchange", "software"]
