"""A version of a task in words, for terminal and reports (losses: lower is better)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gal.core.contributions import Contributions
from gal.core.outcome import Decision, TaskOutcome
from gal.core.state import restored
from gal.evaluate.reporting.facts import (
    CONTRIBUTIONS,
    PRIVACY,
    SCORES,
    Cells,
    Level,
    ReportFacts,
    ReportVerdict,
    bytes_in_words,
    computed_section,
    confidence,
    contributions_section,
    learning_section,
    number,
    scores_table,
)
from gal.evaluate.simulation import software
from gal.learner.observing import LearningCurve
from gal.secure_aggregation.terms import SUM

if TYPE_CHECKING:
    from gal.node.store.audit import Total

ROWS = "Rows"
"""The heading of the rows that organizations know."""
MESSAGES = {
    "begin": "row ids, or tokens for them",
    "begun": "which of these rows it knows",
    "fit": "residuals, one per row and output",
    "fitted": "fitted values, one per row and output",
    "predict": "ids of rows to predict",
    "predicted": "predictions of its models for these rows",
    "blind": "blinded ids, for private set intersection",
    "blinded": "blinded ids, for private set intersection",
    "total": "ids of rows to predict",
    "found": "which of these rows it knows",
    "masked": "masked values: only their sum over all organizations is readable",
}
"""Kinds of messages about rows; the others are small and carry terms only."""
COLUMNS_LEAK = (
    "Every fitted value depends on the columns of its organization. With few columns and many rounds the "
    "label holder can estimate them closely: gal leakage measures how closely."
)


def facts_of_version(
    facts: Mapping[str, Any],
    *,
    moved: Iterable[Total] = (),
    privacy: Sequence[str] = (),
    versions: Cells | None = None,
) -> ReportFacts:
    """The report of a version: from ``gal learn --json``, and the audit log's totals of its task."""
    name = f"{facts['task']}, version {facts['version']}"
    words = (facts.get("privacy") or {}).get("words")
    loss, holder = str(facts.get("loss", "loss")).replace("_", " "), facts.get("label_holder")
    found = restored(Contributions, facts.get("contributions"))
    compared = {
        "before the first round": facts.get("initial_validation_loss"),
        f"{holder} alone": facts.get("alone_validation_loss"),
        "with assistance": facts.get("assisted_validation_loss"),
    }
    levels = [Level(one, float(value)) for one, value in compared.items() if value is not None]
    answer, verdict = _answer(facts, loss, found)
    validated = found is not None and found.rows != "training"
    measured_on = f"{found.n_rows:,} rows that were not fitted ({found.rows})" if found and validated else ""
    curve = facts.get("learning")
    return ReportFacts(
        title=f"{name}: did assistance help?",
        question=f"{name}: did assistance help {holder}?",
        answer=answer,
        verdict=verdict,
        more=_more(facts),
        holder=holder,
        sections={
            SCORES: [
                scores_table(f"{loss} (lower is better)", levels),
                f"The mean {loss} on {measured_on or 'rows that were not fitted'}.",
            ]
            if levels
            else [],
            CONTRIBUTIONS: contributions_section(found, loss, holder),
            "Loss by round": learning_section([] if curve is None else [LearningCurve(**curve)], loss),
            "What left each organization": _left(left_cells(moved, str(holder))),
            PRIVACY: [*([str(words)] if words else []), *privacy, COLUMNS_LEAK],
            ROWS: _known_rows(facts),
            "Versions": [] if versions is None else [versions],
            "How it was computed": computed_section(_computed(facts)),
        },
    )


def left_cells(moved: Iterable[Total], holder: str) -> Cells | None:
    """Messages about rows by sender and receiver, from the audit log's totals; None where there are none."""
    rows = []
    for one in moved:
        if one.kind in MESSAGES and one.direction in {"in", "out"}:
            ends = [holder, one.peer] if one.direction == "out" else [one.peer, holder]
            rows.append([*ends, MESSAGES[one.kind], f"{one.messages:,}", bytes_in_words(one.n_bytes)])
    return Cells(["from", "to", "content", "messages", "size"], rows) if rows else None


