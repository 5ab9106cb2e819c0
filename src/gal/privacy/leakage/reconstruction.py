"""Attacks on columns: by the label holder from fitted values, by an organization from residuals.

Residuals change between rounds by fitted values, and labels with their noise cancel. An attacker that knows
the columns of some rows learns from these to read the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gal.core.losses import Loss
from gal.models.tabular import TableEncoder
from gal.models.tabular.columns import as_table

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RESAMPLES = 300
FOLDS = 5
PENALTIES = np.logspace(-8, 4, 25)
KERNEL_PENALTY = 0.1
ROUNDING = (1e-6, 1e-4, 1e-2)
"""What is smaller beside a number says nothing of it: of one of 32 bits, and of outputs found from it."""
FEWEST = 4
"""Known rows that teach an attack."""
SMALLEST = 1e-9
"""Probabilities are not taken to be smaller."""


@dataclass(frozen=True)
class Explained:
    """R2 on rows whose columns are not known, with a bootstrap interval of 95 %; 1
    is all of a column, 0 nothing.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:z.2f} ({self.low:z.2f} to {self.high:z.2f})"


@dataclass(frozen=True)
class Reconstruction:
    """One column of one organization, guessed by another."""

    organization: str
    column: str
    with_messages: Explained
    """From what was received about the row, and what the attacker has anyway."""
    without: Explained
    """From what the attacker has anyway, alone: its columns; the label holder's labels too."""
    by: str = "the label holder"
    """The guesser: the label holder from replies, an organization from residuals."""

    @property
    def revealed(self) -> float:
        """How much more of the column is explained with the messages."""
        return max(self.with_messages.value, 0.0) - max(self.without.value, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "organization": self.organization,
            "column": self.column,
            "by": self.by,
            "with": vars(self.with_messages),
            "without": vars(self.without),
        }


def columns_from_replies(
    replies: Mapping[str, Floats],
    views: Mapping[str, Any],
    own: Floats,
    known: Mask,
    rng: np.random.Generator,
    *,
    by: str = "the label holder",
    more: Mapping[str, Floats] | None = None,
) -> list[Reconstruction]:
    """How well ``by`` finds each column of ``views`` in its organization's fitted values (n, T, K).

    ``own`` (n, d): the attacker's columns and labels as numbers. ``known`` (n,): rows whose columns it knows.
    ``more``: further fitted values (n, any number, K), of cross-validation and after the rounds.
    """
    found = []
    for name, view in views.items():
        if name in replies:
            readings = [np.nan_to_num(replies[name].reshape(len(own), -1))]
            if more is not None and name in more:
                readings.append(np.hstack([*readings, np.nan_to_num(more[name].reshape(len(own), -1))]))
            everywhere = np.ones(len(own), dtype=np.bool_)
            found += _reconstructed([[(everywhere, readings)]], own, {name: view}, known, rng, by)
    return found


def columns_from_residuals(
    residual: Floats,
    own: Floats,
    views: Mapping[str, Any],
    known: Mask,
    rng: np.random.Generator,
    *,
    by: str,
    loss: Loss | None = None,
    signs: Floats | None = None,
) -> list[Reconstruction]:
    """How well the organization ``by`` finds each column of ``views``, the label holder's or a third party's,
    in the residuals (n, T, 1 + P, K) that it received: in the task itself and in each part of a
    cross-validation; of rows that a part leaves out there is none (NaN).

    ``own`` (n, d) are its own columns as numbers. ``known`` rows (n,) teach it: all columns of them are known
    to it. ``loss``: of classes the one whose residuals they are, from which outputs follow; None for numbers.
    ``signs`` (n, S): what it read off interaction probes, NaN where there was none.
    """
    everybody = np.hstack([own, *(numbers_of(view) for view in views.values())])

    def read(part: int, rows: Mask) -> list[Floats]:
        return _messages(np.nan_to_num(residual[rows, :, part]), everybody[rows], known[rows], loss)

    def is_learnable(rows: Mask) -> bool:
        return int(known[rows].sum()) >= FEWEST and not known[rows].all()

    everywhere = np.ones(len(own), dtype=np.bool_)
    messages, parts = read(0, everywhere), list[Reading]()
    for part in range(1, residual.shape[2]):
        rows: Mask = np.asarray(~np.isnan(residual[:, :, part]).any(axis=(1, 2)))
        if is_learnable(rows):
            also = [np.hstack([one[rows], two]) for one, two in zip(messages, read(part, rows), strict=True)]
            parts.append((rows, also))
    ways: list[list[Reading]] = [[(everywhere, messages)], parts]
    if signs is not None:
        rows = np.asarray(~np.isnan(signs).any(axis=1))
        ways.append([(rows, [signs[rows]])] if is_learnable(rows) else [])
    return _reconstructed([way for way in ways if way], own, views, known, rng, by)


