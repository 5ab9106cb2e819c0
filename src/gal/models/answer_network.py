"""A small network on what organizations answered: the part of the closing model that knows distances.

Trees cut along one column at a time; what classes look like in all answers together is often round. The
network sees the widest directions of all that each organization answered, the wider the more was found there.
It learns with noise on them: answers to rows that were fitted are closer to the labels than others will be.

NumPy alone: everything in it follows from the rows and the seed, and it is stored as plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Answered = Sequence[Mapping[str, Floats32]]
"""Answers (n, K) by round and organization."""

DIRECTIONS, LEAST_DIRECTIONS = 64, 2
"""Of all answers together, the widest; and so many of each organization, if there is room."""
NARROW = 1e-6
"""A direction with less than this share of the widest one's variance is rounding."""
LOUDEST = 10.0
"""How much louder than the median one an organization may be. The variance of what is answered says how much
was found, and also how somebody's model counts: its root is heard. Huge numbers are heard as smaller ones."""
FURTHER = 0.4
"""How wide answers are taken to be that were given beyond the rounds, beside the mean one of the rounds: how
large they are says nothing of what was found."""
FURTHEST = 5.0
"""Standard deviations of a direction at which it is cut: whatever somebody answers, the network gets numbers.
"""
FURTHEST_OF_BEFORE = 10.0
"""Where networks of before, whose directions have variance 1, are cut."""

BLOCK = 256
"""Rows that are multiplied at a time."""
MOST_HIDDEN = 2**13
"""Rows of a hidden layer: that of a million would be gigabytes."""

HIDDEN, HIDDEN_OF_TWO, HIDDEN_OF_NUMBERS = 512, 128, 64
"""How many hidden units there are: for several classes, for two, and for numbers."""
BATCH, RATE, NOISE = 256, 5e-3, 0.3
"""Rows in a batch; the rate, and the noise on what is seen, whose directions have variance 1 on average."""
DRAWN = 2**14
"""Rows of noise that are drawn; batches take theirs from there."""
VISITS, VISITS_OF_NUMBERS, MOST_VISITS = 60, 30, 2**20
"""How often each row is seen, also for numbers, and how many rows are in all: the work is bounded."""
WARMING = 50
"""Steps until the rate is reached; from there it falls to 0 along a cosine."""


@dataclass(frozen=True)
class Widest:
    """The widest directions of what one organization answered."""

    organization: str
    rounds: tuple[int, ...]
    mean: Floats
    along: Floats
    """Shape (columns, directions)."""
    furthest: Floats | None = None
    """Where each direction is cut; None in files of before."""

    @staticmethod
    def of(answers: Answered, organization: str, further: int = 0) -> tuple[Widest, Floats]:
        """All directions as they are in these rows, the widest first, and their variances; the last
        ``further`` answers are as wide as `FURTHER` says.
        """
        rounds = tuple(index for index, values in enumerate(answers) if organization in values)
        table = _side_by_side(answers, organization, rounds)
        mean = table.mean(axis=0)
        table -= mean
        unit = np.ones(table.shape[1])
        if further:
            unit = _even(answers, organization, rounds, table.std(axis=0), further)
            table *= unit
        variance, directions = np.linalg.eigh(table.T @ table / len(table))
        order = np.argsort(variance)[::-1]
        order = order[variance[order] > max(NARROW * float(variance.max()), np.finfo(np.float32).tiny)]
        return Widest(organization, rounds, mean, unit[:, None] * directions[:, order]), variance[order]

    def __call__(self, answers: Answered) -> Floats32:
        """Where rows lie along them, shape (n, directions)."""
        table = _side_by_side(answers, self.organization, self.rounds)
        table -= self.mean
        furthest = FURTHEST_OF_BEFORE if self.furthest is None else self.furthest
        return np.asarray(np.clip(_times(table, self.along), -furthest, furthest), dtype=np.float32)


def _even(
    answers: Answered, organization: str, rounds: tuple[int, ...], spread: Floats, further: int
) -> Floats:
    """What each column is multiplied by: 1 in the rounds; beyond them all columns become equally wide."""
    first = len(answers) - further
    beyond = np.concatenate(
        [np.full(answers[index][organization].shape[1], index >= first) for index in rounds]
    )
    widths = [values.std(axis=0, dtype=np.float64) for said in answers[:first] for values in said.values()]
    usual = float(np.sqrt(np.mean(np.square(np.concatenate(widths))))) if widths else 1.0
    unit = np.ones(len(spread))
    unit[beyond] = np.divide(
        FURTHER * usual, spread[beyond], out=np.zeros(int(beyond.sum())), where=spread[beyond] > 0
    )
    return unit


