"""A version of a task as facts for a report: losses, lower is better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gal.core.contributions import Contributions
from gal.core.outcome import Decision, TaskOutcome
from gal.core.state import restored
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
)
from gal.evaluate.simulation import software
from gal.evaluate.wording import bytes_in_words, number
from gal.learner.observing import LearningCurve
from gal.secure_aggregation.terms import SUM

if TYPE_CHECKING:
    from gal.node.store.audit import Total


MESSAGES = {
    "begin": "which rows: ids, or tokens for them",
    "begun": "which of these rows it knows",
    "fit": "residuals: how far off the model still is, row by row",
    "fitted": "fitted values: what its model says of these rows",
    "predict": "ids of rows to predict",
    "predicted": "answers: what its models say of the rows to predict",
    "blind": "blinded ids, for private set intersection",
    "blinded": "blinded ids, for private set intersection",
    "total": "ids of rows to predict",
    "found": "which of these rows it knows",
    "masked": "values under masks: only their sum with those of all others can be read",
}
"""Kinds of messages that carry something about rows; the others are small and carry terms alone."""

COLUMNS_TELL = (
    "Every fitted value tells something of the columns of who sends it: with few columns and many rounds the "
    "label holder can come close to them. gal leakage measures how close."
)


def facts_of_version(
    facts: Mapping[str, Any],
    *,
    moved: Iterable[Total] = (),
    privacy: Sequence[str] = (),
    versions: Cells | None = None,
) -> ReportFacts:
    """What ``gal learn --json`` says of a version, with what the audit log says of its task."""
    name = f"{facts['task']}, version {facts['version']}"
    said = (facts.get("privacy") or {}).get("words")
    loss, holder = str(facts.get("loss", "loss")).replace("_", " "), facts.get("label_holder")
    found = restored(Contributions, facts.get("contributions"))
    named = {
        "before the first round": "initial_validation_loss",
        f"{holder} alone": "alone_validation_loss",
        "with assistance": "assisted_validation_loss",
    }
    known = {one: facts.get(key) for one, key in named.items()}
    levels = [Level(one, float(value)) for one, value in known.items() if value is not None]
    answer, verdict = _answer(facts, loss, found)
    told = found is not None and found.rows != "training"
    judged = f"{found.n_rows:,} rows" if found is not None and told else "rows"
    by = f" ({found.rows})" if found is not None and told else ""
    curve = facts.get("learning")
    return ReportFacts(
        title=f"{name}: did assistance help?",
        question=f"{name}: did assistance help {holder}?",
        answer=answer,
        verdict=verdict,
        more=_more(facts),
        holder=holder,
        sections={
            "How well": [
                levels_in_cells(f"{loss} (lower is better)", levels),
                f"The mean {loss} on {judged} that were not fitted{by}.",
            ]
            if levels
            else [],
            "Who brings what": contributions_section(found, loss, holder),
            "Learning, round by round": learning_section(
                [] if curve is None else [LearningCurve(**curve)], loss
            ),
            "What left each organization": _left(left_cells(moved, str(holder))),
            PRIVACY: [*([str(said)] if said else []), *privacy, COLUMNS_TELL],
            "What was in the table": _rows_known(facts),
            "Versions": [] if versions is None else [versions],
            "How it was computed": computed_in_cells(_computed(facts)),
        },
    )


def left_cells(moved: Iterable[Total], holder: str) -> Cells | None:
    """What left and what entered, by peer, of the audit log's totals; None where nothing did."""
    rows = [
        [
            holder if one.direction == "out" else one.peer,
            one.peer if one.direction == "out" else holder,
            MESSAGES[one.kind],
            f"{one.messages:,}",
            bytes_in_words(one.n_bytes),
        ]
        for one in moved
        if one.kind in MESSAGES and one.direction in {"in", "out"}
    ]
    return Cells(["from", "to", "what left", "messages", "size"], rows) if rows else None


def why_alone(facts: Mapping[str, Any]) -> str:
    """Why assistance is not used, in a sentence."""
    outcome = restored(TaskOutcome, facts.get("outcome"))
    better = "on rows that were not fitted, the label holder alone was better, and it is not used."
    if outcome is not None and outcome.decision is Decision.MEMORIZATION:
        names = ", ".join(outcome.memorizers) or "some organization"
        return (
            f"{names} gives back residuals that it was sent before, and was left out. Without it, {better} "
            "Learn again without organizations that you do not trust, or with validation rows."
        )
    if outcome is not None and outcome.decision is Decision.WORSE_ON_SENTINEL:
        return "rows of the sentinel fold, predicted before any of them were sent, lose more with assistance."
    return better


def _answer(facts: Mapping[str, Any], loss: str, found: Contributions | None) -> tuple[str, ReportVerdict]:
    alone, assisted = facts.get("alone_validation_loss"), facts.get("assisted_validation_loss")
    if facts.get("track") == "alone":
        return f"No: {why_alone(facts)}", "hurts"
    if found is None or found.rows == "training" or not found.by_organization:
        if alone is None or assisted is None:
            return "Nobody can tell: no rows were kept apart to judge it by.", "unclear"
        said = f"On rows that were not fitted the {loss} is {number(assisted)}, and {number(alone)} alone"
        return f"{said}; how sure that is, is not known.", "unclear"
    gain = found.gain
    between = f"(95 % confidence: {number(gain.low)} to {number(gain.high)})"
    before = " down" if alone is None else f" below the {number(alone)} that is reached alone"
    said = (
        f"assistance brings the {loss} {number(gain.value)} {between}{before}, on rows that were not fitted."
    )
    if gain.low > 0:
        return f"Yes: {said}", "helps"
    return (
        (f"No, it hurts: {said}", "hurts") if gain.high < 0 else (f"No clear difference: {said}", "unclear")
    )


