"""The findings of a table in a few sentences, each with its figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gal_bench.cells import OFFICIAL
from gal_bench.figures import Figure, every_figure, figures_of, leak_of, who
from gal_bench.runner import Run
from gal_bench.specs import TOGETHER, RowSpec


@dataclass(frozen=True)
class TableFinding:
    """One figure, and the sentence that holds it."""

    name: str
    value: float
    words: str


def findings(run: Run) -> list[TableFinding]:
    """The summary of a table."""
    sayers: dict[str, Callable[[Run], Iterator[TableFinding]]] = {
        "uci": _covered,
        "images": _covered_each,
        "cases": _covered_each,
        "noise": _noise,
        "images-ablations": _noise,
        "cases-ablations": _noise,
        "privacy": _leaks,
        "guarantees": _leaks,
    }
    found = list(sayers[run.table.name](run)) if run.table.name in sayers else []
    return found + list(_against_the_paper(run))


def share_covered(alone: float, reached: float, joint: float) -> float:
    """Share of the pooling gain; the same formula whether lower or higher scores are better.

    >>> share_covered(60.0, 45.0, 40.0)
    0.75
    """
    return (reached - alone) / (joint - alone) if joint != alone else float("nan")


def ahead(one: Figure, other: Figure) -> float:
    """How much better the one's final models are, whichever way is better."""
    return other.mean - one.mean if one.metric == "mad" else one.mean - other.mean


def by_place(run: Run) -> dict[tuple[str, str, int | str, str], Figure]:
    """Figures by row, data set, number of organizations and protocol."""
    return {(one.row.name, *one.place): one for one in figures_of(run)}


def ways(run: Run, organizations: int | str) -> dict[str, dict[str, float]]:
    """By row and set: the share of the pooling gain that the final models of protocol *per seed* reach, where
    there is one.
    """
    figures = by_place(run)
    found: dict[str, dict[str, float]] = {}
    for (row, dataset, size, protocol), one in figures.items():
        alone, joint = (figures.get((name, dataset, size, protocol)) for name in ("alone", "joint"))
        if (size, protocol) == (organizations, "per seed") and alone is not None and joint is not None:
            share = share_covered(alone.mean, one.mean, joint.mean)
            found.setdefault(row, {}).update({dataset: share} if math.isfinite(share) else {})
    return found


def _covered(run: Run, row: str = "gal-linear") -> Iterator[TableFinding]:
    """Mean over the sets on which Joint and Alone differ by more than a standard deviation."""
    figures = by_place(run)
    for organizations in run.table.organizations:
        shares, short = [], []
        for dataset, share in ways(run, organizations).get(row, {}).items():
            alone, joint = (figures[name, dataset, organizations, "per seed"] for name in ("alone", "joint"))
            if abs(joint.mean - alone.mean) <= max(joint.std, alone.std):
                short.append(dataset)
            else:
                shares.append(share)
        if not shares:
            continue
        label, mean = run.table.row(row).label, float(np.mean(shares))
        words = (
            f"{who(organizations)}, per seed: {label} reaches {mean:.1%} of the pooling gain (mean "
            f"over {len(shares)} sets"
        )
        if short:
            words += f"; without {', '.join(short)}, where Joint is within a standard deviation of Alone"
        yield TableFinding(f"covered by {label}, {who(organizations)}", mean, f"{words}).")


def _covered_each(run: Run) -> Iterator[TableFinding]:
    """With the most organizations; nothing of demo sets, which have few rows, nor where Joint is no better
    than Alone, as on camera views.
    """
    for dataset in (name for name in run.table.sets if not name.endswith(" demo")):
        most = run.table.organizations[-1]
        here = {one.row.name: one for one in figures_of(run) if one.place[:2] == (dataset, most)}
        if {"alone", "joint", "gal"} <= set(here) and ahead(here["joint"], here["alone"]) > 0:
            share = share_covered(here["alone"].mean, here["gal"].mean, here["joint"].mean)
            words = f"{dataset}, {who(most)}: GAL reaches {share:.1%} of the pooling gain."
            yield TableFinding(f"covered by GAL on {dataset}", share, words)


