"""Interaction probes: effects of columns that two or three organizations have only together.

A residual r may depend on columns of two organizations while E[r | x_m] is 0 for both; but E[r s | x_m] is
not 0 for sign bits s of the other's columns. So after the rounds the label holder sends probes, ``residual *
sign bits``, for a sample of rows (``Rows.probes``) until no reply is significant:

1. Every organization fits a few random targets, with no label in them. Signs of the replies, and of what an
   organization added to F^T, are the first sign bits.
2. Every organization fits probes with sign bits of the others, out of fold.
3. Signs of the best replies make the next probes, for the organizations whose sign bits these replies were
   fitted to: each pass finds the pair of functions better, as powers of a matrix find its largest singular
   vectors.
4. Where no pair is significant, sign bits of two are multiplied for a third, and signs of the replies to that
   are multiplied in turn. The label holder finds the first products by itself: those that explain most of the
   residual beside the third's replies so far.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from gal.core.probes.kept_probes import SEEDS, Probe, Probes, Replies, ReplyKey, Sign, bits
from gal.core.replies import Reply, accept_fitted
from gal.core.requests import EndLearning, FitRequest
from gal.core.rows import at
from gal.core.screening import spread_of
from gal.core.steps import broadcast
from gal.core.task import Task
from gal.core.validated import BestRounds

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Positions = NDArray[np.intp]
Found = tuple[Probes, Replies]
Probing = Generator[list[FitRequest], list[Mapping[str, Reply]], "Found | None"]
Pass = Generator[list[FitRequest], list[Mapping[str, Reply]], None]
Signs = tuple[Sign, ...]

PASSES = (0.34, 0.26, 0.2, 0.2)
"""What share of the probes for two organizations goes out in each pass."""

ERRORS, EXPLAINED = 3.0, 0.003
"""A reply is significant where its correlation with what was sent is so many standard errors, and it explains
such a share of it: where it explains less, even all of it would hardly change a prediction.
"""

HINT = 1.0
"""Standard errors from which on replies of a first pass are followed."""

STARTS = 4
"""Products of two sign bits that an organization is sent first."""

NEIGHBOURS = 6
"""Products are looked through for pairs among so many other organizations."""

ALIKE = 0.9
"""Sign bits that agree or disagree on more of the rows are not both sent to one organization:
|mean of their product|.
"""

KEPT = 2
"""Probes of an organization with the same others that a model keeps: later ones are better, and alike."""


@dataclass
class _Search:
    """What was sent and what came back so far."""

    task: Task
    """Of the sample alone."""
    parts: Mapping[str, Floats]
    """By organization: what it added to F^T."""
    residual: Floats32
    replies: dict[ReplyKey, Floats32] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    signs: dict[str, list[Sign]] = field(default_factory=dict)
    """By organization: the first sign bits."""
    sent: dict[str, list[Floats32]] = field(default_factory=dict)
    """By organization: sign bits of the probes that it got."""

    @property
    def least(self) -> float:
        """The score of a significant reply."""
        return float(max(ERRORS, np.sqrt(EXPLAINED * len(self.task.rows.fit))))

    def significant(self, first: int = 0) -> list[Probe]:
        """The probes with significant replies, from this round on, best first."""
        return [one for one in self.best(self.least) if one.round >= first]

    def best(self, least: float) -> list[Probe]:
        """The probes with at least this score, best first."""
        return sorted((one for one in self.probes if one.score >= least), key=lambda one: -one.score)

    def sign(self, organization: str, round: int | None) -> Sign:
        """On which side of its median along its widest direction a reply lies."""
        fit = self.task.rows.fit
        values = self.parts[organization] if round is None else self.replies[round, organization]
        along = _widest(values[fit])
        threshold = float(np.median(values[fit].astype(np.float64) @ along))
        return Sign(organization, round, tuple(map(float, along)), threshold)

    def product(self, signs: Signs) -> Floats32:
        """The sign bits that a residual is multiplied by."""
        values = np.ones(self.task.rows.n, dtype=np.float32)
        for sign in signs:
            values = values * bits(sign.line(self.parts, self.replies))
        return values

    def score(self, reply: Floats32, target: Floats32) -> float:
        """Correlation of an out-of-fold reply with its target on the fit rows, in standard errors; 0 where it
        is far lower on rows whose target was never sent: a memorizer's is.
        """
        found, n_rows = self._correlation(reply, target, self.task.rows.fit)
        unseen, n_unseen = self._correlation(reply, target, np.flatnonzero(~self.task.rows.is_fit))
        memorized = n_unseen > 0 and unseen < found - ERRORS / np.sqrt(n_unseen)
        return 0.0 if memorized else float(found * np.sqrt(n_rows))

    def _correlation(self, reply: Floats32, target: Floats32, rows: Positions) -> tuple[float, float]:
        """On these rows, and how many they count for."""
        weight = self.task.sample_weight
        counts = np.ones(len(rows)) if weight is None else weight[rows]
        if not counts.any():
            return 0.0, 0.0
        one, other = (values[rows].astype(np.float64) for values in (reply, target))
        one, other = (values - np.average(values, axis=0, weights=counts) for values in (one, other))
        size = np.sqrt(_inner(one, one, counts) * _inner(other, other, counts))
        n_effective = float(counts.sum() ** 2 / (counts**2).sum())
        return (_inner(one, other, counts) / size if size > 0 else 0.0), n_effective


def probe(task: Task, candidate: BestRounds) -> Probing:
    """Send probes after the rounds; None where no reply is significant."""
    plan = task.probes
    members = tuple(name for name in task.organizations if name not in task.stateful)
    if plan is None or len(members) < 2:
        return None
    sample = task.sampled
    output, parts = candidate.added_up(task, task.rows.sample)
    search = _Search(sample, parts, broadcast(replace(sample, newton=False), output, 0, "assisted").residual)
    try:
        yield from _seed(search, members)
        first = last = task.rounds + SEEDS + 1
        end = first + plan.probes
        for turn, width in enumerate(_widths(plan.pairs)):
            if turn > 1 and not search.significant():
                break
            chosen = {
                name: _unlike(search, name, _for_two(search, name, turn), width) for name in search.signs
            }
            if not any(chosen.values()):
                break
            yield from _send(search, chosen, first)
            first, last = first + width, first
        if not search.significant(last):
            yield from _for_three(search, first, end)
    except EndLearning:
        return None
    return _kept(search)


def _widths(probes: int) -> list[int]:
    """How many probes go to each organization, pass by pass; they add up to all."""
    edges = np.ceil(np.cumsum((0.0, *PASSES)) * probes).astype(int)
    return [int(width) for width in np.diff(edges) if width > 0]


def _seed(search: _Search, members: Sequence[str]) -> Pass:
    """Every organization fits random targets: their replies give the first sign bits."""
    task = search.task
    rng = np.random.default_rng([task.seed, SEEDS])
    shape = len(task.rows.fit), task.loss.n_outputs
    weight = at(task.rows.fit, task.sample_weight)
    requests = [
        FitRequest(task.rounds + 1 + seed, target, tuple(members), weight, target="random")
        for seed, target in enumerate(rng.standard_normal((SEEDS, *shape), dtype=np.float32))
    ]
    replies = yield requests
    for request, reply in zip(requests, replies, strict=True):
        fitted, _ = accept_fitted(task, request, reply)
        search.replies |= {(request.round, name): values for name, values in fitted.items()}
    for name in members:
        rounds: list[int | None] = [round for round, replied in search.replies if replied == name]
        own: list[int | None] = [None] if name in search.parts else []
        if rounds:  # an organization without replies has no part in it
            search.signs[name] = [search.sign(name, round) for round in own + rounds]


def _for_two(search: _Search, to: str, turn: int) -> Iterator[Signs]:
    """Sign bits of another organization for a probe, the most promising first.

    Later passes follow significant replies of others to this one's own sign bits; the second one follows
    hints too, and tries more of the first sign bits.
    """
    replied = search.significant() if turn > 1 else search.best(HINT) if turn == 1 else []
    answers = (
        (search.sign(one.organization, one.round),)
        for one in replied
        if one.organization != to and one.signs[0].organization == to
    )
    return answers if turn > 1 else chain(answers, _promising(search, to, 1))


def _others(search: _Search, to: str) -> list[str]:
    """The other organizations: those after it first, so that not all begin with the same one."""
    names = sorted(search.signs)
    place = names.index(to)
    return [*names[place + 1 :], *names[:place]]


def _for_three(search: _Search, first: int, end: int) -> Pass:
    """Sign bits of two organizations are multiplied for a third, the most promising first; then signs of the
    replies in turn, as long as a pass has significant ones. The first pass is followed in any case.
    """
    start, width = first, min(STARTS, end - first)
    while first < end and (first <= start + STARTS or search.significant(first - 1)):
        offered = {
            name: _of_replies(search, name) if first > start else _promising(search, name, 2)
            for name in search.signs
        }
        chosen = {name: _unlike(search, name, found, width) for name, found in offered.items()}
        if not any(chosen.values()):
            break
        yield from _send(search, chosen, first)
        first, width = first + width, 1


def _promising(search: _Search, to: str, others: int) -> Iterator[Signs]:
    """First sign bits of so many other organizations; first those whose product tells most of the residual
    beside the signs of what this organization has replied so far. That costs no request.
    """
    rows, weight = search.task.rows.fit, search.task.sample_weight
    target = search.residual[rows] if weight is None else search.residual[rows] * weight[rows, None]
    replied = [search.sign(to, one.round) for one in search.probes if one.organization == to]
    own = np.stack([search.product((one,))[rows] for one in [*search.signs[to], *replied]])
    first = {sign: search.product((sign,))[rows] for signs in search.signs.values() for sign in signs}
    found: list[tuple[float, Signs]] = []
    for names in combinations(_others(search, to)[:NEIGHBOURS], others):
        for signs in product(*(search.signs[name] for name in names)):
            values = np.prod([first[sign] for sign in signs], axis=0)
            projected = own @ (target * values[:, None]).astype(np.float32)
            found.append((float((projected**2).sum()), signs))
    return (signs for _, signs in sorted(found, key=lambda one: -one[0]))


def _of_replies(search: _Search, to: str) -> Iterator[Signs]:
    """Signs of the best replies of two others to products; then of one of them, and the sign bits of the
    other organization that it was multiplied by.
    """
    best: dict[str, Probe] = {}
    for one in search.best(HINT):
        if len(one.signs) > 1 and one.organization != to:
            best.setdefault(one.organization, one)
    for one, other in combinations(best.values(), 2):
        yield search.sign(one.organization, one.round), search.sign(other.organization, other.round)
    for one in best.values():
        for sign in one.signs:
            if sign.organization != to:
                yield search.sign(one.organization, one.round), sign


def _unlike(search: _Search, to: str, found: Iterable[Signs], width: int) -> list[Signs]:
    """The first of them whose sign bits differ from those that it was sent before."""
    before = list(search.sent.get(to, []))

    def new() -> Iterator[Signs]:
        for signs in found:
            values = search.product(signs)
            if all(abs(float(np.mean(values * other))) < ALIKE for other in before):
                before.append(values)
                yield signs

    return list(islice(new(), width))


def _send(search: _Search, chosen: Mapping[str, Sequence[Signs]], first: int) -> Pass:
    """One pass: every organization fits the residual times the sign bits that were chosen for it."""
    task = search.task
    fit, weight = task.rows.fit, at(task.rows.fit, task.sample_weight)
    probes = [(name, first + place, signs) for name in chosen for place, signs in enumerate(chosen[name])]
    sent = [search.product(signs) for _, _, signs in probes]
    requests = [
        FitRequest(round, (search.residual * values[:, None])[fit], (name,), weight, target="probe")
        for (name, round, _), values in zip(probes, sent, strict=True)
    ]
    replies = yield requests
    for (name, round, signs), values, request, reply in zip(probes, sent, requests, replies, strict=True):
        search.sent.setdefault(name, []).append(values)
        fitted, _ = accept_fitted(task, request, reply)
        if name in fitted:
            search.replies[round, name] = fitted[name]
            score = search.score(fitted[name], search.residual * values[:, None])
            search.probes.append(Probe(round, name, signs, score))


def _kept(search: _Search) -> Found | None:
    """The best probes of each organization with the same others, if significant, and every reply that they
    need.
    """
    best: dict[tuple[str, ...], list[Probe]] = {}
    for one in search.significant():
        names = one.organization, *sorted(sign.organization for sign in one.signs)
        best.setdefault(names, []).append(one)
    kept = Probes(tuple(one for alike in best.values() for one in alike[:KEPT]), {}, {})
    if not kept.vectors:
        return None
    replies = {key: search.replies[key] for key in kept.needed}
    named = {f"{round} {name}": values for (round, name), values in replies.items()}
    means = {key: tuple(map(float, values.mean(axis=0, dtype=np.float64))) for key, values in named.items()}
    return replace(kept, means=means, spreads={key: spread_of(one) for key, one in named.items()}), replies


def _widest(values: Floats | Floats32) -> Floats:
    """The direction (K,) in which replies (n, K) differ most."""
    if values.shape[1] == 1:
        return np.ones(1)
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    along = directions[:, -1]
    return np.asarray(along * np.sign(along[np.argmax(np.abs(along))]))


def _inner(one: Floats, other: Floats, counts: Floats) -> float:
    return float(np.einsum("ij,ij,i->", one, other, counts))
