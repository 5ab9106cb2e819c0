"""What a simulation found: sentences for the terminal and reports, and a report's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gal.evaluate.comparing import Verdict
from gal.evaluate.metrics import METRICS
from gal.evaluate.reporting.facts import (
    PRIVACY,
    Cells,
    Level,
    ReportFacts,
    ReportVerdict,
    computed_in_cells,
    contributions_section,
    learning_section,
    levels_in_cells,
    quality_section,
    traffic_section,
)
from gal.evaluate.simulation import Interval, Simulation
from gal.evaluate.understood import UsedColumn
from gal.evaluate.wording import names_in_words, number, share_in_words
from gal.learner.options import MOST_ROUNDS, ROUNDS, is_auto
from gal.models.reading.column_reading import shown
from gal.privacy.mechanisms.contract import statement

MEASURES = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²", "neg_mae": "minus the mean absolute error"}
CHANCE = {"auc": 0.5, "r2": 0.0}
"""What a model without any column reaches."""
STYLES: Mapping[Verdict, ReportVerdict] = {
    Verdict.GAIN: "helps",
    Verdict.NO_GAIN: "nothing",
    Verdict.UNCLEAR: "unclear",
    Verdict.HARM: "hurts",
}
COLUMNS_HEADER = ("column", "organization", "read as", "missing", "examples", "what was done")
LONGEST = 40
"""Characters of a name."""

NOTHING = "no partner adds anything that can be told from chance"
"""In words, what the verdict "no gain" is."""


def measure_of(found: Simulation) -> str:
    """What its scores are called."""
    return MEASURES.get(found.metric, found.metric.replace("_", " "))


def compared_lines(found: Simulation) -> list[tuple[str, str, Interval]]:
    """The compared models: a key, in words which model it is, and its score."""
    said = [("alone", f"{found.label_holder} alone (GAL's own learner)", found.alone)]
    if found.alone_tuned is not None:
        tuned = f"{found.label_holder} alone (tuned {found.alone_tuned_model})"
        said.append(("alone_tuned", tuned, found.alone_tuned))
    pooled = f"pooled (tuned {found.pooled_model} on all columns)"
    return [*said, ("assisted", "with assistance (GAL)", found.assisted), ("pooled", pooled, found.pooled)]


def answer_in_words(found: Simulation) -> str:
    """The verdict in one sentence, with the interval that it follows from."""
    gain, measure = found.gain, measure_of(found)
    if len(found.organizations) == 1:
        return f"Nobody else takes part: {measure} is {number(found.alone.value)} without assistance."
    between = f"(95 % confidence: {number(gain.low)} to {number(gain.high)})"
    scores = f"{measure} is {number(found.assisted.value)} instead of {number(found.alone.value)}"
    difference = f"a difference of {number(gain.value)} {between}"
    if found.verdict is Verdict.GAIN:
        return f"Yes: with assistance, {scores}, a gain of {number(gain.value)} {between}."
    if found.verdict is Verdict.HARM:
        return f"No, assistance does harm: with assistance, {scores}, {difference}."
    if found.verdict is Verdict.NO_GAIN:
        return f"No gain: {NOTHING}. With assistance, {scores}, {difference}."
    if gain.low > 0:
        return f"Not clear: with assistance, {scores}, {difference}, but a tuned model alone reaches as much."
    return f"Not clear: with assistance, {scores}, {difference}, which may be chance."


def details_in_words(found: Simulation) -> list[str]:
    """What follows the answer: scores in words, the share of the pooling gain, unused assistance."""
    metric, pooling = METRICS[found.metric], found.pooling_gain
    said = [
        f"Alone, the model of {found.label_holder} {metric.said(found.alone.value)}. "
        f"With assistance it {metric.said(found.assisted.value)}.{which_is_positive(found)}"
    ]
    between = f"(95 % confidence: {number(pooling.low)} to {number(pooling.high)})"
    if found.covered is not None:
        said.append(f"That is {share_in_words(found.covered)}, and no column would leave its organization.")
    elif found.verdict is Verdict.GAIN:
        said.append(
            f"What pooling adds, {number(pooling.value)} {between}, may be chance: no share of it is known."
        )
    elif pooling.low > 0:
        said.append(f"Pooling all columns would add {number(pooling.value)} {between}.")
    probes = [] if found.interaction_probes is None else [found.interaction_probes.sentence()]
    return [*said, *_tuned(found), *_unused(found), *probes]


def which_is_positive(found: Simulation) -> str:
    """Which class the words of the metric are about, where they are about one."""
    if METRICS[found.metric].needs != "positive" or found.quality is None:
        return ""
    return f" A positive case is a row of {found.quality.positive}."


def _tuned(found: Simulation) -> list[str]:
    """Where the label holder needs nobody to do better: a gain over a weaker model alone would flatter."""
    tuned = found.alone_tuned
    if tuned is None or not found.gain.low > 0 or tuned.value < found.assisted.value:
        return []
    return [
        f"A tuned {found.alone_tuned_model} on the columns of {found.label_holder} alone reaches "
        f"{number(tuned.value)}: take it as the local model before you ask others."
    ]


def _unused(found: Simulation) -> list[str]:
    """Where nothing, or no assistance, was better on validation rows."""
    splits, constant = len(found.rounds_used), sum(not rounds for rounds in found.rounds_used)
    if splits and constant == splits:
        return [
            "Nothing was learned that holds for other rows: no round was better on validation rows, so GAL "
            "predicts the same constant for every row."
        ]
    unused = sum(not one for one in found.assistance_used)
    if unused and len(found.organizations) > 1:
        return [
            f"In {unused} of {splits} splits of the cross-validation no organization helped on validation "
            "rows: assistance is not used there."
        ]
    return []


def facts_of_simulation(found: Simulation) -> ReportFacts:
    """Everything that was found."""
    measure, chance = measure_of(found), found.verdict is Verdict.NO_GAIN
    compared, losses = compared_lines(found), found.log_losses or {}
    levels = [Level(name, one.value, one.low, one.high) for _, name, one in compared]
    log_losses = [losses[key] for key, *_ in compared] if losses else []
    others = len(found.organizations) - 1
    others = len(found.organizations) - 1
    columns = [cells_of(one) for one in found.columns]
    return ReportFacts(
        title=f"Would assistance help {found.label_holder}?",
        question=f"Would assistance help {found.label_holder} to predict {found.target}?",
        answer=answer_in_words(found),
        verdict=STYLES[found.verdict],
        more=details_in_words(found),
        holder=found.label_holder,
        remarks=found.profile,
        sections={
            "How well": [levels_in_cells(measure, levels, log_losses), _judged(found), *_scale(found)],
            "Who brings what": contributions_section(
                found.contributions, measure, found.label_holder, chance=chance
            ),
            "Learning, round by round": learning_section(found.learning, "loss"),
            "How predictions fit the truth": quality_section(found.quality, found.target),
            "What would leave each organization": traffic_section(found.traffic, others),
            PRIVACY: _privacy(found),
            "What was in the table": [Cells(COLUMNS_HEADER, columns)] if columns else [],
            "How it was computed": computed_in_cells(_computed(found)),
        },
    )


def cells_of(one: UsedColumn) -> list[str]:
    """What is said of a column; control characters are written as what they are."""
    read = one.column
    kind = f"{read.kind} (as you said)" if read.declared else read.kind
    named = [shown(name, LONGEST) for name in (read.name, one.organization)]
    return [*named, kind, share(read.missing), ", ".join(read.examples), read.done]


def share(missing: float) -> str:
    """A share of rows; what is little is not none."""
    return "" if missing == 0 else "< 1 %" if missing < 0.01 else f"{missing:.0%}".replace("%", " %")


def _judged(found: Simulation) -> str:
    repeats = int(found.setting.get("repeats", 1))
    often = "" if repeats == 1 else f", in each of {repeats} cross-validations"
    return (
        f"{found.predicted_rows:,} of {found.rows:,} rows, each predicted by models that had not seen it"
        f"{often}. Intervals are of 95 %: they hold the chance of rows and that of training. The gain is "
        "paired row by row, so its interval is narrower than those of the scores."
    )


def _scale(found: Simulation) -> list[str]:
    """Where bars begin, if not at what chance reaches."""
    lowest, chance = min(one.low for *_, one in compared_lines(found)), CHANCE.get(found.metric, np.inf)
    return [f"Bars begin at {number(lowest)}, not at {chance:g}, what chance reaches."] * (lowest > chance)


def _privacy(found: Simulation) -> list[str | Cells]:
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


def _computed(found: Simulation) -> list[tuple[str, str]]:
    given = found.setting
    folds, repeats = int(given.get("parts", 0)), int(given.get("repeats", 1))
    often = "" if repeats == 1 else f", {repeats} times"
    how = f"cross-validation in {folds} folds{often}" if folds > 1 else "one test part, a fifth of the rows"
    return [
        ("verdict", found.verdict.value),
        ("compared", how),
        ("models", "; ".join(name for _, name, _ in compared_lines(found))),
        ("rounds", f"{_most(given.get('rounds'))}; used by split: {', '.join(map(str, found.rounds_used))}"),
        ("metric", found.metric),
        ("seed", str(given.get("seed"))),
        ("time", f"{found.seconds:.1f} s"),
        ("software", ", ".join(f"{name} {version}" for name, version in found.software.items())),
    ]


def _most(rounds: Any) -> str:
    return f"at most {ROUNDS}, or {MOST_ROUNDS} while they help" if is_auto(rounds) else f"at most {rounds}"


__all__ = [
    "COLUMNS_HEADER",
    "LONGEST",
    "NOTHING",
    "answer_in_words",
    "cells_of",
    "compared_lines",
    "details_in_words",
    "facts_of_simulation",
    "measure_of",
    "share",
]