def _widest_of_all(answers: Answered, further: int) -> tuple[Widest, ...]:
    """The widest directions of all organizations together, with variance 1 on average."""
    names = sorted({name for values in answers for name in values})
    found = [Widest.of(answers, name, further) for name in names]
    found = [(one, variance) for one, variance in found if len(variance)]
    if not found:
        return ()
    sizes = np.array([variance.sum() for _, variance in found])
    usual = float(np.sort(sizes)[(len(sizes) - 1) // 2])
    heard = np.minimum(np.sqrt(usual / sizes), LOUDEST * usual / sizes)
    least = max(1, min(LEAST_DIRECTIONS, DIRECTIONS // len(found)))
    ranks = sorted(
        (place >= least, -width, index, place)
        for index, (_, variance) in enumerate(found)
        for place, width in enumerate(variance * heard[index])
    )
    kept = [0] * len(found)
    for _, _, index, _ in ranks[: max(DIRECTIONS, len(found))]:
        kept[index] += 1
    total = sum(float(heard[i] * variance[: kept[i]].sum()) for i, (_, variance) in enumerate(found))
    unit = np.sqrt(heard * sum(kept) / total)
    return tuple(
        replace(one, along=one.along[:, :many] * by, furthest=FURTHEST * by * np.sqrt(variance[:many]))
        for (one, variance), many, by in zip(found, kept, unit, strict=True)
    )


def _times(table: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """``table @ matrix``, always as many rows at a time: a row has the same bits alone and among others."""
    found = np.empty((len(table), matrix.shape[1]), dtype=table.dtype)
    for start in range(0, len(table), BLOCK):
        block = table[start : start + BLOCK]
        filled = np.pad(block, ((0, BLOCK - len(block)), (0, 0)))
        found[start : start + BLOCK] = (filled @ matrix)[: len(block)]
    return found


def _side_by_side(answers: Answered, organization: str, rounds: tuple[int, ...]) -> Floats:
    return np.concatenate([answers[index][organization] for index in rounds], axis=1).astype(np.float64)


@dataclass(frozen=True)
class AnswerNetwork:
    """One hidden layer, fitted; it tells classes in link space, or numbers."""

    inputs: tuple[Widest, ...]
    weights: tuple[Floats32, Floats32]
    """Shapes (directions, hidden) and (hidden, outputs)."""
    constants: tuple[Floats32, Floats32]
    numbers: tuple[Floats, Floats] | None = None
    """What outputs are multiplied by, and what is added, where they are numbers; None: they are classes."""

    def output(self, answers: Answered) -> Floats:
        """Log-odds of the classes around their mean, or numbers; shape (n, K)."""
        table = np.concatenate([one(answers) for one in self.inputs], axis=1)
        output = np.empty((len(table), len(self.constants[1])))
        for start in range(0, len(table), MOST_HIDDEN):
            block = slice(start, start + MOST_HIDDEN)
            hidden = np.maximum(_times(table[block], self.weights[0]) + self.constants[0], 0)
            output[block] = _times(hidden, self.weights[1]) + self.constants[1]
        if self.numbers is not None:
            unit, mean = self.numbers
            return np.asarray(output * unit + mean)
        return np.asarray(output - output.mean(axis=1, keepdims=True))

    @staticmethod
    def fit(
        answers: Answered,
        y: NDArray[np.intp],
        n_classes: int,
        sample_weight: Floats | None,
        seed: int,
        further: int = 0,
    ) -> AnswerNetwork | None:
        """Learn the classes of these rows; None where nobody's answers differ from row to row. The last
        ``further`` answers were given beyond the rounds.
        """
        lesson = Lesson(y, n_classes, HIDDEN if n_classes > 2 else HIDDEN_OF_TWO, VISITS, _class_errors)
        return _learned(answers, lesson, sample_weight, seed, further)

    @staticmethod
    def fit_numbers(
        answers: Answered, y: Floats, sample_weight: Floats | None, seed: int
    ) -> AnswerNetwork | None:
        """Learn numbers (n, K) of these rows; None where nobody's answers differ from row to row."""
        if sample_weight is not None and not sample_weight.any():
            return None
        mean = np.average(y, axis=0, weights=sample_weight)
        spread = np.sqrt(np.average(np.square(y - mean), axis=0, weights=sample_weight))
        unit = np.where(spread > 0, spread, 1.0)
        target = ((y - mean) / unit).astype(np.float32)
        lesson = Lesson(target, y.shape[1], HIDDEN_OF_NUMBERS, VISITS_OF_NUMBERS, _number_errors)
        found = _learned(answers, lesson, sample_weight, seed, 0)
        return None if found is None else replace(found, numbers=(unit, mean))


@dataclass(frozen=True)
class Lesson:
    """What a network learns, and how long."""

    target: NDArray[Any]
    """By row: its class, or its numbers."""
    n_outputs: int
    hidden: int
    visits: int
    errors: Callable[[Floats32, NDArray[Any]], Floats32]
    """The slope of the loss along outputs (n, K), which it may change."""


def _learned(
    answers: Answered, lesson: Lesson, sample_weight: Floats | None, seed: int, further: int
) -> AnswerNetwork | None:
    if sample_weight is not None and not sample_weight.all():  # a row that counts nothing is not there
        rows = np.flatnonzero(sample_weight)
        answers = [{name: values[rows] for name, values in said.items()} for said in answers]
        lesson, sample_weight = replace(lesson, target=lesson.target[rows]), sample_weight[rows]
    inputs = _widest_of_all(answers, further) if len(lesson.target) else ()
    if not inputs:
        return None
    table = np.concatenate([one(answers) for one in inputs], axis=1)
    with at_most(1):  # for small batches cores wait for each other, the bits are the same
        into, out, first, last = _trained(table, lesson, sample_weight, np.random.default_rng(seed))
    return AnswerNetwork(inputs, (into, out), (first, last))


def _trained(
    table: Floats32, lesson: Lesson, sample_weight: Floats | None, rng: np.random.Generator
) -> list[Floats32]:
    """Weights into and out of the hidden layer, and its and the outputs' constants; by Adam."""
    width, hidden, n_outputs = table.shape[1], lesson.hidden, lesson.n_outputs
    into = rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(np.sqrt(2 / width))
    out = rng.standard_normal((hidden, n_outputs), dtype=np.float32) * np.float32(0.1 * np.sqrt(2 / hidden))
    learned = [into, out, np.zeros(hidden, np.float32), np.zeros(n_outputs, np.float32)]
    means, squares = ([np.zeros_like(one) for one in learned] for _ in range(2))
    counts = None if sample_weight is None else (sample_weight / sample_weight.mean()).astype(np.float32)
    batches = list(_batches(len(table), lesson.visits, rng))
    noise = np.float32(NOISE) * rng.standard_normal((DRAWN + BATCH, width), dtype=np.float32)
    for step, rows in enumerate(batches, start=1):
        begin = int(rng.integers(DRAWN))
        seen = table[rows] + noise[begin : begin + len(rows)]
        heard = None if counts is None else counts[rows]
        rate = RATE * min(1.0, step / WARMING) * 0.5 * (1 + np.cos(np.pi * step / len(batches)))
        for one, mean, square, slope in zip(
            learned, means, squares, _slopes(learned, seen, lesson, rows, heard), strict=True
        ):
            mean += np.float32(0.1) * (slope - mean)
            square += np.float32(0.001) * (slope * slope - square)
            size = np.sqrt(square / np.float32(1 - 0.999**step)) + np.float32(1e-8)
            one -= np.float32(rate / (1 - 0.9**step)) * mean / size
    return learned


def _batches(n_rows: int, each: int, rng: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    """All rows in another order each time, a batch after the other; at least one."""
    visits = max(min(each * n_rows, MOST_VISITS), BATCH)
    while visits > 0:
        order = rng.permutation(n_rows)
        for start in range(0, max(n_rows - BATCH + 1, 1), BATCH):
            if visits <= 0:
                return
            visits -= BATCH
            yield order[start : start + BATCH]


def _slopes(
    learned: Sequence[Floats32],
    seen: Floats32,
    lesson: Lesson,
    rows: NDArray[np.intp],
    counts: Floats32 | None,
) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """Of the loss of a batch, in the order of what is learned."""
    into, out, first, last = learned
    hidden = np.maximum(seen @ into + first, 0)
    error = lesson.errors(hidden @ out + last, lesson.target[rows])
    error *= np.float32(1 / len(rows)) if counts is None else counts[:, None] * np.float32(1 / len(rows))
    back = (error @ out.T) * (hidden > 0)
    return seen.T @ back, hidden.T @ error, back.sum(axis=0), error.sum(axis=0)


def _class_errors(output: Floats32, y: NDArray[Any]) -> Floats32:
    """Of the log loss."""
    output -= output.max(axis=1, keepdims=True)
    np.exp(output, out=output)
    output /= output.sum(axis=1, keepdims=True)
    output[np.arange(len(y)), y] -= 1
    return output


def _number_errors(output: Floats32, y: NDArray[Any]) -> Floats32:
    """Of half the squared error."""
    output -= y
    return output
