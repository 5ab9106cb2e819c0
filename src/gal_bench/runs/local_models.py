"""The local models of the tables by name, as the paper preset and as our defaults have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

from gal.models import LinearModel, PaperLinear, TabularModel

Maker = Callable[[bool, bool, int], Any]
"""Gets: paper preset or not, classes or numbers to predict, number of columns over all organizations."""


def _linear(paper: bool, classes: bool, columns: int, ours: Any = None) -> Any:
    if not paper:
        return Ridge() if ours is None else ours
    # Splits are z-scored already.
    return PaperLinear("l2" if classes else "l1", init_features=columns, standardize=False)


def _trees(paper: bool, classes: bool, columns: int) -> Any:  # noqa: ARG001
    """Rounds add trees up: 20 in each go further than 100, which fit the residual's noise."""
    return GradientBoostingRegressor() if paper else GradientBoostingRegressor(n_estimators=20)


MODELS: dict[str, Maker] = {
    "Linear": _linear,
    "GB": _trees,
    "SVM": lambda *_: SVR(),
    "Ridge": lambda *_: Ridge(),
    "Tabular": lambda *_: TabularModel(),
    "Exact linear": lambda paper, classes, columns: _linear(paper, classes, columns, LinearModel()),
}


def models_by_name(
    names: Sequence[str], organizations: Sequence[str], *, paper: bool, classes: bool, columns: int
) -> dict[str, Any]:
    """A local model for every organization."""
    return {
        name: MODELS[model](paper, classes, columns) for name, model in halves(names, organizations).items()
    }


def losses_of_halves(losses: Sequence[str], organizations: Sequence[str], *, classes: bool) -> dict[str, str]:
    """A local loss for every organization; of two, classes have them the other way round, as the authors do.

    >>> losses_of_halves(["l1", "l2"], ["a", "b"], classes=True)
    {'a': 'l2', 'b': 'l1'}
    """
    return halves(losses[::-1] if classes else losses, organizations)


def halves(names: Sequence[str], organizations: Sequence[str]) -> dict[str, str]:
    """Of two names the first half of the organizations has the one, the rest the other."""
    half = (len(organizations) + 1) // 2
    chosen = [names[0]] * half + [names[-1]] * (len(organizations) - half)
    return dict(zip(organizations, chosen, strict=True))
