"""What tables about privacy say in a few figures: what leaks, what a guarantee costs, and
how ours stands to the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gal_bench.cells import Outcome
from gal_bench.pages.findings import TableFinding, share_covered
from gal_bench.pages.leaks import Leak, allowed, leak_of, percent
from gal_bench.pages.tables import Figure, ahead, figures_of, who
from gal_bench.runner import Run
from gal_bench.runs.mechanisms import NOISY_LABELS
from gal_bench.specs import RowSpec


def leakage_findings(run: Run) -> Iterator[TableFinding]:
    """Of every row that was attacked: what leaks, what may, and how much of what assistance gains is left."""
    for protocol in run.table.protocols:
        for row in run.table.rows:
            places = [place for place in run.table.places(row) if place[2] == protocol]
            outcomes = [one for place in places for one in run.at(row, *place)]
            leak = leak_of(outcomes)
            if leak is not None:
                bound, kept = _allowed(outcomes, leak), _kept(run, row, protocol)
                words = (
                    f"Protocol *{protocol}*, {row.label}: the best attack guesses {leak.canaries} of "
                    f"{leak.canaries.of} canaries{_known(row, leak, ' ({})')}"
                )
                words += f", the guarantee allows {bound}" if bound else ", nothing is guaranteed"
                words += (
                    f"; {kept[0]} of what assistance gains over Alone is left ({kept[1]})" if kept else ""
                )
                cells = {
                    "protocol": f"*{protocol}*",
                    "row": row.label,
                    "the best attack guesses": f"{leak.canaries} of {leak.canaries.of} canaries",
                    "note": _known(row, leak, "{}"),
                    "allowed": bound or "nothing is guaranteed",
                    "left of what assistance gains over Alone": f"{kept[0]} ({kept[1]})" if kept else "",
                }
                name = f"canaries guessed, {row.label}, {protocol}"
                yield TableFinding(name, leak.canaries.value, f"{words}.", cells)


def _known(row: RowSpec, leak: Leak, put: str) -> str:
    """What the best attack gets without the label holder's outputs, if it is given them and that matters."""
    if row.privacy is None and leak.uninformed.right == leak.uninformed.of:
        return put.format("every training label is known to every organization")
    if leak.uninformed.right < leak.canaries.right:
        return put.format(f"{percent(leak.uninformed)} without knowing the label holder's outputs")
    return ""


def _allowed(outcomes: Sequence[Outcome], leak: Leak) -> str:
    """The mean of what the guarantees allow for these canaries: it depends on the number of classes."""
    if leak.bound is None:
        return ""
    counts = [(one.leak["bound"], one.leak["attacks"][leak.attack]["canaries"][1]) for one in outcomes]
    mean = sum(bound * count for bound, count in counts) / max(sum(count for _, count in counts), 1)
    return allowed(mean)


def _kept(run: Run, row: RowSpec, protocol: str) -> tuple[str, str] | None:
    """How much of what GAL without a mechanism gains over Alone is left, where that is
    more than a standard deviation; and of how many figures this is the median.
    """
    if row.privacy is None:
        return None
    figures = {
        (one.row.name, one.dataset, one.organizations): one
        for one in figures_of(run)
        if one.protocol == protocol
    }
    kept = []
    for (name, dataset, size), one in figures.items():
        alone, plain = (figures.get((other, dataset, size)) for other in ("alone", "gal"))
        if name != row.name or alone is None or plain is None:
            continue
        if ahead(plain, alone) > max(alone.std, plain.std):
            kept.append(share_covered(alone.mean, one.mean, plain.mean))
    return (f"{100 * np.median(kept):.0f} %", f"median of {len(kept)} figures") if kept else None


def guarantees(run: Run) -> Iterator[TableFinding]:
    """The same, whether attacks found more than is allowed, and a comparison with
    the paper's Laplace mechanism.
    """
    yield from leakage_findings(run)
    leaks = [one.leak for one in figures_of(run) if one.leak is not None and one.leak.bound is not None]
    if leaks:
        above = sum(leak.exceeds for leak in leaks)
        yield TableFinding(
            "figures above the guarantee",
            above / len(leaks),
            "Figures with a guarantee in which the best attack's interval lies above what is allowed: "
            f"{above} of "
            f"{len(leaks)} (one in forty would by chance, and a few more because the best of several "
            "attacks is taken).",
        )
    for organizations in run.table.organizations:
        yield from _against_laplace(run, organizations)


def _against_laplace(run: Run, organizations: int | str) -> Iterator[TableFinding]:
    """Noisy labels that may leak no more than was found under the paper's Laplace
    mechanism: the largest such epsilon.
    """
    here = [one for one in figures_of(run) if one.organizations == organizations]
    gains: dict[str, float] = {}
    too_many = []
    for theirs in (one for one in here if one.row.privacy == "paper-laplace" and one.leak is not None):
        ours = _as_tight(here, theirs)
        if ours is None:
            too_many.append(theirs.dataset)
        else:
            gains[theirs.dataset] = ahead(ours, theirs)
    if not gains:
        return
    good = [name for name, gain in gains.items() if gain >= -1e-9]  # equal up to rounding
    worse = [name for name in gains if name not in good]
    said = (
        f"{who(organizations)}: with the largest ε whose guarantee allows no more than attacks found under "
        "the paper's Laplace "
        f"mechanism, noisy labels are at least as accurate on {len(good)} of {len(gains)} sets"
    )
    said += f" (not on {', '.join(worse)})" if worse else ""
    said += f"; none of our ε is as tight on {', '.join(too_many)}" if too_many else ""
    cells = {
        "organizations": str(organizations),
        "noisy labels, with the largest ε that allows no more than attacks found under the paper's Laplace: "
        "at least as accurate on": f"{len(good)} of {len(gains)} sets",
        "not on": ", ".join(worse),
        "none of our ε is as tight on": ", ".join(too_many),
    }
    name = f"noisy labels against the paper's Laplace, {organizations}"
    yield TableFinding(name, len(good) / len(gains), f"{said}.", cells)


def _as_tight(figures: Sequence[Figure], theirs: Figure) -> Figure | None:
    """The figure of noisy labels with the largest epsilon whose bound is not above what leaks there."""
    found = [
        one
        for one in figures
        if one.row.privacy == NOISY_LABELS
        and one.dataset == theirs.dataset
        and one.leak is not None
        and one.leak.bound is not None
        and theirs.leak is not None
        and one.leak.bound <= theirs.leak.canaries.value
    ]
    return max(found, key=lambda one: one.row.epsilon or 0.0, default=None)
