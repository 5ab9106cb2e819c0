"""``gal privacy``: what others could learn from what this node has sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gal.cli.options import AsJson, Home
from gal.cli.screen import escape, print_facts
from gal.core.probes.kept_probes import PROBES_REVEAL

NOT_PROTECTED = (
    "Not protected by any of this: row ids, unless rows are matched by psi; the number of rows; the times of "
    "messages; what others can predict from columns of their own. See docs/concepts/privacy.md."
)
LOUD = "[bold red]WITHOUT PRIVACY: every organization of this task can know every training label.[/]"
NOISES = {
    "randomised-response": "randomized response",
    "laplace": "Laplace noise",
    "gaussian": "Gaussian noise",
}
BUDGETS = {"label": "label_epsilon", "row": "answer_budget_epsilon", "row's replies": "column_epsilon"}
"""The key of node.toml, section privacy, by what a budget is for."""


def privacy(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Only this task.")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """What others could learn from what this node has sent: mechanism, epsilon and delta
    spent and left, by peer and task.
    """
    from gal.node.config.configuration import home_of
    from gal.node.runtime.web.privacy_account import privacy_account

    facts = privacy_account(home_of(home), task)
    print_facts(facts, as_json, lambda out: out.print("\n".join(_lines(facts))))


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    from gal.node.config.invitations import FITTED_VALUES_REVEAL, RESIDUALS_REVEAL

    yield f"What others could learn from what [bold]{escape(facts['organization'])}[/] has sent"
    yield ""
    if not facts["labels"]:
        yield "[bold]Your labels[/]: nothing was sent about them."
    for one in facts["labels"]:
        yield f"[bold]Your labels[/] (column {escape(one['column'])})"
        yield from _account(one, "label", "organization")
    for name in facts["nothing_sent"]:
        yield f"  [bold]{escape(name)}[/]: nothing was sent yet."
    yield ""
    columns, replies = facts["columns"], facts["answers"]
    if columns["tasks"] or columns["budget"] is not None:
        yield "[bold]Columns of all organizations, through the residuals of your tasks[/]"
        left_out = " Tasks without column noise are not counted."
        yield from _account(columns, "row's replies", "organization", left_out)
        yield ""
    yield "[bold]Your rows, through your replies to label holders[/]"
    if not replies["joined"] and not replies["tasks"]:
        yield "  No task of another organization was joined: nothing was sent."
    elif replies["words"] is None:
        yield (
            "  [bold yellow]Replies leave without noise[/] (privacy.answer_noise in node.toml): what they "
            "reveal of your columns has no bound."
        )
    else:
        yield f"  {escape(replies['words'])}"
    for task in replies["plain"]:
        yield (
            f"  [bold]{escape(task['task'])}[/]: [bold yellow]replies without noise[/] to "
            f"{escape(task['label_holder'])}, in at least one version."
        )
    yield from _account(replies, "row", "label holder", " Replies without noise are not counted.")
    yield ""
    if facts["probes"]:
        yield f"[bold]Columns, through interaction probes[/]: {PROBES_REVEAL}"
        yield from map(_probes, facts["probes"])
        yield ""
    yield f"[bold]Columns, without noise[/]: {RESIDUALS_REVEAL} {FITTED_VALUES_REVEAL}"
    yield NOT_PROTECTED


def _probes(one: Mapping[str, Any]) -> str:
    """Whose sign bits went to whom, as far as this node can know."""
    version = f"  [bold]{escape(one['task'])}[/], version {one['version']}:"
    if "label_holder" in one:
        holder = escape(one["label_holder"])
        return (
            f"{version} signs of {one['replies']} replies of yours, and of your fitted values, may have gone "
            f"to the other organizations. Only {holder} knows which: it sees them in gal privacy."
        )
    kept = [f"{escape(sign['of'])} to {escape(sign['to'])} in {sign['probes']}" for sign in one["kept"]]
    return (
        f"{version} each organization received at most {one['most']} probes. Sign bits in the probes that "
        f"the model keeps: {', '.join(kept) or 'none'}."
    )


def _account(one: Mapping[str, Any], secret: str, receiver: str, left_out: str = "") -> Iterator[str]:
    """The cost of each task, the total of each peer and of all peers together, and the remaining budget."""
    budget, delta = one["budget"], f", delta {one['delta']:g}" if one["delta"] else ""

    def cost(epsilon: float | None) -> str:
        return "no bound" if epsilon is None else f"epsilon {epsilon:.4g}{delta}"

    for task in one["tasks"]:
        noises = " and ".join(NOISES.get(name, name) for name in task["mechanisms"])
        peers = escape(", ".join(task["peers"])) or "no organization"
        spent = f"{noises}, {cost(task['epsilon'])};"
        if "none" in task["mechanisms"] and secret == "label":
            spent = LOUD
        yield f"  [bold]{escape(task['task'])}[/]: {spent} received by {peers}"
    if one["tasks"]:
        each = "; ".join(f"{escape(peer)} {cost(epsilon)}" for peer, epsilon in one["peers"].items())
        yield f"  Each {receiver} by itself: {each}."
        yield f"  All tasks and organizations together, if they collude: {cost(one['spent'])}.{left_out}"
        yield f"  {_meaning(one, secret)}"
    if budget is not None:
        at = f" at delta {budget['delta']:g}" if budget["delta"] else ""
        yield f"  Budget for one {secret}: epsilon {budget['epsilon']:g}{at}; left: {one['left']:.4g}."
    elif one["tasks"]:
        yield f"  There is no budget (privacy.{BUDGETS[secret]} in node.toml): nothing is refused."


def _meaning(one: Mapping[str, Any], secret: str) -> str:
    """The best guess that epsilon and delta allow."""
    epsilon, delta = one["spent"], one["delta"]
    if one["unprotected"]:
        return f"They can know any {secret} for certain."
    if epsilon is None:
        return f"That is no guarantee at delta {delta:g}."
    best = min(1.0, 1 / (1 + math.exp(-epsilon)) + delta)
    two = "two labels of a row" if secret == "label" else "two rows that may be behind the replies"
    return f"An attacker with all of it guesses which of {two} is right in at most {best:.1%} of cases."
