"""Figures of the tables, and findings: sentences about them.

There is a figure for each row, data set, number of organizations and protocol: a mean and a standard
deviation over seeds (the population's, as the authors compute theirs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from gal.privacy.leakage import Share
from gal_bench.cells import DEEP_SETS, OFFICIAL, Outcome
from gal_bench.runner import Run
from gal_bench.specs import TOGETHER, Printed, RowSpec


@dataclass(frozen=True)
class Leak:
    """The attack on messages that guessed most canaries right, added up over seeds."""

    attack: str
    canaries: Share
    classes: int
    """Between how many it guesses; 2 for numbers."""
    bound: float | None
    """The largest share of canaries that the guarantee allows; None without one."""

    @property
    def exceeds(self) -> bool:
        """Whether the interval lies above what is allowed."""
        return self.bound is not None and self.canaries.low > self.bound

    @property
    def allowed(self) -> str:
        """Rounded down: never more than is allowed."""
        return "" if self.bound is None else f"{math.floor(1000 * self.bound) / 10:.1f} %"

    @property
    def words(self) -> str:
        """The text of a table's cell; 100 % only where all guesses were right."""
        low, high = (round(100 * end) for end in self.canaries.interval())
        share = round(100 * self.canaries.value)
        found = f"leak {min(share, 99) if self.canaries.right < self.canaries.of else share} % ({low}–{high})"
        return found if self.bound is None else f"{found}, allowed {self.allowed}"


def leak_of(outcomes: Sequence[Outcome]) -> Leak | None:
    """Over all seeds; None where it was not measured."""
    found = [one.leak for one in outcomes if one.leak]
    if not found:
        return None
    shares = {
        name: reduce(add, (Share(*one["attacks"][name]["canaries"]) for one in found))
        for name in found[0]["attacks"]
        if all(name in one["attacks"] for one in found)
    }
    best = max(shares, key=lambda name: shares[name].right)  # of equal ones the first, which needs least
    return Leak(best, shares[best], classes=int(found[0]["classes"]), bound=found[0]["bound"])


@dataclass(frozen=True)
class Figure:
    """One cell of a table."""

    row: RowSpec
    dataset: str
    organizations: int | str
    protocol: str
    metric: str
    final: tuple[float, ...]
    """Scores of the final models, by seed; none where nothing was run."""
    best: tuple[float, ...]
    """Scores of the best rounds on the test rows, which is what the paper prints."""
    paper: Printed | None
    seeds: int = 0
    """The seeds of the table; some may not have been run."""
    leak: Leak | None = None
    """Canaries that attacks on the messages guess, where this is measured."""

    @property
    def place(self) -> tuple[str, int | str, str]:
        """Data set, organizations and protocol."""
        return self.dataset, self.organizations, self.protocol

    @property
    def mean(self) -> float:
        """The mean of the final models."""
        return float(np.mean(self.final))

    @property
    def std(self) -> float:
        """The standard deviation of the final models."""
        return float(np.std(self.final))

    @property
    def digits(self) -> int:
        """Decimals that matter: three of an AUC, two of a small error, else one."""
        return 3 if self.metric == "auc" else 2 if self.metric == "mad" and self.mean < 20 else 1

    @property
    def verdict(self) -> str:
        """Whether we are better or worse than the paper by more than the larger standard deviation."""
        if self.paper is None or not self.final:
            return ""
        # The same choice as theirs where we do as they did, else ours.
        as_they_did = self.protocol == "paper" or self.row.options.get("preset") == "paper"
        compared = self.best if as_they_did else self.final
        gain = float(np.mean(compared)) - self.paper.mean
        gain = -gain if self.metric == "mad" else gain
        rounding = 0.005 if self.metric == "auc" else 0.05  # of the decimals that the paper prints
        limit = max(self.paper.std, float(np.std(compared))) + rounding
        return "better" if gain > limit else "worse" if gain < -limit else ""

    def ahead_of(self, other: Figure) -> float:
        """The lead of these final models, whether lower or higher scores are better."""
        return other.mean - self.mean if self.metric == "mad" else self.mean - other.mean


