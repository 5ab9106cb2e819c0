"""A simulation as facts for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gal.engine.options import MOST_ROUNDS, ROUNDS, is_auto
from gal.evaluate.comparing.verdict import Verdict
from gal.evaluate.evidence import Exchange
from gal.evaluate.reporting.columns import columns_in_cells
from gal.evaluate.reporting.facts import Cells, Level, ReportFacts, ReportVerdict
from gal.evaluate.reporting.outcome import (
    answer_in_words,
    compared_lines,
    details_in_words,
    measure_of,
)
from gal.evaluate.simulation import Simulation
from gal.evaluate.wording import bytes_in_words, names_in_words
from gal.privacy.statements import statement

NAMES_SHOWN = 12


STYLES: Mapping[Verdict, ReportVerdict] = {
    Verdict.GAIN: "helps",
    Verdict.NO_GAIN: "nothing",
    Verdict.UNCLEAR: "unclear",
    Verdict.HARM: "hurts",
}


def facts_of_simulation(found: Simulation) -> ReportFacts:
    """Everything that was found."""
    return ReportFacts(
        title=f"Would assistance help {found.label_holder}?",
        question=f"Would assistance help {found.label_holder} to predict {found.target}?",
        answer=answer_in_words(found),
        verdict=STYLES[found.verdict],
        more=details_in_words(found),
        measure=measure_of(found),
        chance=_chance(found),
        levels=[Level(name, one.value, one.low, one.high) for _, name, one in compared_lines(found)],
        judged=_judged(found),
        holder=found.label_holder,
        contributions=found.contributions,
        worth=found.worth(),
        curves=found.learning,
        quality=found.quality,
        subject=found.target,
        left=_left(found, found.exchange),
        left_words=_left_words(found.exchange),
        privacy=_privacy(found),
        table=_table(found),
        columns=columns_in_cells(found.columns) if found.columns else None,
        remarks=found.profile,
        remarked=True,
        computed=_computed(found),
        plain=found.to_json(),
    )


def _chance(found: Simulation) -> float | None:
    """The score of a model that knows nothing; None where that is not known."""
    if found.metric == "accuracy" and found.quality is not None:
        rows = [one.rows for one in next(iter(found.quality.classes.values()))]
        return max(rows) / sum(rows)
    return {"auc": 0.5, "r2": 0.0}.get(found.metric)


def _judged(found: Simulation) -> str:
    repeats = int(found.setting.get("repeats", 1))
    often = "" if repeats == 1 else f", in each of {repeats} cross-validations"
    return (
        f"{found.predicted_rows:,} of {found.rows:,} rows, each predicted by models that had not seen it"
        f"{often}. Intervals are of 95 %: they hold the chance of rows and that of training. The gain is "
        "paired row by row, so its interval is narrower than those of the scores."
    )


def _left(found: Simulation, moved: Exchange | None) -> Cells | None:
    if moved is None or not moved.fitted:
        return None
    rows = [
        [
            found.label_holder,
            name,
            "residuals: how far off the model still is, row by row",
            bytes_in_words(size),
        ]
        for name, size in moved.residuals.items()
    ]
    rows += [
        [name, found.label_holder, "fitted values: what its model says of these rows", bytes_in_words(size)]
        for name, size in moved.fitted.items()
    ]
    return Cells(["from", "to", "what would leave", "size"], rows)


def _left_words(moved: Exchange | None) -> Sequence[str]:
    if moved is None or not moved.fitted:
        return ["Nobody else takes part: nothing would leave the house."]
    return [
        "This was computed on one machine: nothing has left any organization. If they did the same "
        "as nodes of their own, this is what would leave each house while they learn.",
        f"Sizes were counted in the first part of the evaluation: {moved.rows:,} rows, {moved.trips} round "
        "trips, without what a network adds. Columns, column names, models and labels would stay.",
    ]


def _privacy(found: Simulation) -> list[str]:
    others = [name for name in found.organizations if name != found.label_holder]
    if not others:
        return ["Nobody else takes part: there is nothing that others could learn."]
    return [
        f"What {names_in_words(others)} could learn about {found.label_holder}: this was computed without "
        f"protection. {statement(None).words}",
        f"What {found.label_holder} could learn about the others: every fitted value tells something of "
        "their columns. With few columns and many rounds one can come close to them.",
        "How much that is, gal leakage measures: it attacks what would be sent, with and without protection.",
    ]


def _table(found: Simulation) -> Cells:
    rows = [
        [name, f"{len(columns):,}", _some(columns), "yes" if name == found.label_holder else ""]
        for name, columns in found.organizations.items()
    ]
    return Cells(["organization", "columns", "which", "holds the label"], rows)


def _some(columns: Sequence[str]) -> str:
    rest = len(columns) - NAMES_SHOWN
    return ", ".join(columns[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _computed(found: Simulation) -> list[tuple[str, str]]:
    given = found.setting
    folds, repeats = int(given.get("parts", 0)), int(given.get("repeats", 1))
    often = "" if repeats == 1 else f", {repeats} times"
    how = f"cross-validation in {folds} folds{often}" if folds > 1 else "one test part, a fifth of the rows"
    said = [
        ("verdict", found.verdict.value),
        ("compared", how),
        ("models", "; ".join(name for _, name, _ in compared_lines(found))),
        ("rounds", f"{_most(given.get('rounds'))}; used by split: {', '.join(map(str, found.rounds_used))}"),
        ("metric", found.metric),
        ("seed", str(given.get("seed"))),
        ("time", f"{found.seconds:.1f} s"),
        ("software", ", ".join(f"{name} {version}" for name, version in found.software.items())),
    ]
    return [(name, value) for name, value in said if value]


def _most(rounds: Any) -> str:
    return f"at most {ROUNDS}, or {MOST_ROUNDS} while they help" if is_auto(rounds) else f"at most {rounds}"


__all__ = ["facts_of_simulation"]
