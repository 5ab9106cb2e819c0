"""``gal privacy``: who could learn what from what this node has sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from gal.cli.options import AsJson, Home
from gal.cli.screen import Screen

NOT_PROTECTED = (
    "Not protected by any of this: row ids, unless rows are matched by psi; how many rows there are; when "
    "messages come and go; "
    "and what anybody can guess from columns of their own. See docs/concepts/privacy.md."
)


LOUD = "[bold red]WITHOUT PRIVACY: every organization of this task can know every training label.[/]"
NOISES = {
    "randomised-response": "randomised response",
    "laplace": "Laplace noise",
    "gaussian": "Gaussian noise",
}


def privacy(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Only this task.", show_default=False)
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Who could learn what from what this node has sent: mechanism, epsilon and delta
    spent and left, by peer and task.
    """
    from gal.node.admin.status import spent_privacy
    from gal.node.config.configuration import home_of

    facts = spent_privacy(home_of(home), task)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    out = Screen()
    for line in privacy_lines(facts):
        out.print(line)


def privacy_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts in plain words, with rich's markup."""
    yield f"What others could learn from what [bold]{escape(facts['organization'])}[/] has sent"
    yield ""
    yield from _labels(facts)
    yield ""
    yield from _columns(facts)
    yield from _answers(facts["answers"])
    yield ""
    yield NOT_PROTECTED


def _labels(facts: Mapping[str, Any]) -> Iterator[str]:
    if not facts["labels"] and not facts["unrecorded"]:
        yield "[bold]Your labels[/]: nothing was sent about any."
    left_out = escape(", ".join(task["task"] for task in facts["unrecorded"]))
    for one in facts["labels"]:
        yield f"[bold]Your labels[/] (column {escape(one['column'])})"
        for task in one["tasks"]:
            who = _receivers(task)
            said = f"{_how(task)}; received by {who}"
            if "none" in task["mechanisms"]:
                said = f"{LOUD} Received by {who}."
            yield f"  [bold]{escape(task['task'])}[/]: {said}"
        yield from _together(one, "label", "organization", f" Not counted: {left_out}." if left_out else "")
    for task in facts["unrecorded"]:
        yield (
            f"  [bold]{escape(task['task'])}[/], learned before costs were kept track of: {LOUD} Received by "
            f"{_names(task['peers'])}."
        )
    for name in facts["nothing_sent"]:
        yield f"  [bold]{escape(name)}[/]: nothing was sent yet."


def _columns(facts: Mapping[str, Any]) -> Iterator[str]:
    """Columns, through residuals; nothing where no task has noise for columns, and no budget asks for it."""
    account = facts["columns"]
    if not account["tasks"] and account["budget"] is None:
        return
    yield "[bold]What everybody answered about a row, by residuals of your tasks[/]"
    for task in account["tasks"]:
        yield f"  [bold]{escape(task['task'])}[/]: {_how(task)}; received by {_receivers(task)}"
    yield from _together(
        account, "row's answers", "organization", " Tasks without noise for columns are not counted."
    )
    yield ""


def _answers(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "[bold]Your rows, by your answers to label holders[/]"
    if not facts["joined"] and not facts["tasks"]:
        yield "  No task of others was joined: nothing was answered."
    elif facts["words"] is None:
        rounded = "" if facts["decimals"] is None else f", rounded to {facts['decimals']} decimals"
        yield (
            f"  [bold yellow]Answers leave without noise[/]{rounded} (privacy.answer_noise in node.toml): "
            "what they tell about the columns behind them has no bound."
        )
    else:
        yield f"  {escape(facts['words'])}"
    for task in facts["plain"]:
        yield (
            f"  [bold]{escape(task['task'])}[/]: [bold yellow]answered without noise[/] for "
            f"{escape(task['label_holder'])}, in some of its versions at least."
        )
    for task in facts["tasks"]:
        yield (
            f"  [bold]{escape(task['task'])}[/]: {_how(task)} for the row most asked about; received by "
            f"{_names(task['peers'])}"
        )
    yield from _together(facts, "row", "label holder", " Answers that left without noise are not counted.")


def _how(task: Mapping[str, Any]) -> str:
    """The mechanisms of a task, what they were put on where that is known, and the cost."""
    said = []
    for mechanism in task["mechanisms"]:
        on = {one["on"] for one in task["releases"] if one["mechanism"] == mechanism}
        where = "" if None in on else f" on {' and '.join(sorted(on))}"
        said.append(NOISES.get(mechanism, mechanism) + where)
    return f"{' and '.join(said)}, {_cost(task['epsilon'], task['delta'])}"


def _receivers(task: Mapping[str, Any]) -> str:
    """Who got something; who is charged for in advance and never was sent anything is named by itself."""
    got = [name for name in task["peers"] if name not in task["not_asked"]]
    if not task["not_asked"]:
        return _names(got)
    return f"{_names(got)}; counted beforehand, and nothing was sent: {_names(task['not_asked'])}"


def _together(one: Mapping[str, Any], what: str, whom: str, left_out: str) -> Iterator[str]:
    """What each peer has, what all of them have together, and what is left."""
    budget = one["budget"]
    if one["tasks"]:
        by_peer = []
        for peer, epsilon in one["peers"].items():
            cost = _cost(epsilon, one["peer_deltas"][peer])
            never = peer in one["never_asked"]
            by_peer.append(f"{escape(peer)} " + (f"nothing yet ({cost} is counted)" if never else cost))
        yield f"  Each {whom} by itself: {'; '.join(by_peer)}."
        total = _cost(one["spent"], one["delta"])
        if one["spent"] is not None and one["budget_needs_delta"]:
            key = "label_delta" if what == "label" else "answer_budget_delta"
            total = (
                f"epsilon {one['spent']:.4g} at delta {one['delta']:g}; your budget has delta 0, which "
                f"Gaussian noise can never meet: set {key} in node.toml"
            )
        yield f"  All of them and all tasks together, for they may compare notes: {total}.{left_out}"
        yield f"  {_meaning(one, what)}"
    if budget is not None:
        at = f" at delta {budget['delta']:g}" if budget["delta"] else ""
        yield f"  Budget for one {what}: epsilon {budget['epsilon']:g}{at}; left: {one['left']:.4g}."
    elif one["tasks"]:
        key = {"label": "label_epsilon", "row": "answer_budget_epsilon"}.get(what, "column_epsilon")
        yield f"  There is no budget (privacy.{key} in node.toml): nothing is refused."


def _cost(epsilon: float | None, delta: float) -> str:
    if epsilon is None:
        return "no bound"
    return f"epsilon {epsilon:.4g}" + (f", delta {delta:g}" if delta else "")


def _meaning(one: Mapping[str, Any], what: str) -> str:
    """What an epsilon means for somebody who guesses."""
    epsilon, delta = one["spent"], one["delta"]
    if one["unprotected"]:
        return f"They can know any {what} for certain."
    if epsilon is None:
        return f"That is no guarantee at delta {delta:g}."
    best = min(1.0, 1 / (1 + math.exp(-epsilon)) + delta)
    two = "two labels of a row" if what == "label" else "two rows that may be behind the answers"
    return (
        f"Of {two}, equally likely before, whoever has it all then picks the right one in at most "
        f"{best:.1%} of cases."
    )


def _names(peers: list[str]) -> str:
    return escape(", ".join(peers)) or "nobody"


__all__ = ["privacy", "privacy_lines"]