def figures_of(run: Run) -> list[Figure]:
    """All figures of a table that were run, row by row."""
    return [figure for figure in every_figure(run) if figure.final]


def every_figure(run: Run) -> list[Figure]:
    """All figures, also those without a run, which have no values."""
    found = []
    for row in run.table.rows:
        for place in run.table.places(row):
            outcomes = run.at(row, *place)
            found.append(
                Figure(
                    row,
                    *place,
                    metric=outcomes[0].metric if outcomes else DEEP_SETS.get(place[0], ""),
                    final=tuple(one.final for one in outcomes),
                    best=tuple(one.best for one in outcomes),
                    paper=row.printed(place[0], place[1]),
                    seeds=run.table.seeds_at(row, place[0], place[1]),
                    leak=leak_of(outcomes),
                )
            )
    return found


def by_place(run: Run) -> dict[tuple[str, str, int | str, str], Figure]:
    """Figures that were run, by row, data set, number of organizations and protocol."""
    return {(one.row.name, *one.place): one for one in figures_of(run)}


def share_of_gain(alone: float, reached: float, joint: float) -> float:
    """Share of the pooling gain; the same formula whether lower or higher scores are better.

    >>> share_of_gain(60.0, 45.0, 40.0)
    0.75
    """
    return (reached - alone) / (joint - alone) if joint != alone else float("nan")


def shares_of_gain(run: Run, organizations: int | str) -> dict[str, dict[str, float]]:
    """By row and data set, under the protocol *per seed*: the share of the pooling gain that final models
    reach, where there is a gain.
    """
    figures = by_place(run)
    found: dict[str, dict[str, float]] = {}
    for (row, dataset, size, protocol), one in figures.items():
        alone, joint = (figures.get((name, dataset, size, protocol)) for name in ("alone", "joint"))
        if (size, protocol) == (organizations, "per seed") and alone is not None and joint is not None:
            share = share_of_gain(alone.mean, one.mean, joint.mean)
            found.setdefault(row, {}).update({dataset: share} if math.isfinite(share) else {})
    return found


def organizations_in_words(organizations: int | str) -> str:
    """The number of organizations of a figure."""
    words = {"most": "8 organizations (Iris: 4)", "by name": "organizations by name"}
    return words[organizations] if isinstance(organizations, str) else f"{organizations} organizations"


# --- findings


def findings(run: Run) -> list[str]:
    """The summary of a table in a few sentences, each with its figure."""
    kinds: dict[str, Callable[[Run], Iterator[str]]] = {
        "uci": _mean_share,
        "images": _each_share,
        "cases": _each_share,
        "noise": _noise,
        "images-ablations": _noise,
        "cases-ablations": _noise,
        "privacy": _leaks,
        "guarantees": _leaks,
    }
    first = kinds[run.table.name](run) if run.table.name in kinds else ()
    return [*first, *_against_the_paper(run)]


def _mean_share(run: Run, row: str = "gal-linear") -> Iterator[str]:
    """Mean over the sets on which Joint and Alone differ by more than a standard deviation."""
    figures = by_place(run)
    for organizations in run.table.organizations:
        shares, short = [], []
        for dataset, share in shares_of_gain(run, organizations).get(row, {}).items():
            alone, joint = (figures[name, dataset, organizations, "per seed"] for name in ("alone", "joint"))
            if abs(joint.mean - alone.mean) <= max(joint.std, alone.std):
                short.append(dataset)
            else:
                shares.append(share)
        if not shares:
            continue
        without = f"; without {', '.join(short)}, where Joint is within a standard deviation of Alone"
        yield (
            f"{organizations_in_words(organizations)}, per seed: {run.table.row(row).label} reaches "
            f"{np.mean(shares):.1%} of the pooling gain (mean over {len(shares)} "
            f"sets{without if short else ''})."
        )


