"""Columns: what the label holder can learn of them from answers, and an organization from residuals.

An answer is a function of the row's columns. A residual is one too: it has in it what all organizations said
in earlier rounds. Between two rounds it moves by what they said, and whatever stays the same in all rounds,
such as the label and noise that was put on it once, cancels. Whoever knows the columns of some rows learns
from these how to read the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.model_selection import KFold

from gal.core.losses import Loss
from gal.models.tabular import TableEncoder
from gal.models.tabular.frames import as_table
from gal.privacy.leakage.ridges import curved, left_out, straight
from gal.privacy.mechanisms.corrected_loss import CorrectedLogLoss

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RESAMPLES = 300
FOLDS = 5
ROUNDING = (1e-6, 1e-4, 1e-2)
"""What is smaller beside a number says nothing of it: of one of 32 bits, and of outputs found from it."""
FEWEST = 4
"""Known rows that teach an attack."""
_OfSomeRows = tuple[Mask, list[Floats]]
"""Which rows, and the messages about them in all ways in which they are read."""
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
    """Who guesses: the label holder from answers, an organization from residuals."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "organization": self.organization,
            "column": self.column,
            "by": self.by,
            "with": vars(self.with_messages),
            "without": vars(self.without),
        }


def columns_from_answers(
    answers: Mapping[str, Floats],
    views: Mapping[str, Any],
    own: Floats,
    known: Mask,
    rng: np.random.Generator,
    *,
    by: str = "the label holder",
    more: Sequence[Mapping[str, Floats]] = (),
) -> list[Reconstruction]:
    """How well the label holder, or who is called ``by`` here, finds each column of ``views`` in the
    ``answers`` (n, T, K) of who has it.

    ``own`` (n, d) is what she has anyway: her columns and labels as numbers. ``known`` rows (n,), whose
    columns she knows, teach it. ``more`` are answers beside these, (n, any number, K): in a cross-validation
    other models answered, with the same columns, so that few rounds tell what many would; and others after
    the rounds.
    """
    found = []
    for name, view in views.items():
        if name in answers:
            said = np.nan_to_num(answers[name].reshape(len(own), -1))
            there = [one[name] for one in more if name in one and one[name].shape[1]]
            further = [np.nan_to_num(one.reshape(len(own), -1)) for one in there]
            readings = [said, *(np.hstack([said, one]) for one in further)]
            found += _reconstructed(readings, own, {name: view}, known, rng, by)
    return found


def columns_from_residuals(
    residual: Floats,
    own: Floats,
    views: Mapping[str, Any],
    known: Mask,
    rng: np.random.Generator,
    *,
    by: str,
    classes: bool = False,
    loss: Loss | None = None,
    part_residual: Floats | None = None,
) -> list[Reconstruction]:
    """How well the organization ``by`` finds each column of ``views``, the label holder's or a third party's,
    in the residuals (n, T, K) that it received.

    ``own`` (n, d) are its own columns as numbers. ``known`` rows (n,) teach it: all columns of them are known
    to it. With ``classes`` the residuals are those of a log loss, from which outputs follow; ``loss`` is the
    one that was learned with, where it is another (that of noisy labels). ``part_residual`` (n, T, P, K) came
    in a cross-validation; of rows that a part leaves out there is none (NaN).
    """
    everybody = np.hstack([own, *(numbers_of(view) for view in views.values())])

    def read(sent: Floats, rows: Mask) -> list[Floats]:
        return _messages(np.nan_to_num(sent[rows]), everybody[rows], known[rows], loss, classes=classes)

    messages, parts = read(residual, np.ones(len(own), dtype=np.bool_)), list[_OfSomeRows]()
    for part in range(0 if part_residual is None else part_residual.shape[2]):
        assert part_residual is not None
        sent = part_residual[:, :, part]
        rows: Mask = np.asarray(~np.isnan(sent).any(axis=(1, 2)))
        if rows.any() and int(known[rows].sum()) >= FEWEST and not known[rows].all():
            also = [one[rows] for one in messages]
            both = [np.hstack(each) for each in zip(also, read(sent, rows), strict=True)]
            parts.append((rows, both))
    return _reconstructed(messages, own, views, known, rng, by, parts)


