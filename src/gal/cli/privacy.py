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
    "messages come and go; what anybody can guess from columns of their own. See docs/concepts/privacy.md."
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
    from gal.node.config.configuration import home_of
    from gal.node.runtime.web.privacy_account import privacy_account

    facts = privacy_account(home_of(home), task)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    out = Screen()
    for line in _lines(facts):
        out.print(line)


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts in plain words, with rich's markup."""
    yield f"What others could learn from what [bold]{escape(facts['organization'])}[/] has sent"
    yield ""
    if not facts["labels"]:
        yield "[bold]Your labels[/]: nothing was sent about any."
    for one in facts["labels"]:
        yield f"[bold]Your labels[/] (column {escape(one['column'])})"
        yield from _account(one, "label", "organization")
    for name in facts["nothing_sent"]:
        yield f"  [bold]{escape(name)}[/]: nothing was sent yet."
    yield ""
    columns, answers = facts["columns"], facts["answers"]
    if columns["tasks"] or columns["budget"] is not None:
        yield "[bold]What everybody answered about a row, by residuals of your tasks[/]"
        left_out = " Tasks without noise for columns are not counted."
        yield from _account(columns, "row's answers", "organization", left_out)
        yield ""
    yield "[bold]Your rows, by your answers to label holders[/]"
    if not answers["joined"] and not answers["tasks"]:
        yield "  No task of others was joined: nothing was answered."
    elif answers["words"] is None:
        yield (
            "  [bold yellow]Answers leave without noise[/] (privacy.answer_noise in node.toml): "
            "what they tell about the columns behind them has no bound."
        )
    else:
        yield f"  {escape(answers['words'])}"
    for task in answers["plain"]:
        yield (
            f"  [bold]{escape(task['task'])}[/]: [bold yellow]answered without noise[/] for "
            f"{escape(task['label_holder'])}, in some of its versions at least."
        )
    yield from _account(answers, "row", "label holder", " Answers that left without noise are not counted.")
    yield ""
    yield NOT_PROTECTED


def _account(one: Mapping[str, Any], what: str, whom: str, left_out: str = "") -> Iterator[str]:
    """What each task told, what each peer has, what all of them have together, and what is left."""
    budget = one["budget"]
    at = f", delta {one['delta']:g}" if one["delta"] else ""

    def cost(epsilon: float | None) -> str:
        return "no bound" if epsilon is None else f"epsilon {epsilon:.4g}{at}"

    for task in one["tasks"]:
        how = (
            f"{' and '.join(NOISES.get(name, name) for name in task['mechanisms'])}, {cost(task['epsilon'])}"
        )
        peers = escape(", ".join(task["peers"])) or "nobody"
        said = LOUD if "none" in task["mechanisms"] and what == "label" else f"{how};"
        yield f"  [bold]{escape(task['task'])}[/]: {said} received by {peers}"
    if one["tasks"]:
        each = "; ".join(f"{escape(peer)} {cost(epsilon)}" for peer, epsilon in one["peers"].items())
        yield f"  Each {whom} by itself: {each}."
        together = cost(one["spent"])
        yield f"  All of them and all tasks together, for they may compare notes: {together}.{left_out}"
        yield f"  {_meaning(one, what)}"
    if budget is not None:
        at = f" at delta {budget['delta']:g}" if budget["delta"] else ""
        yield f"  Budget for one {what}: epsilon {budget['epsilon']:g}{at}; left: {one['left']:.4g}."
    elif one["tasks"]:
        key = {"label": "label_epsilon", "row": "answer_budget_epsilon"}.get(what, "column_epsilon")
        yield f"  There is no budget (privacy.{key} in node.toml): nothing is refused."


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


__all__ = ["privacy"]
