"""The private track: once learning is over, the label holder refits what counts, with
her true labels. It never leaves.

The fitted values of all rounds were learned from noisy labels, but she holds them for every row, and gets the
same again for prediction. A regularised linear model on all of them, fitted to the true labels, repairs much
of what the noise cost. A cross-validation on her own rows decides how strongly it is held back, and how far
it is followed from the public output. What remains is plain numbers: an intercept, and for each fitted value
how much it adds to each output.

Where the task was cross-validated, ``stack.py`` does better: it has values that have not seen a row's noisy
label, and a model of her own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold

from gal.core.closings import ClosingModel
from gal.core.line_search import ExactSearch, Line, mean_loss
from gal.core.losses import AbsoluteError, BinaryLogLoss, Huber, Loss, MultinomialLogLoss, SquaredError
from gal.core.state import Ensemble, ensemble_of, plain
from gal.core.task import Task
from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

NUMBERS = (SquaredError, AbsoluteError, Huber)
"""Losses of numbers without a link: least squares fits them, and the loss itself judges."""

CLASSES = (BinaryLogLoss, MultinomialLogLoss)

PENALTIES = tuple(10.0**power for power in range(2, -5, -1))
"""From the strongest: of squared coefficients, where the fitted values of a
row have about length 1 together.
"""

FOLDS = 5

SURE = 2.0
"""Standard errors by which a refit has to beat her own model: penalty, share and what it is fitted to were
chosen on the same rows.
"""

FITTED_ENTRIES = 2**24
"""Numbers in the table that is fitted, 128 MiB: more rows are drawn from, all of them would change little."""

ENOUGH = 500
"""Rows that were never sent on which alone a refit is done. With fewer, half a point of accuracy was lost on
two small tables, and hardly anything gained where somebody remembers.
"""

JUDGED_ENTRIES = 2**21
"""Numbers in the table with which penalty and share are chosen."""

NEGLIGIBLE = 1e-10
"""Directions in which the squares of fitted values add up to less than this,
beside the widest, say nothing.
"""

MOST_AXES = 500
"""Of more directions the widest are taken: what many rounds for many classes say is alike."""


@dataclass(frozen=True, eq=False)
class OwnPart:
    """The label holder's own model as it counts in what predicts."""

    ensemble: Ensemble
    matrix: Floats
    """What each of its K outputs adds to each of the K outputs, (K, K)."""
    alone_loss: float
    """Mean loss of her own model on her rows, each by models that did not see it."""
    stacked_loss: float
    """The same of the refit of both; what decides."""
    used: bool
    """Whether the refit predicts; otherwise her own model alone does."""

    @property
    def predicting_loss(self) -> float:
        """Of what predicts."""
        return self.stacked_loss if self.used else self.alone_loss

    @property
    def words(self) -> str:
        """In plain words."""
        losses = f"loss {self.stacked_loss:.4g} with them, {self.alone_loss:.4g} with your own model alone"
        if self.used:
            return f"The answers of this task help: {losses}, on rows that the models did not see."
        return (
            f"The answers of this task do not help beyond chance ({losses}, on rows that the models did not "
            "see): your own model predicts alone. Nobody else can see that."
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return vars(self) | {"ensemble": plain(self.ensemble), "matrix": self.matrix.tolist()}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> OwnPart:
        """From what ``to_json`` gave."""
        read = {"ensemble": ensemble_of(facts["ensemble"]), "matrix": np.array(facts["matrix"])}
        return cls(**{**facts, **read})


@dataclass(frozen=True, eq=False)
class PrivateRefit:
    """Coefficients of the stored fitted values, from the true labels: plain numbers."""

    intercept: tuple[float, ...]
    """(K,)"""
    coefficients: tuple[Mapping[str, Floats], ...]
    """By round and organization: what each of its K values adds to each of the K outputs, (K, K)."""
    own: OwnPart | None = None
    """The label holder's own model in it; None: there is none."""

    @at_most(1)
    def output(self, answers: Sequence[Mapping[str, Floats32]], own_output: Floats | None = None) -> Floats:
        """The private output (n, K) in link space; ``answers`` by round and organization, each (n, K).

        ``own_output`` (n, K) is what her own model says, where there is one.
        """
        parts = [
            np.asarray(values[name], dtype=np.float64) @ matrix
            for counts, values in zip(self.coefficients, answers, strict=True)
            for name, matrix in counts.items()
        ]
        if self.own is not None and own_output is not None:
            parts.append(own_output @ self.own.matrix)
        return np.asarray(sum(parts) + np.asarray(self.intercept))

    @property
    def own_closing(self) -> ClosingModel | None:
        """The closing model of her own model: no plain numbers, so it is kept beside them."""
        return None if self.own is None else self.own.ensemble.closing

    def with_closing(self, closing: ClosingModel | None) -> PrivateRefit:
        """The same with the closing model that was kept."""
        if self.own is None or closing is None:
            return self
        own = replace(self.own, ensemble=replace(self.own.ensemble, closing=closing))
        return replace(self, own=own)

    @property
    def words(self) -> str:
        """What predicts, and by how much it is better."""
        return "" if self.own is None else self.own.words

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        rounds = [{name: matrix.tolist() for name, matrix in counts.items()} for counts in self.coefficients]
        own = None if self.own is None else self.own.to_json()
        return {"intercept": list(self.intercept), "coefficients": rounds, "own": own}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> PrivateRefit:
        """From what ``to_json`` gave."""
        rounds = [
            {name: np.array(matrix) for name, matrix in counts.items()} for counts in facts["coefficients"]
        ]
        own = facts.get("own")
        return cls(tuple(facts["intercept"]), tuple(rounds), None if own is None else OwnPart.from_json(own))


@dataclass(frozen=True)
class Linear:
    """Outputs ``table @ weights + intercept``."""

    weights: Floats
    """(columns, K)"""
    intercept: Floats
    """(K,)"""

    def output(self, table: Floats) -> Floats:
        return table @ self.weights + self.intercept

    def towards(self, other: Linear, share: float) -> Linear:
        """This share of the way from here to the other."""
        return Linear(
            (1 - share) * self.weights + share * other.weights,
            (1 - share) * self.intercept + share * other.intercept,
        )


@at_most(1)
def refit_privately(
    y: Floats,
    loss: Loss,
    fitted: Sequence[Mapping[str, Floats32]],
    coefficients: Sequence[Mapping[str, float]],
    first: Floats,
    *,
    among: Rows | None = None,
    seed: int = 0,
) -> PrivateRefit | None:
    """Fit the coefficients of all fitted values to the true labels ``y``: class
    codes (n, 1), or numbers (n, K); on the rows ``among`` only, where they are given (`never_sent`).

    ``loss``: the plain loss of ``y``, one of ``NUMBERS`` or ``CLASSES``. ``fitted`` and ``coefficients``
    (rate times weight in the public model) by round and organization; only organizations with a coefficient
    in some round are asked for predictions, so only they count. ``first``: F^0 (1, K). None where the public
    model is as good, or nothing can be learned: no rounds, another loss, fewer than ten rows, not two
    classes with two rows each, values that are all alike.
    """
    asked = {name for counts in coefficients for name in counts}
    keys = [(t, name) for t, values in enumerate(fitted) for name in sorted(values) if name in asked]
    if not keys or not isinstance(loss, NUMBERS + CLASSES):
        return None
    rng = np.random.default_rng(seed)
    n_outputs = loss.n_outputs
    every = np.arange(len(y)) if among is None else among
    rows = some_rows(every, FITTED_ENTRIES // (len(keys) * n_outputs), rng)
    table = np.hstack([fitted[t][name][rows] for t, name in keys]).astype(np.float64)
    counts = [coefficients[t].get(name, 0.0) for t, name in keys]
    public = Linear(np.vstack([count * np.eye(n_outputs) for count in counts]), first[0])
    base = public.output(table)
    middle, scale = middle_and_scale(table)
    table -= middle
    table /= scale
    axes = directions(table)
    found = judged_fit(y[rows], loss, table @ axes, base, rng) if axes.size else None
    if found is None or found.share == 0:
        return None
    weights = axes @ found.model.weights / scale[:, None]
    own = Linear(weights, found.model.intercept - middle @ weights)
    model = public.towards(own, found.share)
    by_round: list[dict[str, Floats]] = [{} for _ in fitted]
    for index, (t, name) in enumerate(keys):
        by_round[t][name] = model.weights[index * n_outputs : (index + 1) * n_outputs].copy()
    return PrivateRefit(tuple(map(float, model.intercept)), tuple(by_round))


def never_sent(task: Task) -> Rows | None:
    """Rows of which no residual left, where labels have noise and there are enough of them.

    Of the others an organization may remember what it was sent: noise or not, that fits the true labels of
    these rows, and says nothing of new ones. None: all rows have to do, since there are too few of these (or
    models that move, with which it was not tried).
    """
    rest = np.flatnonzero(~task.rows.is_fit)
    tried = task.release is None and not task.moving
    return rest if tried and len(rest) >= ENOUGH else None


def learnable(y: Floats, loss: Loss) -> bool:
    """Whether every part of a cross-validation leaves something to learn."""
    if len(y) < 2 * FOLDS:
        return False
    return isinstance(loss, NUMBERS) or int((np.bincount(y[:, 0].astype(np.intp)) > 1).sum()) > 1


def some_rows(rows: Rows, most: int, rng: np.random.Generator) -> Rows:
    """All rows, or so many of them drawn at random, in order."""
    if len(rows) <= most:
        return rows
    return np.sort(rng.choice(rows, max(most, 2 * FOLDS), replace=False))


def middle_and_scale(table: Floats) -> tuple[Floats, Floats]:
    """Means of the columns, and what divides them so that a row has about length 1.

    Halfway (the geometric mean of both scales) between columns as they are, whose sizes tell how much
    an organization found in a round, and columns of the same size: a little better than the latter
    with four kinds of local models.
    """
    middle, spread = table.mean(axis=0), table.std(axis=0)
    typical = float(np.sqrt(np.mean(spread**2))) or 1.0
    scale = np.sqrt(spread * typical)
    scale[spread <= 1e-9 * typical] = np.inf  # constant: whatever it says, the intercept says it as well
    rough = float(np.sqrt(np.mean(np.square(spread / scale)))) or 1.0
    return middle, scale * rough * np.sqrt(len(spread))


def directions(table: Floats) -> Floats:
    """Orthogonal directions (columns, rank) that hold all of the table: often far fewer than its columns.

    With a penalty on squares, fitting in these is the same as fitting the columns themselves.
    """
    n, columns = table.shape
    squares, vectors = np.linalg.eigh(table.T @ table if columns <= n else table @ table.T)
    squares, vectors = squares[-MOST_AXES:], vectors[:, -MOST_AXES:]
    kept = squares > NEGLIGIBLE * squares[-1]
    if columns <= n:
        return np.asarray(vectors[:, kept])
    return np.asarray(table.T @ vectors[:, kept] / np.sqrt(squares[kept]))


@dataclass(frozen=True)
class Judged:
    """A fit, how far to follow it from the base, and what that is worth."""

    model: Linear
    share: float
    base_loss: float
    loss: float
    helps: bool
    """Whether it is better than the base by more than chance explains."""

    @property
    def gain(self) -> float:
        """By how much it lowers the loss of the base."""
        return self.base_loss - self.loss


def judged_fit(
    y: Floats,
    loss: Loss,
    table: Floats,
    base: Floats,
    rng: np.random.Generator,
    parts: Rows | None = None,
) -> Judged | None:
    """The refit with the best penalty, and how far to follow it from the base
    output; both cross-validated, in these ``parts`` (n,) where they are given.
    """
    rows = some_rows(np.arange(len(y)), JUDGED_ENTRIES // max(table.shape[1], 1), rng)
    if not learnable(y[rows], loss):
        return None
    folds = _folds(y[rows], loss, rng) if parts is None else _by_parts(parts[rows])
    here, there, what = y[rows], table[rows], base[rows]
    penalty, judgement = best_penalty(
        here, loss, what, lambda penalty: _left_out(here, loss, there, penalty, folds)
    )
    return Judged(fit_linear(y, loss, table, penalty), *judgement)


def best_penalty(
    y: Floats, loss: Loss, base: Floats, left_out: Callable[[float], Floats]
) -> tuple[float, tuple[float, float, float, bool]]:
    """The penalty whose outputs (n, K) by models that did not see a row are best; then share, loss of the
    base, loss so far from it, and whether that is better beyond chance.
    """
    best, best_loss, honest = 0.0, np.inf, base
    for penalty in PENALTIES:
        outputs = left_out(penalty)
        value = mean_loss(loss, y, outputs)
        if not value < best_loss:
            break  # weaker ones only overfit more, and take longest
        best, best_loss, honest = penalty, value, outputs
    line = Line(loss, y, base, honest - base)
    share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    gains = loss.value(y, base) - loss.value(y, base + share * (honest - base))
    by_chance = float(gains.std()) / np.sqrt(len(gains))
    helps = bool(share > 0 and gains.mean() > SURE * by_chance)
    return best, (share, line.value(0.0), line.value(share), helps)


def _left_out(
    y: Floats, loss: Loss, table: Floats, penalty: float, folds: Sequence[tuple[Rows, Rows]]
) -> Floats:
    """The output of each row by a model that did not see it, (n, K)."""
    outputs = np.empty((len(y), loss.n_outputs))
    for rest, left_out in folds:
        model = fit_linear(y[rest], loss, table[rest], penalty, max_iter=100)
        outputs[left_out] = model.output(table[left_out])
    return outputs


def _folds(y: Floats, loss: Loss, rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
    seed = int(rng.integers(2**31))
    few = isinstance(loss, CLASSES) and int(np.bincount(y[:, 0].astype(np.intp)).max()) < FOLDS
    if isinstance(loss, NUMBERS) or few:
        return list(KFold(FOLDS, shuffle=True, random_state=seed).split(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class with fewer rows than folds
        return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, y[:, 0]))


def _by_parts(parts: Rows) -> list[tuple[Rows, Rows]]:
    return [(np.flatnonzero(parts != one), np.flatnonzero(parts == one)) for one in np.unique(parts)]


def fit_linear(y: Floats, loss: Loss, table: Floats, penalty: float, max_iter: int = 300) -> Linear:
    """The linear model with this penalty."""
    if isinstance(loss, NUMBERS):
        ridge = Ridge(penalty).fit(table, y)
        return Linear(ridge.coef_.reshape(y.shape[1], -1).T, np.asarray(ridge.intercept_).reshape(-1))
    codes = y[:, 0].astype(np.intp)
    weights, intercept, classes = _fit_classes(codes, table, penalty, max_iter)
    if loss.n_outputs == 1:
        return Linear(weights, intercept)
    if len(classes) == 2:
        weights, intercept = np.hstack([-weights / 2, weights / 2]), np.array([-1, 1]) * intercept / 2
    elif len(classes) == 1:
        intercept = np.zeros(1)
    # A class without a row gets a constant that stays below half a row's share.
    every = Linear(np.zeros((len(weights), loss.n_outputs)), np.full(loss.n_outputs, -np.log(2 * len(y))))
    every.weights[:, classes], every.intercept[classes] = weights, intercept
    return every


def _fit_classes(
    codes: Rows, table: Floats, penalty: float, max_iter: int
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Weights and intercepts of a logistic regression, and its classes; for two classes, of the second."""
    classes = np.unique(codes)
    if len(classes) == 1:  # all rows of the others are left out: less than half a row's share, as below
        constant = np.log(2 * len(codes)) * (1.0 if classes[0] else -1.0)
        return np.zeros((table.shape[1], 1)), np.array([constant]), classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly there is near enough
        model = LogisticRegression(C=1 / penalty, max_iter=max_iter).fit(table, codes)
    return model.coef_.T, np.asarray(model.intercept_), classes