def _messages(sent: Floats, everybody: Floats, known: Mask, loss: Loss | None) -> list[Floats]:
    """Residuals (n, T, K) of one learning in all ways in which they are read, each (n, ...)."""
    messages = [sent.reshape(len(sent), -1)]
    if loss is not None:
        rounds = range(1, sent.shape[1])  # F^0, behind the first, says nothing of a row
        if rounds:
            behind = _looked_up(loss) if loss.n_outputs == 1 else _log_odds
            messages.append(np.hstack([_output_behind(sent[:, t], everybody, known, behind) for t in rounds]))
        # Of noisy labels too, the class that the first residual shows says how to read the others, which are
        # small where the model agrees and where it firmly does not.
        first = np.sign(sent[:, 0])
        apart = [np.where(first[:, None] == sign, sent, 0.0) for sign in (-1.0, 1.0)]
        messages.append(np.concatenate(apart, axis=1).reshape(len(sent), -1))
    return messages


Behind = Callable[[Floats], Floats]
"""Outputs behind residuals (n, K), of which the largest entry is this share of the largest that there is."""


def _log_odds(residual: Floats) -> Floats:
    """Of the log loss: a positive entry is the class, and one minus its residual the probability."""
    logs = np.log(np.clip((residual > 0) - residual, SMALLEST, 1.0))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))[:, 1:]


def _looked_up(loss: Any) -> Behind:
    """Of a loss of two classes with one output: looked up in what the loss says of many outputs.

    A residual of noisy labels is small for a model that agrees with the noisy label, and for one that firmly
    does not. The first is taken: most rows of a model that has learned from such labels are so.
    """
    outputs = np.linspace(-15.0, 15.0, 60_001)[:, None]
    tables = []
    for label, sign in ((1.0, 1.0), (0.0, -1.0)):
        sizes = sign * loss.pseudo_residual(np.full_like(outputs, label), outputs)[:, 0]
        place = int(sizes.argmax())
        agreeing = slice(place, None) if sign > 0 else slice(place, None, -1)
        # For `interp` sizes have to rise: from the firmest agreement to the largest residual.
        tables.append((sizes[agreeing][::-1], outputs[agreeing, 0][::-1], sizes[place]))

    def output(residual: Floats) -> Floats:
        found = np.empty(len(residual))
        for positive, (sizes, places, largest) in zip((True, False), tables, strict=True):
            rows = (residual[:, 0] > 0) == positive
            found[rows] = np.interp(np.abs(residual[rows, 0]) * largest, sizes, places)
        return found[:, None]

    return output