def _messages(
    sent: Floats, everybody: Floats, known: Mask, loss: Loss | None, *, classes: bool
) -> list[Floats]:
    """Residuals (n, T, K) of one learning in all ways in which they are read, each (n, ...)."""
    messages = [sent.reshape(len(sent), -1)]
    if classes:
        rounds = range(1, sent.shape[1])  # F^0, behind the first, says nothing of a row
        behind = [_plain_output, *([_noisy_output(loss)] if _is_noisy(loss) else [])]
        for output in behind if rounds else ():
            read = [_output_behind(sent[:, t], everybody, known, output) for t in rounds]
            messages.append(np.hstack(read))
        messages.append(_by_class(sent))
    return messages


def _by_class(sent: Floats) -> Floats:
    """Residuals (n, T, K) apart by the class that the first one shows: of noisy labels too, it says how to
    read the others, which are small where the model agrees and where it firmly does not.
    """
    first = np.sign(sent[:, 0])
    apart = np.concatenate([np.where(first[:, None] == sign, sent, 0.0) for sign in (-1.0, 1.0)], axis=1)
    return np.asarray(apart.reshape(len(sent), -1))


Behind = Callable[[Floats], Floats]
"""Outputs behind residuals (n, K), of which the largest entry is this share of the largest that there is."""


def _plain_output(residual: Floats) -> Floats:
    """Of the log loss: a positive entry is the class, and one minus its residual the probability."""
    entries = residual if residual.shape[1] > 1 else np.hstack([-residual, residual])
    logs = np.log(np.clip((entries > 0) - entries, SMALLEST, 1.0))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))[:, 1:]


def _is_noisy(loss: Loss | None) -> bool:
    return isinstance(loss, CorrectedLogLoss) and loss.n_outputs == 1