def _more(facts: Mapping[str, Any]) -> list[str]:
    """What follows the answer, in the terminal and in reports."""
    rows = "" if facts.get("n_rows") is None else f", on {facts['n_rows']:,} rows"
    said = [
        f"{facts['rounds']} of {facts['rounds_learned']} rounds are used{rows}. The loss on fitted rows went "
        f"from {number(facts['initial_train_loss'])} to {number(facts['train_loss'])}.{kept_back(facts)}"
    ]
    if facts.get("closing") is not None:
        said.append(f"A stacker on all fitted values takes part: its share is {facts['closing']:.0%}.")
    if facts.get("probes") is not None:
        said.append(f"Interaction probes take part: their share is {facts['probes']:.0%}.")
    said += _on_true_labels(facts)
    if facts.get("why_not_active"):
        stays = f"version {facts['active']} stays active" if facts["active"] else "no version is active"
        said.append(
            f"This version does not predict: {facts['why_not_active']}; {stays}. "
            f"gal versions {facts['task']} --activate {facts['version']} takes it all the same."
        )
    for name, missed in (facts.get("missed") or {}).items():
        said.append(f"{name} missed round{'' if len(missed) == 1 else 's'} {', '.join(map(str, missed))}.")
    return said


def kept_back(facts: Mapping[str, Any]) -> str:
    """Why the loss of its rounds is lower than the version's, if it is: of steps that overfit only a share
    is kept.
    """
    curve, found = facts.get("learning"), restored(Contributions, facts.get("contributions"))
    if not curve or found is None or found.rows != "cross-validation" or facts.get("refitted"):
        return ""
    reached = curve["train"][curve["used"]]
    if number(reached) == number(facts["train_loss"]) or reached > facts["train_loss"]:
        return ""
    return (
        f" With whole steps it would be {number(reached)}, as in its rounds; of them as much is kept as "
        "the cross-validation bears out."
    )


def _on_true_labels(facts: Mapping[str, Any]) -> list[str]:
    """Of a private version: what predicts was fitted to the true labels, and judged on them."""
    if not facts.get("refitted"):
        if (facts.get("privacy") or {}).get("mechanism", "none") == "none":
            return []
        why = facts.get("refit_problem", "it would be no better, or there is too little to learn from")
        return [f"Nothing was refitted to the true labels ({why}): the public model predicts."]
    words = str(facts.get("refit_words") or "")
    return [
        "Losses and contributions here are of what was learned with noise. On the true labels, which stay "
        f"here, the loss of it is {number(facts['public_true_loss'])}, and "
        f"{number(facts['private_true_loss'])} after the private refit, which predicts.",
        *([words] if words else []),
    ]


def _left(left: Cells | None) -> list[str | Cells]:
    if left is None:
        return ["The audit log has no message of this task."]
    return [
        "From this node's audit log, all versions of the task together. Columns, models and labels have no "
        "message: they stay where they are. What the others' other partners get is in their own logs.",
        left,
    ]


def _rows_known(facts: Mapping[str, Any]) -> list[str | Cells]:
    """Who took part: with sums all know all rows."""
    known, unknown = facts.get("known_rows") or {}, facts.get("unknown_rows") or {}
    summed = (facts.get("contributions") or {}).get("by_organization") or {}
    rows = [[name, f"{count:,}", f"{unknown.get(name, 0):,}"] for name, count in known.items()]
    rows += [[name, f"{facts['n_rows']:,}", "0"] for name in summed if name == SUM]
    return [Cells(["organization", "rows it knows", "rows it does not know"], rows)] if rows else []


def _computed(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = facts.get("n_rows")
    without = facts.get("n_without_label")
    return [
        (
            "rows",
            "" if rows is None else f"{rows:,}" + (f", {without:,} more without a label" if without else ""),
        ),
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
    """All versions of a task, one in a row; ``begun``: what one that is not finished is."""
    header = ["version", "state", "finished (UTC)", "rows", "rounds", "train loss", "validation loss"]
    rows = []
    for version, facts in found.items():
        privacy, losses = facts.get("privacy"), (facts.get("train_loss"), facts.get("validation_loss"))
        told = str((privacy or {}).get("mechanism", "none"))
        if privacy and told != "none":
            delta = f", delta {privacy['delta']:g}" if privacy["delta"] else ""
            told += f", epsilon {privacy['epsilon']:g}{delta}{', refitted' if facts.get('refitted') else ''}"
        rows.append(
            [
                f"{version} (active)" if version == active else str(version),
                begun if facts["status"] == "begun" else str(facts["status"]),
                str(facts.get("finished", ""))[:16].replace("T", " "),
                f"{facts['n_rows']:,}",
                str(facts.get("rounds", "")),
                *("" if loss is None or loss != loss else number(loss) for loss in losses),
                gained_by(facts.get("contributions")),
                told,
            ]
        )
    return Cells([*header, "gained by", "privacy"], rows)


def gained_by(facts: Mapping[str, Any] | None) -> str:
    """Contributions as parts of the gain, in a line; nothing where none are known."""
    found = restored(Contributions, facts)
    if found is None:
        return ""
    if not found.gain.low > 0:
        return "nobody, or chance"
    ranked = sorted(found.by_organization.items(), key=lambda pair: -pair[1].value)
    return ", ".join(
        f"{name} {one.value / found.gain.value:.0%}"
        + ("" if one.verdict == "helped" else f" ({one.verdict})")
        for name, one in ranked
    )


__all__ = ["facts_of_version", "gained_by", "left_cells", "versions_cells"]