def _output_behind(residual: Floats, columns: Floats, known: Mask, behind: Behind) -> Floats:
    """F^{t-1} (n, K) behind a residual (n, K) of the log loss, of which only the scale is not known.

    Of all scales the right one makes the outputs of known rows follow their columns best.
    """
    largest = float(np.abs(residual).max()) or 1.0

    def output(share: float) -> Floats:
        return behind(residual * (share / largest))

    table = np.hstack([np.ones((int(known.sum()), 1)), columns[known]])

    def unexplained(share: float) -> float:
        wanted = output(share)[known]
        rest = wanted - table @ np.linalg.lstsq(table, wanted, rcond=None)[0]
        spread = np.square(wanted - wanted.mean(axis=0)).sum()
        return float(np.square(rest).sum() / spread) if spread > 0 else 1.0

    grid = 1 - np.logspace(-6, -0.01, 60)
    values = [unexplained(share) for share in grid]
    best = int(np.argmin(values))
    low, high = grid[min(best + 1, len(grid) - 1)], grid[max(best - 1, 0)]
    found = minimize_scalar(unexplained, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    return output(float(found.x) if found.fun < values[best] else float(grid[best]))


Reading = tuple[Mask, Sequence[Floats]]
"""Some rows, and the messages about these in all forms in which they are read, each (rows, any width)."""


def _reconstructed(
    ways: Sequence[Sequence[Reading]],
    own: Floats,
    views: Mapping[str, Any],
    known: Mask,
    rng: np.random.Generator,
    by: str,
) -> list[Reconstruction]:
    """Each column of ``views`` with and without the messages. Cross-validation on the known rows chooses in
    which of the ``ways`` each column is read; the first is one reading about all rows. Of several readings in
    a way the mean counts.
    """
    read = {name: columns_as_numbers(view) for name, view in views.items()}
    columns = np.hstack([values for values, _, _ in read.values()])
    guess, least = np.zeros(columns.shape), np.full(columns.shape[1], np.inf)
    for way in ways:
        total, count, errors = np.zeros(columns.shape), np.zeros((len(columns), 1)), list[Floats]()
        for rows, messages in way:
            tables = [np.hstack([own[rows], each]) for each in messages]
            made, wrong = _guessed(tables, columns[rows], known[rows])
            total[rows] += made
            count[rows] += 1
            errors.append(wrong)
        better = np.mean(errors, axis=0) < least
        guess = np.where(better & (count > 0), total / np.maximum(count, 1), guess)
        least = np.where(better, np.mean(errors, axis=0), least)
    guesses, start, found = (guess, _guessed([own], columns, known)[0]), 0, list[Reconstruction]()
    for name, (values, places, labels) in read.items():
        at = slice(start, start + values.shape[1])
        scores = [_explained(values, one[:, at], places, known, rng) for one in guesses]
        found += [
            Reconstruction(name, label, informed, without, by)
            for label, informed, without in zip(labels, *scores, strict=True)
        ]
        start = at.stop
    return found


def _explained(
    truth: Floats, guessed: Floats, places: Sequence[slice], known: Mask, rng: np.random.Generator
) -> list[Explained]:
    hidden = int((~known).sum())
    resamples, found = rng.integers(0, hidden, (RESAMPLES, hidden)), list[Explained]()
    for at in places:
        true = truth[~known][:, at]
        wrong = np.square(true - guessed[~known][:, at]).sum(axis=1)
        spread = np.square(true - true.mean(axis=0)).sum(axis=1)
        if not spread.sum() > 0:
            found.append(Explained(0.0, 0.0, 0.0))  # a constant column: there is nothing to reveal
            continue
        drawn = 1 - wrong[resamples].sum(axis=1) / np.maximum(spread[resamples].sum(axis=1), 1e-12)
        low, high = np.quantile(drawn, [0.025, 0.975])
        found.append(Explained(float(1 - wrong.sum() / spread.sum()), float(low), float(high)))
    return found


def numbers_of(table: Any) -> Floats:
    """A table of any columns as standardised numbers and one-hot categories, without missing values."""
    encoder = TableEncoder().fit(as_table(table))
    return encoder.wide(encoder.codes(as_table(table)))


def columns_as_numbers(view: Any) -> tuple[Floats, list[slice], list[str]]:
    """Columns as numbers (categories one-hot), where each of the view's columns is in
    them, and what they are called.
    """
    encoder = TableEncoder().fit(as_table(view))
    codes = encoder.codes(as_table(view))
    origins = encoder.origins_ or range(codes.shape[1])
    blocks, widths = [], [0] * np.shape(view)[1]
    for j, (origin, categories) in enumerate(zip(origins, encoder.categories_, strict=True)):
        column = codes[:, [j]]
        block = (column == np.arange(len(categories))).astype(np.float64)
        if not categories:
            known = column[~np.isnan(column)]
            mean, spread = (known.mean(), known.std() or 1.0) if len(known) else (0.0, 1.0)
            block = np.nan_to_num((column - mean) / spread)
        blocks.append(block)
        widths[origin] += block.shape[1]
    places = [slice(start, end) for start, end in pairwise([0, *accumulate(widths)])]
    names = [str(name) for name in getattr(view, "columns", range(len(places)))]
    return np.hstack(blocks), places, names


def _guessed(readings: Sequence[Floats], columns: Floats, known: Mask) -> tuple[Floats, Floats]:
    """All columns from some inputs, each by what is best where it is known: a straight
    or a kernel ridge, or its mean; and the mean squared error of that there.
    """
    target = columns[known]
    made = [np.tile(target.mean(axis=0), (len(columns), 1))]
    errors = [np.square(target - target.mean(axis=0)).sum(axis=0)]
    folds = list(KFold(min(FOLDS, len(target)), shuffle=True, random_state=0).split(target))
    tables = [inputs for inputs in readings if inputs.shape[1]]
    several = target.shape[1] > 1
    straight = make_pipeline(StandardScaler(), RidgeCV(PENALTIES, gcv_mode="svd", alpha_per_target=several))
    kernel = make_pipeline(StandardScaler(), KernelRidge(alpha=KERNEL_PENALTY, kernel="rbf"))
    news = [(straight, _innovations(inputs, least)) for inputs in tables for least in ROUNDING]
    tries = [(reader, inputs) for inputs in tables for reader in (straight, kernel)]
    for reader, table in [*((reader, new) for reader, new in news if new.shape[1]), *tries]:
        left_out = cross_val_predict(reader, table[known], target, cv=folds).reshape(target.shape)
        errors.append(np.square(left_out - target).sum(axis=0))
        made.append(reader.fit(table[known], target).predict(table).reshape(columns.shape))
    best = np.argmin(errors, axis=0)
    guessed = np.stack(made)[best, :, np.arange(columns.shape[1])].T
    width = np.ptp(target, axis=0)  # far outside of what is known a guess is a slip
    low, high = target.min(axis=0) - width / 2, target.max(axis=0) + width / 2
    return np.asarray(np.clip(guessed, low, high)), np.min(errors, axis=0) / len(target)


def _innovations(inputs: Floats, least: float) -> Floats:
    """Of each input what does not follow from those before it, all of the same size: what moved from round
    to round may be small beside what stayed. What is smaller than ``least`` beside it is left out.
    """
    centred, kept = inputs - inputs.mean(axis=0), np.empty((0, len(inputs)))
    for column in centred.T:
        rest = column
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            rest = rest - (kept @ rest) @ kept
        left = float(np.linalg.norm(rest))
        if left > least * float(np.linalg.norm(column)):
            kept = np.vstack([kept, rest / left])
    return np.asarray(kept.T * np.sqrt(len(inputs)))
