"""The findings of a table in a few sentences, each with its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gal_bench.cells import OFFICIAL, Outcome
from gal_bench.pages.leaks import allowed, leak_of, percent
from gal_bench.pages.tables import NAMES, Figure, ahead, digits_of, figures_of, in_bytes, mean_of, who
from gal_bench.runner import Run
from gal_bench.specs import TOGETHER, RowSpec

HEADLINES = ("gal", "gal-dms", "gal-wide")
NOISES = {"answers": "noise on answers", "residual": "noise on the residual", "columns": "noise as features"}


@dataclass(frozen=True)
class TableFinding:
    """One figure, and the sentence that holds it."""

    name: str
    value: float
    words: str


def findings(run: Run) -> list[TableFinding]:
    """The summary of a table."""
    sayers: dict[str, Callable[[Run], Iterator[TableFinding]]] = {
        "uci": _uci,
        "noise": _noise,
        "improvements": _improvements,
        "skewed": _skewed,
        "scale": _scale,
        "complexity": _complexity,
        "privacy": _leaks,
        "guarantees": _leaks,
        "images": _deep_methods,
        "cases": _deep_methods,
        "images-ablations": _noise,
        "cases-ablations": _noise,
        "complexity-deep": _complexity_deep,
    }
    found = list(sayers[run.table.name](run)) if run.table.name in sayers else []
    return found + list(_against_the_paper(run))


def share_covered(alone: float, reached: float, joint: float) -> float:
    """Share of the pooling gain; the same formula whether lower or higher scores are better.

    >>> share_covered(60.0, 45.0, 40.0)
    0.75
    """
    return (reached - alone) / (joint - alone) if joint != alone else float("nan")


def ways(run: Run, protocol: str, organizations: int | str) -> dict[str, dict[str, float]]:
    """By row and set: the share of the pooling gain that the final models reach."""
    means: dict[str, dict[str, float]] = {}
    for one in figures_of(run):
        if (one.protocol, one.organizations) == (protocol, organizations):
            means.setdefault(one.row.name, {})[one.dataset] = one.mean
    if not {"alone", "joint"} <= set(means):
        return {}
    return {
        row: {
            name: share_covered(means["alone"][name], score, means["joint"][name])
            for name, score in by_set.items()
        }
        for row, by_set in means.items()
    }


def by_place(run: Run) -> dict[tuple[str, str, int | str, str], Figure]:
    """Figures by row, data set, number of organizations and protocol."""
    return {(one.row.name, *one.place): one for one in figures_of(run)}


# --- tables of columns


def _uci(run: Run) -> Iterator[TableFinding]:
    for organizations in run.table.organizations:
        yield from _mean_covered(run, organizations, "gal-linear")


def _skewed(run: Run) -> Iterator[TableFinding]:
    yield from _mean_covered(run, run.table.organizations[0], "gal")


def _mean_covered(run: Run, organizations: int | str, row: str) -> Iterator[TableFinding]:
    """Mean over the sets on which Joint and Alone differ by more than a standard deviation."""
    figures = by_place(run)
    shares, short = [], []
    for dataset in run.table.sets:
        places = [(name, dataset, organizations, "per seed") for name in ("alone", "joint", row)]
        if not all(place in figures for place in places):
            continue
        alone, joint, ours = (figures[place] for place in places)
        if abs(joint.mean - alone.mean) <= max(joint.std, alone.std):
            short.append(dataset)
        else:
            shares.append(share_covered(alone.mean, ours.mean, joint.mean))
    if not shares:
        return
    label, share = run.table.row(row).label, float(np.mean(shares))
    words = (
        f"{who(organizations)}, per seed: {label} reaches {share:.1%} of the pooling gain (mean "
        f"over {len(shares)} sets"
    )
    if short:
        words += f"; without {', '.join(short)}, where Joint is within a standard deviation of Alone"
    yield TableFinding(f"covered by {label}, {who(organizations)}", share, f"{words}).")


def _noise(run: Run) -> Iterator[TableFinding]:
    """How often assistance weights are at least as good as equal ones under noise."""
    figures = by_place(run)
    for protocol in run.table.protocols:
        pairs = []
        for (row, *place), on in figures.items():
            off = figures.get((f"{row.removesuffix('on')}off", *place))  # type: ignore[arg-type]
            if row.endswith("weights-on") and on.protocol == protocol and off is not None:
                pairs.append((on, off))
        for kind, words in {"": "all noisy cells", **NOISES}.items():
            here = [pair for pair in pairs if pair[0].row.name.startswith(kind)]
            if not here:
                continue
            gains = [ahead(*pair) for pair in here]
            good, ties = sum(gain >= 0 for gain in gains), sum(gain == 0 for gain in gains)
            clearly = sum(ahead(on, off) < -max(on.std, off.std) for on, off in here)
            yield TableFinding(
                f"weights on at least as good as off, {protocol}, {words}",
                good / len(gains),
                f"Protocol *{protocol}*, {words}: with assistance weights the final model is at least as "
                f"good as with equal ones in {good} of {len(gains)} ({good / len(gains):.1%}; {ties} are "
                f"equal), and worse by more than a standard deviation in {clearly}.",
            )


def _improvements(run: Run) -> Iterator[TableFinding]:
    figures = {(one.row.name, one.dataset): one for one in figures_of(run)}
    for row in run.table.rows:
        base = row.name.split("-")[0] + "-authors"
        pairs = [
            (figures[row.name, name], figures[base, name])
            for name in run.table.sets
            if (row.name, name) in figures and (base, name) in figures
        ]
        if row.name == base or not pairs:
            continue
        gains = [100 * ahead(one, other) / max(_error(other), 1e-9) for one, other in pairs]
        better, worse, median = sum(g > 0 for g in gains), sum(g < 0 for g in gains), float(np.median(gains))
        yield TableFinding(
            f"{row.label} against the authors' algorithm",
            median,
            f"{row.label}: the final model is better on {better} and worse on {worse} of {len(pairs)} sets; "
            f"the error (MAD, or share of wrong classes) {'rises' if median < 0 else 'falls'} by "
            f"{abs(median):.1f} % in the median set.",
        )


def _error(figure: Figure) -> float:
    """MAD, or the share of wrong classes, at least a tenth of a percent."""
    return figure.mean if figure.metric == "mad" else max(100 - figure.mean, 0.1)


def _scale(run: Run) -> Iterator[TableFinding]:
    for dataset in run.table.sets:
        found = {row.name: run.at(row, dataset, "by name", "per seed") for row in run.table.rows}
        if not all(found.get(name) for name in ("alone", "gal", "pooled")):
            continue
        fact = next(name for name in ("auc", "accuracy", "r2") if name in found["gal"][0].facts)
        alone, gal, pooled = (mean_of(found[name], fact) for name in ("alone", "gal", "pooled"))
        value = share_covered(alone, gal, pooled)
        yield TableFinding(
            f"covered on {dataset}",
            value,
            f"{dataset}: from {alone:.4g} alone to {pooled:.4g} pooled ({found['pooled'][0].chosen}), GAL "
            f"reaches {gal:.4g}, which is {value:.1%} of the pooling gain ({fact}).",
        )


def _complexity(run: Run) -> Iterator[TableFinding]:
    al, gal = run.table.row("al"), run.table.row("gal")
    for fact, words in (
        ("critical_seconds", "times the seconds one after another"),
        ("trips", "times the round trips"),
        ("sent", "times the bytes sent"),
        ("stored_bytes", "times the space for local models"),
    ):
        places = [place for place in run.table.places(al) if run.at(al, *place) and run.at(gal, *place)]
        if places:
            ratios = [
                mean_of(run.at(al, *place), fact) / mean_of(run.at(gal, *place), fact) for place in places
            ]
            value = float(np.median(ratios))
            said = f"AL needs {value:.2g} {words} of GAL (median set)."
            yield TableFinding(f"AL over GAL, {fact}", value, said)


# --- privacy


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
            if leak.uninformed.right < leak.canaries.right:
                words += f" ({percent(leak.uninformed)} without knowing the label holder's outputs)"
            bound = "" if leak.bound is None else allowed(leak.bound)
            words += f", the guarantee allows {bound}" if bound else ", nothing is guaranteed"
            name = f"canaries guessed, {row.label}, {protocol}"
            yield TableFinding(name, leak.canaries.value, f"{words}{_kept(run, row, protocol)}.")
    found = [one.leak for one in figures_of(run) if one.leak is not None and one.leak.bound is not None]
    if found:
        above = sum(leak.exceeds for leak in found)
        yield TableFinding(
            "figures above the guarantee",
            above / len(found),
            "Figures with a guarantee in which the best attack's interval lies above what is allowed: "
            f"{above} of {len(found)} (one in forty would by chance, and a few more because the best of "
            "several attacks is taken).",
        )


def _kept(run: Run, row: RowSpec, protocol: str) -> str:
    """How much of what GAL without a mechanism gains over Alone is left, where that is
    more than a standard deviation.
    """
    figures = by_place(run)
    kept = []
    for (name, *place), one in figures.items():
        alone, plain = (figures.get((other, *place)) for other in ("alone", "gal"))  # type: ignore[arg-type]
        if name != row.name or one.protocol != protocol or row.privacy is None:
            continue
        if alone is None or plain is None:
            continue
        if ahead(plain, alone) > max(alone.std, plain.std):
            kept.append(share_covered(alone.mean, one.mean, plain.mean))
    if not kept:
        return ""
    return (
        f"; {100 * np.median(kept):.0f} % of what assistance gains over Alone is left (median of {len(kept)} "
        "figures)"
    )


# --- deep tables


def _deep_methods(run: Run) -> Iterator[TableFinding]:
    """Of every set with the most organizations: the headline rows beside the paper, and how far GAL goes.

    Nothing of demo sets, which have few rows; no way where Joint is no better than Alone, as on camera views.
    """
    for dataset in (name for name in run.table.sets if not name.endswith(" demo")):
        figures = [one for one in figures_of(run) if one.dataset == dataset]
        sizes = [one.organizations for one in figures if isinstance(one.organizations, int)]
        most = max(sizes, default="by name")
        here = {one.row.name: one for one in figures if one.organizations == most}
        for figure in (here[name] for name in HEADLINES if name in here):
            seeds = "one seed" if len(figure.final) == 1 else f"mean of {len(figure.final)} seeds"
            best = "the paper's best round on the test rows"
            paper = "" if figure.paper is None else f"; {best}: {figure.paper.mean}"
            yield TableFinding(
                f"{figure.row.label}, {dataset}, {who(most)}",
                figure.mean,
                f"{dataset}, {who(most)}, {figure.row.label}: {NAMES[figure.metric]} "
                f"{figure.mean:.{digits_of(figure)}f} for the final model ({seeds}){paper}.",
            )
        if {"alone", "joint", "gal"} <= set(here) and ahead(here["joint"], here["alone"]) > 0:
            share = share_covered(here["alone"].mean, here["gal"].mean, here["joint"].mean)
            words = f"{dataset}, {who(most)}: GAL reaches {share:.1%} of the pooling gain."
            yield TableFinding(f"covered by GAL on {dataset}", share, words)


def _complexity_deep(run: Run) -> Iterator[TableFinding]:
    """What a shared body saves and costs, what AL needs more, and the label holder's part."""
    for dataset in run.table.sets:
        gal, shared, al = (_done(run, row, dataset) for row in ("gal", "gal-dms", "al"))
        if gal and shared:
            share = mean_of(shared, "stored_bytes") / mean_of(gal, "stored_bytes")
            lost = float(np.mean([one.final for one in gal]) - np.mean([one.final for one in shared]))
            yield TableFinding(
                f"space of a shared body on {dataset}",
                share,
                f"{dataset}: a shared body takes {share:.1%} of the space of GAL's separate networks, "
                f"sends {in_bytes(mean_of(shared, 'revisit_bytes'))} more in a last pass, and scores "
                f"{abs(lost):.2f} points {'less' if lost > 0 else 'more'}.",
            )
        if gal and al:
            ratio = mean_of(al, "trips") / mean_of(gal, "trips")
            words = f"{dataset}: AL needs {ratio:.2g} times the round trips of GAL."
            yield TableFinding(f"AL over GAL, trips on {dataset}", ratio, words)
        if gal:
            part = mean_of(gal, "label_holder_seconds") / mean_of(gal, "seconds")
            words = f"{dataset}: the label holder's own part is {part:.2%} of GAL's seconds."
            yield TableFinding(f"label holder's part on {dataset}", part, words)


def _done(run: Run, name: str, dataset: str) -> Sequence[Outcome]:
    """All outcomes of a row on a set; none where the row is not there."""
    rows = [row for row in run.table.rows if row.name == name]
    places = [(row, place) for row in rows for place in run.table.places(row) if place[0] == dataset]
    return [one for row, place in places for one in run.at(row, *place)]


# --- beside the paper


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