def _noise(run: Run) -> Iterator[TableFinding]:
    """How often assistance weights are at least as good as equal ones under noise."""
    figures = by_place(run)
    for protocol in run.table.protocols:
        pairs = [
            (on, off)
            for (row, *place), on in figures.items()
            if row.endswith("weights-on") and on.protocol == protocol
            for off in [figures.get((f"{row.removesuffix('on')}off", *place))]  # type: ignore[arg-type]
            if off is not None
        ]
        if not pairs:
            continue
        gains = [ahead(*pair) for pair in pairs]
        good, ties = sum(gain >= 0 for gain in gains), sum(gain == 0 for gain in gains)
        clearly = sum(gain < -max(on.std, off.std) for gain, (on, off) in zip(gains, pairs, strict=True))
        yield TableFinding(
            f"weights on at least as good as off, {protocol}",
            good / len(gains),
            f"Protocol *{protocol}*: with assistance weights the final model is at least as good as with "
            f"equal ones in {good} of {len(gains)} ({good / len(gains):.1%}; {ties} are equal), and worse by "
            f"more than a standard deviation in {clearly}.",
        )


def _leaks(run: Run) -> Iterator[TableFinding]:
    """Of every row that was attacked: what leaks, what may, and how much of what assistance gains is left."""
    for protocol in run.table.protocols:
        for row in run.table.rows:
            places = [place for place in run.table.places(row) if place[2] == protocol]
            leak = leak_of([one for place in places for one in run.at(row, *place)])
            if leak is None:
                continue
            words = (
                f"Protocol *{protocol}*, {row.label}: the best attack guesses {leak.canaries} of "
                f"{leak.canaries.of} canaries"
            )
            words += f", the guarantee allows {leak.allowed}" if leak.allowed else ", nothing is guaranteed"
            name = f"canaries guessed, {row.label}, {protocol}"
            yield TableFinding(name, leak.canaries.value, f"{words}{_left(run, row, protocol)}.")
    found = [one.leak for one in every_figure(run) if one.leak is not None and one.leak.bound is not None]
    if found:
        above = sum(leak.exceeds for leak in found)
        yield TableFinding(
            "figures above the guarantee",
            above / len(found),
            "Figures with a guarantee in which the best attack's interval lies above what is allowed: "
            f"{above} of {len(found)} (one in forty would by chance, and a few more because the best of "
            "several attacks is taken).",
        )


def _left(run: Run, row: RowSpec, protocol: str) -> str:
    """How much is left of what GAL without a mechanism gains over Alone, where that is
    more than a standard deviation.
    """
    figures = by_place(run)
    left = []
    for (name, *place), one in figures.items():
        alone, plain = (figures.get((other, *place)) for other in ("alone", "gal"))  # type: ignore[arg-type]
        if name != row.name or one.protocol != protocol or row.privacy is None or not (alone and plain):
            continue
        if ahead(plain, alone) > max(alone.std, plain.std):
            left.append(share_covered(alone.mean, one.mean, plain.mean))
    if not left:
        return ""
    median = f"{100 * np.median(left):.0f} %"
    return f"; {median} of what assistance gains over Alone is left (median of {len(left)} figures)"


def _against_the_paper(run: Run) -> Iterator[TableFinding]:
    for protocol in run.table.protocols:
        # In deep tables, a pooled model is one run, whatever the number of organizations.
        found: dict[tuple[str, str, int | str], Figure] = {}
        for one in figures_of(run):
            if one.paper is not None and one.protocol == protocol:
                once = run.table.deep and one.row.method in TOGETHER
                found[one.row.name, one.dataset, 1 if once else one.organizations] = one
        if not found:
            continue
        verdicts = [one.verdict for one in found.values()]
        better, alike, worse = (verdicts.count(one) for one in ("better", "", "worse"))
        what = {
            "paper": "best rounds on the test rows",
            OFFICIAL: "final models (with the paper preset: best rounds on the test rows)",
        }.get(protocol, "final models")
        yield TableFinding(
            f"against the paper, {protocol}",
            worse / len(verdicts),
            f"Protocol *{protocol}*, {what} against the paper's figures: {better} better, {alike} alike, "
            f"{worse} worse by more than a standard deviation, of {len(verdicts)}.",
        )
