"""A simulation in words: sentences for the terminal, and the facts of its report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gal.evaluate.comparing import Verdict
from gal.evaluate.metrics import METRICS
from gal.evaluate.probe_gain import ProbeGain
from gal.evaluate.profile import UsedColumn
from gal.evaluate.reporting.facts import (
    COLUMNS,
    CONTRIBUTIONS,
    PRIVACY,
    SCORES,
    Cells,
    Level,
    ReportFacts,
    ReportVerdict,
    computed_section,
    confidence,
    contributions_section,
    learning_section,
    number,
    quality_section,
    scores_table,
    traffic_section,
)
from gal.evaluate.simulation import Interval, Simulation
from gal.learner.options import MOST_ROUNDS, ROUNDS, is_auto
from gal.models.reading.column_reading import shown
from gal.privacy.mechanisms.contract import statement

MEASURES = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²", "neg_mae": "minus the mean absolute error"}
CHANCE = {"auc": 0.5, "r2": 0.0}
"""The score of a model without any column."""
STYLES: Mapping[Verdict, ReportVerdict] = {
    Verdict.GAIN: "helps",
    Verdict.NO_GAIN: "nothing",
    Verdict.UNCLEAR: "unclear",
    Verdict.HARM: "hurts",
}
COLUMNS_HEADER = ("column", "organization", "read as", "missing", "examples", "what was done")
LONGEST = 40
"""Characters of a name."""
NOTHING = "no partner adds anything significant"
"""The verdict "no gain" in words."""


def measure_of(metric: str) -> str:
    """The name of a metric for people."""
    return MEASURES.get(metric, metric.replace("_", " "))


def compared_models(found: Simulation) -> list[tuple[str, str, Interval]]:
    """The compared models: a key, the model in words, and its score."""
    holder = found.label_holder
    models = [("alone", f"{holder} alone (GAL's own learner)", found.alone)]
    if found.alone_tuned is not None:
        models.append(("alone_tuned", f"{holder} alone (tuned {found.alone_tuned_model})", found.alone_tuned))
    pooled = f"pooled (tuned {found.pooled_model} on all columns)"
    return [*models, ("assisted", "with assistance (GAL)", found.assisted), ("pooled", pooled, found.pooled)]


def answer_in_words(found: Simulation) -> str:
    """The verdict in one sentence, with the interval that it follows from."""
    gain, measure = found.gain, measure_of(found.metric)
    if len(found.organizations) == 1:
        return (
            f"No assistance was compared, because there is one organization: {measure} is "
            f"{number(found.alone.value)}. Divide the columns among several."
        )
    scores = f"{measure} is {number(found.assisted.value)} instead of {number(found.alone.value)}"
    difference = f"a difference of {number(gain.value)} {confidence(gain.low, gain.high)}"
    if found.verdict is Verdict.GAIN:
        return f"Yes: with assistance, {scores}, {difference.replace('difference', 'gain', 1)}."
    if found.verdict is Verdict.HARM:
        return f"No, assistance does harm: with assistance, {scores}, {difference}."
    if found.verdict is Verdict.NO_GAIN:
        return f"No gain: {NOTHING}. With assistance, {scores}, {difference}."
    if gain.low > 0:
        return f"Not clear: with assistance, {scores}, {difference}, but a tuned model alone is as good."
    return f"Not clear: with assistance, {scores}, {difference}, which may be chance."


def details_in_words(found: Simulation) -> list[str]:
    """The sentences after the answer: scores, the share of the pooling gain, unused assistance."""
    metric, pooling, holder = METRICS[found.metric], found.pooling_gain, found.label_holder
    sentences = [f"Alone, the model of {holder} {metric.sentence(found.alone.value)}."]
    if len(found.organizations) > 1:
        sentences.append(f"With assistance it {metric.sentence(found.assisted.value)}.")
    if metric.needs == "positive" and found.quality is not None:
        sentences.append(f"A positive case is a row of {found.quality.positive}.")
    if found.covered is not None:
        sentences.append(
            f"That is {share_in_words(found.covered)}, and no column would leave its organization."
        )
    elif found.verdict is Verdict.GAIN:
        sentences.append(
            f"What pooling adds, {number(pooling.value)} {confidence(pooling.low, pooling.high)}, may be "
            "chance: no share of it is known."
        )
    elif pooling.low > 0:
        sentences.append(
            f"Pooling all columns would add {number(pooling.value)} {confidence(pooling.low, pooling.high)}."
        )
    tuned = found.alone_tuned
    if tuned is not None and found.gain.low > 0 and tuned.value >= found.assisted.value:
        sentences.append(
            f"A tuned {found.alone_tuned_model} on the columns of {holder} alone reaches "
            f"{number(tuned.value)}: use it as the local model of {holder} (model = in the file of "
            "organizations) and simulate again."
        )
    splits, constant = len(found.rounds_used), sum(not rounds for rounds in found.rounds_used)
    unused = sum(not one for one in found.assistance_used)
    if splits and constant == splits:
        sentences.append(
            "No round was better than a constant on validation rows, so GAL predicts the same constant for "
            "every row."
        )
    elif unused and len(found.organizations) > 1:
        sentences.append(
            f"In {unused} of {splits} splits of the cross-validation no organization helped on validation "
            "rows: assistance is not used there."
        )
    if found.interaction_probes is not None:
        sentences.append(probes_in_words(found.interaction_probes))
    return sentences


def share_in_words(share: float) -> str:
    """A share of the pooling gain.

    >>> share_in_words(0.59), share_in_words(0.996), share_in_words(1.16)
    ('59% of the pooling gain', 'as good as pooled', 'as good as pooled')
    """
    return "as good as pooled" if share >= 0.995 else f"{share:.0%} of the pooling gain"


def probes_in_words(found: ProbeGain) -> str:
    """The gain of interaction probes, and the columns that they would reveal."""
    return (
        f"With interaction probes (interactions=True): {measure_of(found.metric)} {number(found.probed)} "
        f"instead of {number(found.without)} (learned from {found.learned_rows:,} rows, measured on "
        f"{found.validation_rows:,} others). They are off by default. {found.reveals} "
        "See docs/concepts/privacy.md#interaction-probes"
    )


def facts_of_simulation(found: Simulation) -> ReportFacts:
    """Everything in the report of a simulation."""
    measure, compared, losses = measure_of(found.metric), compared_models(found), found.log_losses or {}
    levels = [Level(name, one.value, one.low, one.high) for _, name, one in compared]
    log_losses = [losses[key] for key, *_ in compared] if losses else []
    columns = [column_cells(one) for one in found.columns]
    return ReportFacts(
        title=f"Would assistance help {found.label_holder}?",
        question=f"Would assistance help {found.label_holder} to predict {found.target}?",
        answer=answer_in_words(found),
        verdict=STYLES[found.verdict],
        more=details_in_words(found),
        holder=found.label_holder,
        remarks=found.profile,
        sections={
            SCORES: [scores_table(measure, levels, log_losses), rows_in_words(found), *_scale(found)],
            CONTRIBUTIONS: contributions_section(
                found.contributions, measure, found.label_holder, chance=found.verdict is Verdict.NO_GAIN
            ),
            "Loss by round": learning_section(found.learning, "loss"),
            "Predicted against true": quality_section(found.quality, found.target),
            "What would leave each organization": traffic_section(
                found.traffic, len(found.organizations) - 1
            ),
            PRIVACY: _privacy(found),
            COLUMNS: [Cells(COLUMNS_HEADER, columns)] if columns else [],
            "How it was computed": computed_section(_computed(found)),
        },
    )


def column_cells(one: UsedColumn) -> list[str]:
    """A column in a table: control characters are escaped."""
    read = one.column
    kind = f"{read.kind} (from --column)" if read.declared else read.kind
    named = [shown(name, LONGEST) for name in (read.name, one.organization)]
    return [*named, kind, missing_share(read.missing), ", ".join(read.examples), read.done]


def missing_share(missing: float) -> str:
    """A share of rows; a small one is not 0."""
    return "" if missing == 0 else "< 1 %" if missing < 0.01 else f"{missing:.0%}".replace("%", " %")


def rows_in_words(found: Simulation) -> str:
    """The rows that scores are measured on, and what intervals contain."""
    repeats = int(found.setting.get("repeats", 1))
    often = "" if repeats == 1 else f", in each of {repeats} cross-validations"
    return (
        f"{found.predicted_rows:,} of {found.rows:,} rows, each predicted by models that were not fitted to "
        f"it{often}. Intervals of 95 % contain the variance of rows and of training. The gain is paired row "
        "by row, so its interval is narrower than those of the scores."
    )


def _scale(found: Simulation) -> list[str]:
    """The left end of the bars, where it is not the score of chance."""
    lowest, chance = min(one.low for *_, one in compared_models(found)), CHANCE.get(found.metric, np.inf)
    return [f"Bars begin at {number(lowest)}; a random guess has {chance:g}."] * (lowest > chance)


def _privacy(found: Simulation) -> list[str | Cells]:
    others = [name for name in found.organizations if name != found.label_holder]
    if not others:
        return []
    names = " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
    return [
        f"What {names} could learn about {found.label_holder}: this was computed without "
        f"protection. {statement(None).words}",
        f"What {found.label_holder} could learn about the others: every fitted value depends on their "
        "columns. With few columns and many rounds it can estimate them closely.",
        "gal leakage measures how closely: it attacks what would be sent, with and without protection.",
    ]


def _computed(found: Simulation) -> list[tuple[str, str]]:
    given = found.setting
    folds, repeats, rounds = int(given.get("parts", 0)), int(given.get("repeats", 1)), given.get("rounds")
    often = "" if repeats == 1 else f", {repeats} times"
    how = f"cross-validation in {folds} folds{often}" if folds > 1 else "a fifth of the rows, held out"
    most = f"at most {ROUNDS}, or {MOST_ROUNDS} while they help" if is_auto(rounds) else f"at most {rounds}"
    return [
        ("verdict", found.verdict.value),
        ("compared on", how),
        ("models", "; ".join(name for _, name, _ in compared_models(found))),
        ("rounds", f"{most}; used by split: {', '.join(map(str, found.rounds_used))}"),
        ("metric", found.metric),
        ("seed", str(given.get("seed"))),
        ("time", f"{found.seconds:.1f} s"),
        ("software", ", ".join(f"{name} {version}" for name, version in found.software.items())),
    ]
