"""A simulation as facts for a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gal.engine.options import MOST_ROUNDS, ROUNDS, is_auto
from gal.evaluate.evidence import Exchange
from gal.evaluate.metrics import metric_named
from gal.evaluate.reporting.facts import MEASURES, Cells, Level, ReportFacts
from gal.evaluate.simulation import Interval, Simulation
from gal.evaluate.wording import bytes_in_words, names_in_words, number, way_in_words
from gal.privacy.statements import statement

NAMES_SHOWN = 12


def facts_of_simulation(found: Simulation) -> ReportFacts:
    """Everything that was found."""
    measure = MEASURES.get(found.metric, found.metric.replace("_", " "))
    return ReportFacts(
        title=f"Would assistance help {found.label_holder}?",
        question=f"Would assistance help {found.label_holder} to predict {found.target}?",
        answer=_answer(found, measure),
        verdict="helps" if found.gain.low > 0 else "hurts" if found.gain.high < 0 else "unclear",
        more=_more(found),
        measure=measure,
        levels=[
            _level(f"{found.label_holder} alone", found.alone),
            _level("with assistance", found.assisted),
            _level("all columns in one place", found.pooled),
        ],
        judged=(
            f"{found.predicted_rows:,} of {found.rows:,} rows, each predicted by models that had not "
            "seen it. Intervals are 95 % bootstraps over these rows."
        ),
        holder=found.label_holder,
        shares=found.shares,
        worth=found.worth(),
        curves=found.learning,
        quality=found.quality,
        subject=found.target,
        left=_left(found, found.exchange),
        left_words=_left_words(found.exchange),
        privacy=_privacy(found),
        table=_table(found),
        remarks=found.profile,
        remarked=True,
        computed=_computed(found),
        plain=found.to_json(),
    )


def _level(name: str, one: Interval) -> Level:
    return Level(name, one.value, one.low, one.high)


def _answer(found: Simulation, measure: str) -> str:
    gain = found.gain
    if gain.value == gain.low == gain.high == 0 and not any(found.assistance_used):
        return (
            "No: no organization helped on the rows that validate, so assistance is not used, and "
            f"{measure} stays {number(found.alone.value)}."
        )
    start = {
        True: "Yes: with assistance",
        False: "No clear difference: with assistance",
    }[gain.low > 0]
    if gain.high < 0:
        start = "No, it would hurt: with assistance"
    how = f"{start}, {measure} is {number(found.assisted.value)} instead of {number(found.alone.value)}"
    return (
        f"{how}, a gain of {number(gain.value)} (95 % confidence: {number(gain.low)} to {number(gain.high)})."
    )


def _more(found: Simulation) -> list[str]:
    metric = metric_named(found.metric)
    said = [
        f"Alone, the model of {found.label_holder} {metric.said(found.alone.value)}. "
        f"With assistance it {metric.said(found.assisted.value)}.{which_is_positive(found)}"
    ]
    if found.covered is not None and found.gain.value > 0:
        said.append(
            f"That is {way_in_words(found.covered)} to pooling all data, and no column would leave its "
            "organization."
        )
    unused = sum(not one for one in found.assistance_used)
    if unused and len(found.organizations) > 1:
        said.append(
            f"In {unused} of {len(found.assistance_used)} parts of the cross-validation no organization "
            "helped on the rows that validate: assistance is not used there."
        )
    if found.interaction_probes is not None:
        said.append(found.interaction_probes.sentence())
    return said


def which_is_positive(found: Simulation) -> str:
    """Which class the words of the metric are about, where they are about one."""
    if metric_named(found.metric).needs != "positive" or found.quality is None:
        return ""
    return f" A positive case is a row of {found.quality.positive}."


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
        "This was computed in one place: nothing has left anybody's house. If the organizations did the same "
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
    parts = int(given.get("parts", 0))
    how = f"cross-validation in {parts} parts" if parts > 1 else "one test part, a fifth of the rows"
    said = [
        ("compared", f"alone, assisted and pooled ({found.pooled_model}), {how}"),
        ("rounds", f"{_most(given.get('rounds'))}; used by part: {', '.join(map(str, found.rounds_used))}"),
        ("coalitions", "learned with each" if given.get("relearned") else "estimated from what all say"),
        ("metric", found.metric),
        ("seed", str(given.get("seed"))),
        ("time", f"{found.seconds:.1f} s"),
        ("software", ", ".join(f"{name} {version}" for name, version in found.software.items())),
    ]
    return [(name, value) for name, value in said if value]


def _most(rounds: Any) -> str:
    return f"at most {ROUNDS}, or {MOST_ROUNDS} while they help" if is_auto(rounds) else f"at most {rounds}"


__all__ = ["facts_of_simulation", "which_is_positive"]
