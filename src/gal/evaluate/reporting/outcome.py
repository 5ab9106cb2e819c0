"""What a simulation found, in the sentences that the terminal and reports have in common."""

from __future__ import annotations

from gal.evaluate.comparing.verdict import Verdict
from gal.evaluate.metrics import metric_named
from gal.evaluate.reporting.facts import MEASURES
from gal.evaluate.simulation import Interval, Simulation
from gal.evaluate.wording import number, share_in_words

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
    metric, pooling = metric_named(found.metric), found.pooling_gain
    said = [
        f"Alone, the model of {found.label_holder} {metric.said(found.alone.value)}. "
        f"With assistance it {metric.said(found.assisted.value)}.{which_is_positive(found)}"
    ]
    between = f"(95 % confidence: {number(pooling.low)} to {number(pooling.high)})"
    if found.covered is not None:
        said.append(_share(found))
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
    if metric_named(found.metric).needs != "positive" or found.quality is None:
        return ""
    return f" A positive case is a row of {found.quality.positive}."


def _share(found: Simulation) -> str:
    assert found.covered is not None
    said = f"That is {share_in_words(found.covered)}, and no column would leave its organization."
    by_log_loss = found.covered_by_log_loss
    if by_log_loss is None:
        return said
    if by_log_loss < 0:
        return f"{said} In log loss it is worse than alone."
    return f"{said} In log loss it is {share_in_words(by_log_loss)}."


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


__all__ = [
    "NOTHING",
    "answer_in_words",
    "compared_lines",
    "details_in_words",
    "measure_of",
    "which_is_positive",
]
