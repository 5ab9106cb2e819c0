"""What a table says in a few figures: how much of the way, how often better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gal_bench.deep_sets import OFFICIAL
from gal_bench.pages import deep_summaries, leak_summaries
from gal_bench.pages.findings import TableFinding, share_covered
from gal_bench.pages.tables import Figure, ahead, figures_of
from gal_bench.runner import Run
from gal_bench.specs import TOGETHER


def findings(run: Run) -> list[TableFinding]:
    """The summary of a table."""
    sayers: dict[str, Callable[[Run], Iterator[TableFinding]]] = {
        "uci": _uci,
        "noise": _noise,
        "improvements": _improvements,
        "skewed": _skewed,
        "scale": _scale,
        "complexity": _complexity,
        "privacy": leak_summaries.leakage_findings,
        "guarantees": leak_summaries.guarantees,
        "images": deep_summaries.methods,
        "cases": deep_summaries.methods,
        "images-ablations": deep_summaries.ablations,
        "cases-ablations": deep_summaries.ablations,
        "complexity-deep": deep_summaries.complexity,
    }
    found = list(sayers[run.table.name](run)) if run.table.name in sayers else []
    return found + list(_against_the_paper(run))


def ways(run: Run, protocol: str, organizations: int | str) -> dict[str, dict[str, float]]:
    """By row and set: the share of the way from Alone to Joint that the final models cover."""
    means = _means(run, protocol, organizations)
    if not {"alone", "joint"} <= set(means):
        return {}
    return {
        row: {
            name: share_covered(means["alone"][name], score, means["joint"][name])
            for name, score in by_set.items()
        }
        for row, by_set in means.items()
    }


@dataclass(frozen=True)
class _Covered:
    """Mean share of the way from Alone to Joint, over how many sets, and where there is no such way."""

    share: float
    sets: int
    short: list[str]

    @property
    def words(self) -> str:
        left_out = (
            f"; without {', '.join(self.short)}, where Joint is within a standard deviation of Alone"
            if self.short
            else ""
        )
        return f"mean over {self.sets} sets{left_out}"


def _share_covered(run: Run, organizations: int | str, row: str) -> _Covered | None:
    """Mean over the sets on which Joint and Alone differ by more than a
    standard deviation, and which do not.
    """
    figures = {
        (one.row.name, one.dataset): one
        for one in figures_of(run)
        if (one.protocol, one.organizations) == ("per seed", organizations)
    }
    shares, short = [], []
    for (name, dataset), alone in figures.items():
        if name != "alone" or ("joint", dataset) not in figures or (row, dataset) not in figures:
            continue
        joint = figures[("joint", dataset)]
        if abs(joint.mean - alone.mean) <= max(joint.std, alone.std):
            short.append(dataset)
        else:
            shares.append(share_covered(alone.mean, figures[(row, dataset)].mean, joint.mean))
    if not shares:
        return None
    return _Covered(float(np.mean(shares)), len(shares), short)


def _means(run: Run, protocol: str, organizations: int | str) -> dict[str, dict[str, float]]:
    means: dict[str, dict[str, float]] = {}
    for one in figures_of(run):
        if (one.protocol, one.organizations) == (protocol, organizations):
            means.setdefault(one.row.name, {})[one.dataset] = one.mean
    return means


def _uci(run: Run) -> Iterator[TableFinding]:
    for organizations in run.table.organizations:
        found = _share_covered(run, organizations, "gal-linear")
        if found is not None:
            yield TableFinding(
                f"covered by GAL-Linear, {organizations} organizations",
                found.share,
                f"{organizations} organizations, per seed: GAL with linear models covers {found.share:.1%} "
                f"of the way from Alone to Joint ({found.words}).",
                {
                    "organizations": str(organizations),
                    "GAL, Linear covers of the way from Alone to Joint": f"{found.share:.1%}",
                    "mean over sets": str(found.sets),
                    "without (Joint within a standard deviation of Alone)": ", ".join(found.short),
                },
            )
    yield from _chosen_against_joint(run)
    for one in figures_of(run):
        if (one.row.name, one.dataset, one.protocol) == ("gal-gb", "BostonHousing", "per seed"):
            yield TableFinding(
                f"GAL-GB on BostonHousing, {one.organizations} organizations",
                one.mean,
                f"GAL with gradient boosting on BostonHousing, {one.organizations} organizations: "
                f"the final model's MAD is {one.mean:.2f}, the best round's {np.mean(one.best):.2f}.",
                {
                    "organizations": str(one.organizations),
                    "GAL, GB on BostonHousing: MAD of the final model": f"{one.mean:.2f}",
                    "of the best round": f"{np.mean(one.best):.2f}",
                },
            )


def _chosen_against_joint(run: Run) -> Iterator[TableFinding]:
    for organizations in run.table.organizations:
        figures = [
            one for one in figures_of(run) if (one.protocol, one.organizations) == ("per seed", organizations)
        ]
        chosen = {one.dataset: one for one in figures if one.row.name == "gal-chosen"}
        joint = {one.dataset: one for one in figures if one.row.name == "joint"}
        if not chosen or not joint:
            continue
        better = [name for name in chosen if ahead(chosen[name], joint[name]) > 0]
        yield TableFinding(
            f"GAL chosen against Joint-Linear, {organizations} organizations",
            len(better) / len(chosen),
            f"{organizations} organizations, per seed: GAL with the local model chosen on validation rows "
            "is better than "
            f"Joint with linear models on {len(better)} of {len(chosen)} sets"
            + (f" ({', '.join(better)})." if better else "."),
            {
                "organizations": str(organizations),
                "GAL, local model chosen on validation rows: better than Joint, Linear on": (
                    f"{len(better)} of {len(chosen)} sets"
                ),
                "which": ", ".join(better),
            },
        )


def _noise(run: Run) -> Iterator[TableFinding]:
    figures = {(one.row.name, one.dataset, one.organizations, one.protocol): one for one in figures_of(run)}
    for protocol in run.table.protocols:
        on = {
            place: one for place, one in figures.items() if place[0].endswith("on") and place[3] == protocol
        }
        gains = {
            place: ahead(one, figures[(place[0][: -len("on")] + "off", *place[1:])])
            for place, one in on.items()
        }
        yield from _at_least_as_good(protocol, "", list(gains.values()))
        clearly = sum(
            gain < -max(on[place].std, figures[(place[0][: -len("on")] + "off", *place[1:])].std)
            for place, gain in gains.items()
        )
        yield TableFinding(
            f"weights on clearly worse than off, {protocol}",
            float(clearly),
            f"Protocol *{protocol}*: with assistance weights it is worse by more than a standard deviation "
            f"in {clearly} of {len(gains)} noisy cells.",
        )
        for kind, words in NOISES.items():
            here = [gain for place, gain in gains.items() if place[0].startswith(kind)]
            yield from _at_least_as_good(protocol, f", {words}", here)
        most = max((place[2] for place in gains if isinstance(place[2], int)), default=0)
        here = [gain for place, gain in gains.items() if place[2] == most]
        yield from _at_least_as_good(protocol, f", {most} organizations", here)


NOISES = {"answers": "noise on answers", "residual": "noise on the residual", "columns": "noise as features"}


def _at_least_as_good(protocol: str, which: str, gains: Sequence[float]) -> Iterator[TableFinding]:
    if gains:
        good, ties = sum(gain >= 0 for gain in gains), sum(gain == 0 for gain in gains)
        yield TableFinding(
            f"weights on at least as good as off, {protocol}{which}",
            good / len(gains),
            f"Protocol *{protocol}*{which}: with assistance weights the final model is at least as good as "
            "with equal "
            f"ones in {good} of {len(gains)} noisy cells ({good / len(gains):.1%}; {ties} of them are "
            "equal).",
            {
                "protocol": f"*{protocol}*",
                "assistance weights against equal ones": which.removeprefix(", ") or "all noisy cells",
                "at least as good": f"{good} of {len(gains)} ({good / len(gains):.1%})",
                "of them equal": str(ties),
            },
        )


def _improvements(run: Run) -> Iterator[TableFinding]:
    figures = {(one.row.name, one.dataset): one for one in figures_of(run)}
    for row in run.table.rows:
        base = row.name.split("-")[0] + "-authors"
        pairs = [
            (figures[(row.name, name)], figures[(base, name)])
            for name in run.table.sets
            if (row.name, name) in figures and (base, name) in figures
        ]
        if row.name == base or not pairs:
            continue
        gains = [100 * ahead(one, other) / max(_error(other), 1e-9) for one, other in pairs]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        yield TableFinding(
            f"{row.label} against the authors' algorithm",
            float(np.median(gains)),
            f"{row.label}: the final model is better on {better} and worse on {worse} of {len(pairs)} sets; "
            "the error (MAD, or share of wrong classes) "
            + ("rises" if np.median(gains) < 0 else "falls")
            + f" by {abs(np.median(gains)):.1f} % in the median set.",
            {
                "": row.label,
                "better on": str(better),
                "worse on": str(worse),
                "of sets": str(len(pairs)),
                "error (MAD, or share of wrong classes) in the median set": (
                    ("+" if np.median(gains) < 0 else "−") + f"{abs(np.median(gains)):.1f} %"
                ),
            },
        )


def _error(figure: Figure) -> float:
    """MAD, or the share of wrong classes, at least a tenth of a percent."""
    return figure.mean if figure.metric == "mad" else max(100 - figure.mean, 0.1)


def _skewed(run: Run) -> Iterator[TableFinding]:
    found = _share_covered(run, run.table.organizations[0], "gal")
    if found is not None:
        words = f"GAL covers {found.share:.1%} of the way from Alone to Joint ({found.words})."
        yield TableFinding("covered by GAL, skewed partition", found.share, words)


def _scale(run: Run) -> Iterator[TableFinding]:
    rows = {row.name: row for row in run.table.rows}
    for dataset in run.table.sets:
        facts = {name: run.at(row, dataset, "by name", "per seed") for name, row in rows.items()}
        fact = next(name for name in ("auc", "accuracy", "r2") if name in facts["gal"][0].facts)
        alone, gal, pooled = (
            float(np.mean([one.facts[fact] for one in facts[name]])) for name in ("alone", "gal", "pooled")
        )
        value = share_covered(alone, gal, pooled)
        yield TableFinding(
            f"covered on {dataset}",
            value,
            f"{dataset}: from {alone:.4g} alone to {pooled:.4g} pooled ({facts['pooled'][0].chosen}), GAL "
            "reaches "
            f"{gal:.4g}, which is {value:.1%} of the way ({fact}).",
            {
                "": dataset,
                "measure": fact,
                "alone": f"{alone:.4g}",
                "GAL": f"{gal:.4g}",
                "pooled": f"{pooled:.4g} ({facts['pooled'][0].chosen})",
                "covered": f"{value:.1%}",
            },
        )


def _complexity(run: Run) -> Iterator[TableFinding]:
    rows = {row.name: row for row in run.table.rows}
    for fact, words in (
        ("critical_seconds", "times the seconds one after another"),
        ("trips", "times the round trips"),
        ("sent", "times the bytes sent"),
        ("stored_bytes", "times the space for local models"),
    ):
        ratios = []
        for place in run.table.places(rows["al"]):
            al, gal = (
                np.mean([one.facts[fact] for one in run.at(rows[name], *place)]) for name in ("al", "gal")
            )
            ratios.append(float(al / gal))
        value = float(np.median(ratios))
        yield TableFinding(
            f"AL over GAL, {fact}",
            value,
            f"AL needs {value:.2g} {words} of GAL (median set).",
            {
                "in the median set": words.removeprefix("times the "),
                "AL needs of GAL's": f"{value:.2g} times",
            },
        )


def _against_the_paper(run: Run) -> Iterator[TableFinding]:
    for protocol in run.table.protocols:
        figures = [one for one in figures_of(run) if one.paper is not None and one.protocol == protocol]
        if (
            run.table.deep
        ):  # what has everything in one place is one run, whatever the number of organizations
            figures = list(
                {
                    (
                        one.row.name,
                        one.dataset,
                        None if one.row.method in TOGETHER else one.organizations,
                    ): one
                    for one in figures
                }.values()
            )
        if not figures:
            continue
        counts = {
            verdict: sum(one.verdict == verdict for one in figures) for verdict in ("better", "", "worse")
        }
        what = {
            "paper": "best rounds on the test rows",
            OFFICIAL: "final models (with the paper preset: best rounds on the test rows)",
        }.get(protocol, "final models")
        yield TableFinding(
            f"against the paper, {protocol}",
            counts["worse"] / len(figures),
            f"Protocol *{protocol}*, {what} against the paper's figures: {counts['better']} better, "
            f"{counts['']} alike, "
            f"{counts['worse']} worse by more than a standard deviation, of {len(figures)}.",
            {
                "protocol": f"*{protocol}*",
                "against the paper's figures": what,
                "better": str(counts["better"]),
                "alike": str(counts[""]),
                "worse by more than a standard deviation": str(counts["worse"]),
                "of": str(len(figures)),
            },
        )