def _each_share(run: Run) -> Iterator[str]:
    """With the most organizations; without demo sets, which are small, and sets without a pooling gain."""
    for dataset in (name for name in run.table.sets if not name.endswith(" demo")):
        most = run.table.organizations[-1]
        here = {one.row.name: one for one in figures_of(run) if one.place[:2] == (dataset, most)}
        if {"alone", "joint", "gal"} <= set(here) and here["joint"].ahead_of(here["alone"]) > 0:
            share = share_of_gain(here["alone"].mean, here["gal"].mean, here["joint"].mean)
            yield f"{dataset}, {organizations_in_words(most)}: GAL reaches {share:.1%} of the pooling gain."


def _noise(run: Run) -> Iterator[str]:
    """The share of cases in which assistance weights are at least as good as equal ones under noise."""
    figures = by_place(run)
    for protocol in run.table.protocols:
        pairs = []
        for (row, dataset, size, under), on in figures.items():
            off = figures.get((f"{row.removesuffix('on')}off", dataset, size, under))
            if row.endswith("weights-on") and under == protocol and off is not None:
                pairs.append((on, off))
        if pairs:
            gains = [on.ahead_of(off) for on, off in pairs]
            good, ties = sum(gain >= 0 for gain in gains), sum(gain == 0 for gain in gains)
            worse = sum(gain < -max(on.std, off.std) for gain, (on, off) in zip(gains, pairs, strict=True))
            yield (
                f"Protocol *{protocol}*: with assistance weights the final model is at least as good as with "
                f"equal ones in {good} of {len(gains)} ({good / len(gains):.1%}; {ties} are equal), and "
                f"worse by more than a standard deviation in {worse}."
            )


def _leaks(run: Run) -> Iterator[str]:
    """Per attacked row of a table: the leak, its bound, and the share of the gain that is left."""
    for protocol in run.table.protocols:
        for row in run.table.rows:
            places = [place for place in run.table.places(row) if place[2] == protocol]
            leak = leak_of([one for place in places for one in run.at(row, *place)])
            if leak is not None:
                allowed = f"the guarantee allows {leak.allowed}" if leak.allowed else "nothing is guaranteed"
                yield (
                    f"Protocol *{protocol}*, {row.label}: the best attack guesses {leak.canaries} of "
                    f"{leak.canaries.of} canaries, {allowed}{_gain_left(run, row, protocol)}."
                )
    found = [one.leak for one in every_figure(run) if one.leak is not None and one.leak.bound is not None]
    if found:
        yield (
            "Figures with a guarantee in which the best attack's interval lies above what is allowed: "
            f"{sum(leak.exceeds for leak in found)} of {len(found)} (one in forty would by chance, and a few "
            "more because the best of several attacks is taken)."
        )


def _gain_left(run: Run, row: RowSpec, protocol: str) -> str:
    """The share of GAL's gain over Alone that a mechanism leaves, where that gain is more than a standard
    deviation.
    """
    figures = by_place(run)
    left = []
    for (name, dataset, size, under), one in figures.items():
        alone, plain = (figures.get((other, dataset, size, under)) for other in ("alone", "gal"))
        if name != row.name or under != protocol or row.privacy is None or not (alone and plain):
            continue
        if plain.ahead_of(alone) > max(alone.std, plain.std):
            left.append(share_of_gain(alone.mean, one.mean, plain.mean))
    if not left:
        return ""
    median = f"{100 * np.median(left):.0f} %"
    return f"; {median} of what assistance gains over Alone is left (median of {len(left)} figures)"


def _against_the_paper(run: Run) -> Iterator[str]:
    for protocol in run.table.protocols:
        # In deep tables, a pooled model is one run, whatever the number of organizations.
        found: dict[tuple[str, str, int | str], str] = {}
        for one in figures_of(run):
            if one.paper is not None and one.protocol == protocol:
                once = run.table.deep and one.row.method in TOGETHER
                found[one.row.name, one.dataset, 1 if once else one.organizations] = one.verdict
        if found:
            better, alike, worse = (list(found.values()).count(one) for one in ("better", "", "worse"))
            what = {
                "paper": "best rounds on the test rows",
                OFFICIAL: "final models (with the paper preset: best rounds on the test rows)",
            }.get(protocol, "final models")
            yield (
                f"Protocol *{protocol}*, {what} against the paper's figures: {better} better, {alike} alike, "
                f"{worse} worse by more than a standard deviation, of {len(found)}."
            )