def baseline_reason(facts: Mapping[str, Any]) -> str:
    """Why assistance is not used, in a sentence."""
    outcome = restored(TaskOutcome, facts.get("outcome"))
    better = "on rows that were not fitted, the label holder alone was better: assistance is not used."
    if outcome is not None and outcome.decision is Decision.MEMORIZATION:
        names = ", ".join(outcome.memorizers) or "some organization"
        return (
            f"{names} repeats residuals that it was sent (memorization), and was left out. Without it, "
            f"{better} Learn again with validation rows (gal invite -o fitted=held-out), or without {names}."
        )
    if outcome is not None and outcome.decision is Decision.WORSE_ON_SENTINEL:
        return (
            "assistance was worse on rows of the sentinel fold, which was predicted before any of its rows "
            "were sent: assistance is not used."
        )
    return better


def _answer(facts: Mapping[str, Any], loss: str, found: Contributions | None) -> tuple[str, ReportVerdict]:
    alone, assisted = facts.get("alone_validation_loss"), facts.get("assisted_validation_loss")
    if facts.get("track") == "alone":
        return f"No: {baseline_reason(facts)}", "hurts"
    if found is None or found.rows == "training" or not found.by_organization:
        if alone is None or assisted is None:
            return "Not known: there were no validation rows.", "unclear"
        losses = f"the {loss} is {number(assisted)}, and {number(alone)} alone"
        return f"On rows that were not fitted {losses}; no interval is known.", "unclear"
    gain = found.gain
    answer, verdict = _ANSWERS["helps" if gain.low > 0 else "hurts" if gain.high < 0 else "unclear"]
    before = "" if alone is None else f", from {number(alone)} alone"
    change = f"by {number(abs(gain.value))} {confidence(gain.low, gain.high)}{before}"
    verb = "lowers" if gain.value >= 0 else "raises"
    return f"{answer}: assistance {verb} the {loss} {change}, on rows that were not fitted.", verdict


_ANSWERS: Mapping[str, tuple[str, ReportVerdict]] = {
    "helps": ("Yes", "helps"),
    "hurts": ("No, it hurts", "hurts"),
    "unclear": ("No significant difference", "unclear"),
}


def _more(facts: Mapping[str, Any]) -> list[str]:
    """The sentences below the answer, in the terminal and in reports."""
    rows = "" if facts.get("n_rows") is None else f", on {facts['n_rows']:,} rows"
    sentences = [
        f"The model uses {facts['rounds']} of {facts['rounds_learned']} rounds{rows}. The loss on fitted "
        f"rows fell from {number(facts['initial_train_loss'])} to {number(facts['train_loss'])}."
        f"{_shrunk(facts)}"
    ]
    if facts.get("stacker") is not None:
        sentences.append(f"A stacker on all fitted values is blended in with weight {facts['stacker']:.0%}.")
    if facts.get("probes") is not None:
        sentences.append(f"Interaction probes are blended in with weight {facts['probes']:.0%}.")
    sentences += _on_true_labels(facts)
    if facts.get("why_not_active"):
        stays = f"version {facts['active']} stays active" if facts["active"] else "no version is active"
        sentences.append(
            f"This version is not active: {facts['why_not_active']}; {stays}. To use it all the same: gal "
            f"versions {facts['task']} --activate {facts['version']}"
        )
    for name, missed in (facts.get("missed") or {}).items():
        sentences.append(
            f"{name} missed round{'' if len(missed) == 1 else 's'} {', '.join(map(str, missed))}."
        )
    return sentences


def _shrunk(facts: Mapping[str, Any]) -> str:
    """Why the loss of the last round is lower than the version's: the steps were shrunk."""
    curve, found = facts.get("learning"), restored(Contributions, facts.get("contributions"))
    if not curve or found is None or found.rows != "cross-validation" or facts.get("refitted"):
        return ""
    reached = curve["train"][curve["used"]]
    if number(reached) == number(facts["train_loss"]) or reached > facts["train_loss"]:
        return ""
    return (
        f" It is above the {number(reached)} of the last used round: the cross-validation shrank all steps."
    )


