"""Crossed residuals: what two organizations, or three, know only together.

F^T is a sum over organizations, so a residual may hang on columns of two of them without either seeing
any of it: E[r | x_m] is 0 for both. But where s is a sign that another organization's columns decide,
E[r s | x_m] is not. After the rounds the label holder therefore asks for fits of ``residual * sign``:

1. Everybody fits a few random targets, with no label in them. That gives functions of each one's columns,
   and their signs; the sum of what one said in the rounds is one more.
2. Everybody fits the residual crossed with signs of the others, out of fold.
3. Answers that tell something of what they were fitted to are crossed in turn, towards the others: each
   pass finds the pair of functions better, as powers of a matrix find its largest singular vectors.
4. Where no two hear anything, signs of two are multiplied for a third, and answers to that are crossed in
   turn: the same for three. Which signs to begin with, the label holder finds out at home, without asking:
   those whose product tells most of the residual beside what the third has said so far.

It ends where nothing is heard. What is left then are the answers to random targets: coarse functions of each
one's columns, for which nothing was told. All requests are fit requests of further rounds; the label holder's
own model (``gal.engine.interactions``) makes of the answers what validation rows believe.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice, product, zip_longest

import numpy as np
from numpy.typing import NDArray

from gal.core.guards.plausible import spread_of
from gal.core.interactions.crossed_answers import (
    SEEDS,
    Answered,
    Crossed,
    Crossings,
    LearnsCrossed,
    Sign,
    Vector,
)
from gal.core.replies import Reply, accept_fitted
from gal.core.requests import EndLearning, FitRequest
from gal.core.steps import BestRounds, at, residual_and_size
from gal.core.task import Task

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AskingCrossed = Generator[list[FitRequest], list[Mapping[str, Reply]], "Crossed | None"]
Factors = tuple[tuple[Sign, Floats32], ...]
"""Signs of others, one or two of them, and what they are of every row."""
Pass = Generator[list[FitRequest], list[Mapping[str, Reply]], None]

PASSES = (0.34, 0.26, 0.2, 0.2)
"""What share of the signs goes out in each pass."""

HEARD = 2.5
"""An answer tells something of its target where their correlation, out of
fold, is so many standard errors.
"""

HINTED = 1.0
"""After the first pass so many are enough to be followed once."""

LEAST = 0.003
"""What share of a crossed residual the best answer must explain after the second pass: where it is less, even
all of it would hardly change a prediction, and neither are more fits asked for nor a model learned.
"""

REMEMBERED = 3.0
"""Standard errors by which the correlation may be lower on rows whose residual was never sent: an honest
answer is as good there, since it is out of fold; one that gives back what it was sent is not.
"""

STARTS = 2
"""Products of two signs that an organization is sent first. More of them begin better, and cost as much as
they do where three know nothing together.
"""

NEIGHBOURS = 6
"""Of how many others products are looked through for an organization; each has others."""

LOOKED_THROUGH = 20_000
"""Rows, at most, on which they are."""

ALIKE = 0.9
"""Signs that agree or disagree on more of the rows than that are not both sent to one organization:
|mean of their product|.
"""


@dataclass
class _Heard:
    """What was asked and heard so far."""

    task: Task
    parts: Mapping[str, Floats]
    """By organization: what it said in the rounds that are used, added up."""
    answers: dict[Answered, Floats32] = field(default_factory=dict)
    vectors: list[Vector] = field(default_factory=list)
    signs: dict[str, list[tuple[Sign, Floats32]]] = field(default_factory=dict)
    """By organization: signs that its answers give before any residual was crossed."""
    sent: dict[str, list[Floats32]] = field(default_factory=dict)
    """By organization: signs that residuals were crossed with for it."""
    betrayed: list[str] = field(default_factory=list)
    """Whose answers to random targets tell of labels."""

    def sign(self, organization: str, round: int | None) -> tuple[Sign, Floats32]:
        """The sign of an answer: on which side of its median along its widest direction a row lies."""
        fit = self.task.rows.fit
        values = self.parts[organization] if round is None else self.answers[round, organization]
        along = _widest(values[fit])
        line = values.astype(np.float64) @ along
        sign = Sign(organization, round, tuple(map(float, along)), float(np.median(line[fit])))
        return sign, sign.of(values)

    def score(self, values: Floats32, target: Floats32) -> float:
        """The correlation of an answer with its target on the fit rows, in standard errors; 0 where it is
        far lower on rows whose residual was never sent.
        """
        rows = self.task.rows
        found, n_rows = self._correlation(values, target, rows.fit)
        elsewhere, n_unseen = self._correlation(values, target, np.flatnonzero(~rows.is_fit))
        if n_unseen and elsewhere < found - REMEMBERED / np.sqrt(n_unseen):
            return 0.0
        return float(found * np.sqrt(n_rows))

    def _correlation(self, values: Floats32, target: Floats32, rows: NDArray[np.intp]) -> tuple[float, float]:
        """On these rows, and how many they count for."""
        weight = self.task.sample_weight
        heard, told = values[rows].astype(np.float64), target[rows].astype(np.float64)
        counts = np.ones(len(rows)) if weight is None else weight[rows] / weight[rows].mean()
        if len(rows):  # a constant answer tells of no row more than of another
            heard, told = (one - np.average(one, axis=0, weights=counts) for one in (heard, told))
        size = np.sqrt(_inner(heard, heard, counts) * _inner(told, told, counts))
        effective = float(counts.sum() ** 2 / (counts**2).sum()) if len(rows) else 0.0
        return (_inner(heard, told, counts) / size if size > 0 else 0.0), effective


def cross(task: Task, candidate: BestRounds) -> AskingCrossed:
    """Ask for crossed fits after the rounds; None where nobody answers, or where nothing is heard and the
    answers to random targets are not wanted.
    """
    plan = task.crossing
    members = tuple(name for name in task.organizations if name not in task.moving)
    if plan is None or len(members) < 2:
        return None
    output, parts = candidate.added_up(task)
    residual, _, _ = residual_and_size(task, output)
    heard = _Heard(task, parts)
    try:
        yield from _seed(heard, members, plan)
        first = last = task.rounds + SEEDS + 1
        for turn, width in enumerate(_widths(plan.pairs)):
            if turn > 1 and not _tells_enough(heard):
                break
            chosen = {name: list(islice(_offered(heard, name, turn), width)) for name in heard.signs}
            if not any(chosen.values()):
                break
            yield from _cross(heard, residual, chosen, first)
            first, last = first + width, first
        if len(heard.signs) > 2 and not (_tells_enough(heard) and _heard_since(heard, last)):
            yield from _three(heard, residual, first, plan.signs - (first - task.rounds - SEEDS - 1))
    except EndLearning:
        return None
    return _kept(heard)


def _widths(signs: int) -> list[int]:
    """How many signs go to each organization, pass by pass; they add up to all."""
    edges = np.ceil(np.cumsum((0.0, *PASSES)) * signs).astype(int)
    return [int(width) for width in np.diff(edges) if width > 0]


def _three(heard: _Heard, residual: Floats32, first: int, left: int) -> Pass:
    """Where no two hear anything together: signs of two are multiplied for a third, the most promising first;
    then answers to such products are multiplied in turn, as long as a pass hears something.
    """
    starts = min(STARTS, left)
    for turn, width in enumerate([starts, *[1] * (left - starts)] if left > 0 else []):
        offered = {
            name: _echoed_products(heard, name) if turn else _products(heard, residual, name)
            for name in heard.signs
        }
        chosen = {name: list(islice(_unlike(heard, name, found), width)) for name, found in offered.items()}
        if not any(chosen.values()):
            break
        yield from _cross(heard, residual, chosen, first)
        if not _heard_since(heard, first, _needed(len(heard.task.rows.fit), turn)):
            break
        first += width


def _needed(n_fit: int, turn: int) -> float:
    """What a pass for three must hear to be followed: at first a hint, then half of what it takes to tell
    enough, then all. Where it is there it doubles with every pass.
    """
    enough = float(np.sqrt(LEAST * n_fit))
    return (HINTED, max(HEARD, enough / 2), max(HEARD, enough))[min(turn, 2)]


def _seed(heard: _Heard, members: Sequence[str], plan: LearnsCrossed) -> Pass:
    """Everybody fits random targets: signs of what those say who answer. Whose answers tell of labels, which
    are not in these targets, has no part in it.
    """
    task = heard.task
    rng = np.random.default_rng([task.seed, SEEDS])
    shape = len(task.rows.fit), task.loss.n_outputs
    weight = at(task.rows.fit, task.sample_weight)
    targets = [rng.standard_normal(shape, dtype=np.float32) for _ in range(SEEDS)]
    requests = [
        FitRequest(task.rounds + 1 + seed, target, tuple(members), weight, target="random")
        for seed, target in enumerate(targets)
    ]
    replies = yield requests
    for request, reply in zip(requests, replies, strict=True):
        fitted, _ = accept_fitted(task, request, reply)
        for name, values in fitted.items():
            heard.answers[request.round, name] = values
    for name in members:
        rounds = [round for round, answered in heard.answers if answered == name]
        answers = [heard.answers[round, name] for round in rounds]
        if rounds and name != task.label_holder and plan.betrays(task, answers):
            heard.betrayed.append(name)
        elif rounds:  # who does not take part lends no sign either
            said = [None, *rounds] if name in heard.parts else rounds
            heard.signs[name] = [heard.sign(name, round) for round in said]


def _offered(heard: _Heard, to: str, turn: int) -> Iterator[Factors]:
    """Signs of others to cross the residual with for an organization, the most promising first.

    A first pass may have missed it: the second also follows what was hardly heard, and tries the rest.
    """
    found = [_unheard(heard, to)] if turn == 0 else [_echoes(heard, to, HEARD)]
    if turn == 1:
        found += [_echoes(heard, to, HINTED), _unheard(heard, to)]
    return _unlike(heard, to, chain(*found))


def _unlike(heard: _Heard, to: str, found: Iterable[Factors]) -> Iterator[Factors]:
    """Those that say something other than what it was sent before."""
    before = list(heard.sent.get(to, []))
    for factors in found:
        values = _multiplied(factors)
        if all(abs(float(np.mean(values * other))) < ALIKE for other in before):
            before.append(values)
            yield factors


def _multiplied(factors: Factors) -> Floats32:
    """What the residual is crossed with."""
    values = factors[0][1]
    for _, more in factors[1:]:
        values = values * more
    return values


def _unheard(heard: _Heard, to: str) -> Iterator[Factors]:
    """One sign of each other organization after another."""
    for turn in zip_longest(*(heard.signs[name] for name in _others(heard, to))):
        yield from ((one,) for one in turn if one is not None)


def _others(heard: _Heard, to: str) -> list[str]:
    """Who else lends signs: those after it first, so that not all begin with the same one."""
    names = sorted(heard.signs)
    place = names.index(to)
    return [*names[place + 1 :], *names[:place]]


def _echoes(heard: _Heard, to: str, least: float) -> Iterator[Factors]:
    """Signs of answers that others gave; first those to residuals crossed with its own signs."""
    found = [one for one in heard.vectors if one.score >= least and one.organization != to]
    for one in sorted(found, key=lambda one: (one.sign.organization != to, -one.score)):
        yield (heard.sign(one.organization, one.round),)


def _products(heard: _Heard, residual: Floats32, to: str) -> Iterator[Factors]:
    """Signs of two other organizations; first those whose product tells most of the residual beside the signs
    of what this one has said so far.
    """
    rows, weight = _some_rows(heard.task), heard.task.sample_weight
    target = residual[rows] if weight is None else (residual[rows] * weight[rows, None]).astype(np.float32)
    answered = [one.round for one in heard.vectors if one.organization == to]
    said = [*heard.signs[to], *(heard.sign(to, round) for round in answered)]
    own = np.stack([values[rows] for _, values in said])
    found: list[tuple[float, Factors]] = []
    for one, other in combinations(_others(heard, to)[:NEIGHBOURS], 2):
        for left, right in product(heard.signs[one], heard.signs[other]):
            told = own @ (target * (left[1][rows] * right[1][rows])[:, None])
            found.append((float((told**2).sum()), (left, right)))
    return (factors for _, factors in sorted(found, key=lambda one: -one[0]))


def _some_rows(task: Task) -> NDArray[np.intp]:
    """Fit rows, evenly spread where there are many."""
    fit = task.rows.fit
    step = max(1.0, len(fit) / LOOKED_THROUGH)
    return fit[np.arange(0, len(fit), step).astype(np.intp)]


def _echoed_products(heard: _Heard, to: str) -> Iterator[Factors]:
    """Signs of the best answers of two others to products; then of one of them, and what it was crossed with
    beside a sign of this one. What was hardly heard comes after all that was.
    """
    best: dict[str, Vector] = {}
    for one in heard.vectors:
        known = best.get(one.organization)
        if one.times and one.organization != to and (known is None or one.score > known.score):
            best[one.organization] = one
    signs = {name: heard.sign(name, one.round) for name, one in best.items()}
    for least in (HEARD, HINTED):
        found = sorted((one for one in best.values() if one.score >= least), key=lambda one: -one.score)
        for one, other in combinations(found, 2):
            yield signs[one.organization], signs[other.organization]
        for one in found:
            for sign in one.signs:
                if sign.organization != to:
                    yield signs[one.organization], heard.sign(sign.organization, sign.round)


def _cross(heard: _Heard, residual: Floats32, chosen: Mapping[str, Sequence[Factors]], first: int) -> Pass:
    """One pass: everybody fits the residual times the signs that were chosen for it."""
    task = heard.task
    fit, weight = task.rows.fit, at(task.rows.fit, task.sample_weight)
    asked = [(name, first + place, one) for name in chosen for place, one in enumerate(chosen[name])]
    sent = [_multiplied(factors) for _, _, factors in asked]
    requests = [
        FitRequest(round, at(fit, residual) * at(fit, values)[:, None], (name,), weight, target="crossed")
        for (name, round, _), values in zip(asked, sent, strict=True)
    ]
    replies = yield requests
    for (name, round, factors), values, request, reply in zip(asked, sent, requests, replies, strict=True):
        heard.sent.setdefault(name, []).append(values)
        fitted, _ = accept_fitted(task, request, reply)
        if name in fitted:
            heard.answers[round, name] = fitted[name]
            score = heard.score(fitted[name], residual * values[:, None])
            sign, *more = (one for one, _ in factors)
            heard.vectors.append(Vector(round, name, sign, score, *more))


def _tells_enough(heard: _Heard) -> bool:
    best = max((one.score for one in heard.vectors), default=0.0)
    return best >= HEARD and best**2 >= LEAST * len(heard.task.rows.fit)


def _heard_since(heard: _Heard, first: int, least: float = HEARD) -> bool:
    """Whether the last pass, from this round on, heard something. It follows what was heard before, and what
    was chance is not heard again.
    """
    return any(one.score >= least for one in heard.vectors if one.round >= first)


def _kept(heard: _Heard) -> Crossed | None:
    """What was heard, and the answers that tell its signs; where that is too little, the answers to random
    targets, if they are wanted. The rest is forgotten.
    """
    plan, last = heard.task.crossing, heard.task.rounds + SEEDS
    vectors, seen = tuple(one for one in heard.vectors if one.score >= HEARD), tuple[Answered, ...]()
    if not _tells_enough(heard):
        vectors = ()
        if plan is not None and plan.coarse:
            seen = tuple(sorted(key for key in heard.answers if key[0] <= last and key[1] in heard.signs))
        if {name for _, name in seen} <= {heard.task.label_holder}:
            seen = ()  # what she knows by herself is no assistance
    if not vectors and not seen and not heard.betrayed:
        return None
    search = heard.task.rows.search
    answers = {key: heard.answers[key] for key in Crossings(vectors, {}, {}, seen).answered}
    named = {f"{round} {name}": values for (round, name), values in answers.items()}
    means = {key: values[search].mean(axis=0, dtype=np.float64) for key, values in named.items()}
    crossings = Crossings(
        vectors,
        {key: tuple(map(float, mean)) for key, mean in means.items()},
        {key: spread_of(values) for key, values in named.items()},
        seen,
    )
    return Crossed(crossings, answers, tuple(heard.betrayed))


def _widest(values: Floats | Floats32) -> Floats:
    """The direction (K,) in which answers (n, K) differ most."""
    n_outputs = values.shape[1]
    if n_outputs == 1:
        return np.ones(1)
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    along = directions[:, -1]
    return np.asarray(along * np.sign(along[np.argmax(np.abs(along))]))


def _inner(one: Floats, other: Floats, counts: Floats) -> float:
    return float(np.einsum("ij,ij,i->", one, other, counts))