def _noisy_output(loss: Any) -> Behind:
    """Of the log loss of noisy labels with one output: looked up in what the loss says of many outputs.

    A residual is small for a model that agrees with the noisy label, and for one that firmly does not. The
    first is taken: most rows of a model that has learned from such labels are so.
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


def _reconstructed(
    messages: Sequence[Floats],
    own: Floats,
    views: Mapping[str, Any],
    known: Mask,
    rng: np.random.Generator,
    by: str,
    parts: Sequence[_OfSomeRows] = (),
) -> list[Reconstruction]:
    """Each column of ``views`` with and without the messages, which may be read in several ways. A straight
    and a curved ridge are tried; cross-validation on the known rows chooses for each column. ``parts`` are
    messages about some rows, which are read by themselves; where that is better, the mean of all counts.
    """
    read = {name: columns_as_numbers(view) for name, view in views.items()}
    columns = np.hstack([values for values, _, _ in read.values()])
    readings = [np.hstack([own, one]) for one in messages]
    with_messages, error = _guessed(readings, columns, known)
    if parts:
        from_parts, other = _guessed_apart(parts, own, columns, known)
        with_messages = np.where((other < error) & ~np.isnan(from_parts), from_parts, with_messages)
    made = [with_messages, _guessed([own], columns, known)[0]]
    hidden = int((~known).sum())
    resamples = rng.integers(0, hidden, (RESAMPLES, hidden))
    found, start = [], 0
    for name, (values, places, labels) in read.items():
        for column, place in zip(labels, places, strict=True):
            at = slice(start + place.start, start + place.stop)
            truth = columns[~known][:, at]
            scores = [_explained(truth, guessed[~known][:, at], resamples) for guessed in made]
            found.append(Reconstruction(name, column, scores[0], scores[1], by))
        start += values.shape[1]
    return found


def explained_columns(view: Any, guessed: Floats, known: Mask, rng: np.random.Generator) -> list[Explained]:
    """How much of each column of a view a guess has that is in the form of `columns_as_numbers`."""
    truth, places, _ = columns_as_numbers(view)
    hidden = int((~known).sum())
    resamples = rng.integers(0, hidden, (RESAMPLES, hidden))
    return [_explained(truth[~known][:, at], guessed[~known][:, at], resamples) for at in places]


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
        block = (column == np.arange(len(categories))).astype(np.float64) if categories else _filled(column)
        blocks.append(block)
        widths[origin] += block.shape[1]
    places = [slice(start, end) for start, end in pairwise([0, *accumulate(widths)])]
    names = [str(name) for name in getattr(view, "columns", range(len(places)))]
    return np.hstack(blocks), places, names


def _filled(column: Floats) -> Floats:
    known = ~np.isnan(column)
    mean = float(column[known].mean()) if known.any() else 0.0
    spread = float(column[known].std()) if known.any() else 0.0
    return np.where(known, (column - mean) / (spread or 1.0), 0.0)


def _guessed_apart(
    parts: Sequence[_OfSomeRows], own: Floats, columns: Floats, known: Mask
) -> tuple[Floats, Floats]:
    """What messages about some rows tell: the mean of all guesses of a row, NaN without any; and how far they
    are off.
    """
    total, count, errors = np.zeros(columns.shape), np.zeros((len(columns), 1)), list[Floats]()
    for rows, messages in parts:
        readings = [np.hstack([own[rows], one]) for one in messages]
        made, error = _guessed(readings, columns[rows], known[rows])
        total[rows] += made
        count[rows] += 1
        errors.append(error)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan), np.mean(errors, axis=0)


def _guessed(readings: Sequence[Floats], columns: Floats, known: Mask) -> tuple[Floats, Floats]:
    """All columns from some inputs, each by what is best where it is known: a straight
    or a curved ridge, or its mean; and the mean squared error of that there.
    """
    target = columns[known]
    made = [np.tile(target.mean(axis=0), (len(columns), 1))]
    errors = [np.square(target - target.mean(axis=0)).sum(axis=0)]
    folds = list(KFold(min(FOLDS, len(target)), shuffle=True, random_state=0).split(target))
    tables = [inputs for inputs in readings if inputs.shape[1]]
    tries = [(reader, inputs) for inputs in tables for reader in (straight, curved)]
    news = [(straight, _what_is_new(inputs, least)) for inputs in tables for least in ROUNDING]
    for reader, table in [*((reader, new) for reader, new in news if new.shape[1]), *tries]:
        errors.append(np.square(left_out(reader, table[known], target, folds) - target).sum(axis=0))
        made.append(reader(table[known], target, table))
    best = np.argmin(errors, axis=0)
    guessed = np.stack(made)[best, :, np.arange(columns.shape[1])].T
    width = np.ptp(target, axis=0)  # far outside of what is known a guess is a slip
    low, high = target.min(axis=0) - width / 2, target.max(axis=0) + width / 2
    return np.asarray(np.clip(guessed, low, high)), np.min(errors, axis=0) / len(target)


def _what_is_new(inputs: Floats, least: float) -> Floats:
    """Of each input what does not follow from those before it, all of the same size: what moved from round
    to round may be small beside what stayed. What is smaller than ``least`` beside it is left out.
    """
    centred = inputs - inputs.mean(axis=0)
    sizes = np.linalg.norm(centred, axis=0)
    kept, n_kept = np.empty((len(sizes), len(inputs))), 0
    for column, size in zip(centred.T, sizes, strict=True):
        rest, before = column, kept[:n_kept]
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            rest = rest - (before @ rest) @ before
        left = float(np.linalg.norm(rest))
        if left > least * size:
            kept[n_kept] = rest / left
            n_kept += 1
    return np.asarray(kept[:n_kept].T * np.sqrt(len(inputs)))


def _explained(truth: Floats, made: Floats, resamples: NDArray[np.integer[Any]]) -> Explained:
    wrong = np.square(truth - made).sum(axis=1)
    spread = np.square(truth - truth.mean(axis=0)).sum(axis=1)
    if not spread.sum() > 0:
        return Explained(0.0, 0.0, 0.0)  # a constant column: there is nothing to reveal
    drawn = 1 - wrong[resamples].sum(axis=1) / np.maximum(spread[resamples].sum(axis=1), 1e-12)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Explained(float(1 - wrong.sum() / spread.sum()), float(low), float(high))