def _on_true_labels(facts: Mapping[str, Any]) -> list[str]:
    """The models that a version with label DP has refitted to the true labels."""
    if not facts.get("refitted"):
        if (facts.get("privacy") or {}).get("mechanism", "none") == "none":
            return []
        why = facts.get("refit_problem", "it would be no better, or there are too few rows")
        return [f"The model on the noisy labels predicts, without a private refit: {why}."]
    words = str(facts.get("refit_words") or "")
    return [
        "Losses and contributions here are of the model on the noisy labels. On the true labels, which stay "
        f"here, its loss is {number(facts['public_true_loss'])}. The private refit, which predicts, has "
        f"{number(facts['private_true_loss'])}.",
        *([words] if words else []),
    ]


def _left(left: Cells | None) -> list[str | Cells]:
    if left is None:
        return ["The audit log has no message of this task."]
    return [
        "From this node's audit log, for all versions of the task. No message contains columns, models or "
        "labels. Messages between other organizations are in their own logs.",
        left,
    ]


def _known_rows(facts: Mapping[str, Any]) -> list[str | Cells]:
    """The rows that each organization knows; with secure aggregation all know all rows."""
    known, unknown = facts.get("known_rows") or {}, facts.get("unknown_rows") or {}
    rows = [[name, f"{count:,}", f"{unknown.get(name, 0):,}"] for name, count in known.items()]
    if SUM in ((facts.get("contributions") or {}).get("by_organization") or {}):
        rows.append([SUM, f"{facts['n_rows']:,}", "0"])
    return [Cells(["organization", "known rows", "unknown rows"], rows)] if rows else []


def _computed(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows, without = facts.get("n_rows"), facts.get("n_without_label")
    more = f", {without:,} more without a label" if without else ""
    return [
        ("rows", "" if rows is None else f"{rows:,}{more}"),
        ("classes", ", ".join(map(str, facts.get("classes") or []))),
        ("loss", str(facts.get("loss", ""))),
        ("stopped", str(facts.get("stopped", ""))),
        ("finished", str(facts.get("finished", ""))),
        ("time", "" if facts.get("seconds") is None else f"{facts['seconds']:.1f} s"),
        ("seed", str(facts.get("seed") or "")),
        ("software", ", ".join(f"{a} {b}" for a, b in (facts.get("software") or software()).items())),
    ]


def versions_cells(
    active: int | None, found: Mapping[Any, Mapping[str, Any]], begun: str = "interrupted or learning"
) -> Cells:
    """All versions of a task, one in a row; ``begun`` is the state of an unfinished one."""
    header = ["version", "state", "finished (UTC)", "rows", "rounds", "train loss", "validation loss"]
    rows = []
    for version, facts in found.items():
        privacy, losses = facts.get("privacy"), (facts.get("train_loss"), facts.get("validation_loss"))
        protection = str((privacy or {}).get("mechanism", "none"))
        if privacy and protection != "none":
            delta = f", delta {privacy['delta']:g}" if privacy["delta"] else ""
            refitted = ", refitted" if facts.get("refitted") else ""
            protection += f", epsilon {privacy['epsilon']:g}{delta}{refitted}"
        rows.append(
            [
                f"{version} (active)" if version == active else str(version),
                begun if facts["status"] == "begun" else str(facts["status"]),
                str(facts.get("finished", ""))[:16].replace("T", " "),
                f"{facts['n_rows']:,}",
                str(facts.get("rounds", "")),
                *("" if loss is None or loss != loss else number(loss) for loss in losses),
                gain_shares(facts.get("contributions")),
                protection,
            ]
        )
    return Cells([*header, "shares of the gain", "privacy"], rows)


def gain_shares(facts: Mapping[str, Any] | None) -> str:
    """Contributions as shares of the gain, in a line; empty where none are known."""
    found = restored(Contributions, facts)
    if found is None:
        return ""
    if not found.gain.low > 0:
        return "no significant gain"
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    return ", ".join(
        f"{name} {one.value / found.gain.value:.0%}"
        + ("" if one.verdict == "helped" else f" ({one.verdict})")
        for name, one in ranked
    )
