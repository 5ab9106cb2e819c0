"""Versions of a task: list them, compare them on rows of your choice, go back to an earlier one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gal.cli.evaluating.report_files import ReportOptions
from gal.cli.options import AsJson, Home, TaskName
from gal.cli.screen.contributions_report import gained_by
from gal.cli.screen.printing import Screen, print_table
from gal.errors import TaskError

if TYPE_CHECKING:
    from gal.evaluate.reporting.facts import ReportFacts


def versions(task: TaskName, *, writing: ReportOptions, home: Home = None, as_json: AsJson = False) -> None:
    """All versions of an own task: when, how many rows, how good, and which one predicts."""
    from gal.cli.tasks import print_spent, privacy_now
    from gal.node.admin.membership import opened
    from gal.node.admin.status import begun_state, live_facts
    from gal.node.config.configuration import home_of
    from gal.node.holder.version_facts import version_facts

    writing.check()
    with opened(home_of(home)) as records:
        labelled = records.configuration.data is not None and records.configuration.data.label is not None
        record = records.state.find_task(task, "label holder")
        found = {
            number: version_facts(record, number, learned)
            for number, learned in records.state.learned_versions(record.id).items()
        }
    privacy = privacy_now(home_of(home), task) if labelled else None
    writing.write(lambda: _report(home_of(home), task, record.active, found))
    if as_json:
        typer.echo(json.dumps({"active": record.active, "versions": found, "privacy": privacy}, indent=2))
        return
    live = live_facts(home_of(home))
    table = Table(
        *("version", "state", "finished (UTC)", "rows", "rounds", "train loss", "validation loss"),
        *("gained by", "privacy"),
    )
    for number, facts in found.items():
        mark = " [green]active[/]" if number == record.active else ""
        table.add_row(
            f"{number}{mark}",
            facts["status"] if facts["status"] != "begun" else begun_state(record, live),
            str(facts.get("finished", ""))[:16].replace("T", " "),
            f"{facts['n_rows']:,}",
            str(facts.get("rounds", "")),
            _number(facts.get("train_loss")),
            _number(facts.get("validation_loss")),
            gained_by(facts.get("contributions")),
            _privacy(facts),
        )
    screen = Screen()
    if found:
        print_table(table, screen)
    else:
        screen.print(f"No version yet: gal learn {task}")
    if privacy is not None:
        print_spent(privacy, screen)


def _report(home: Path, task: str, active: int | None, found: Mapping[int, Any]) -> ReportFacts:
    """Of the version that predicts, or else of the last finished one; all others in a table."""
    from gal.cli.learning import report_of_version

    finished = [number for number, facts in found.items() if facts["status"] == "finished"]
    if not finished:
        raise TaskError(f"{task!r} has no finished version to report on yet: gal learn {task}")
    chosen = active if active in finished else finished[-1]
    return report_of_version(home, found[chosen], found)


def _privacy(facts: Mapping[str, Any]) -> str:
    """Mechanism and cost; versions of before there was any had none."""
    privacy = facts.get("privacy", {"mechanism": "none"})
    if privacy["mechanism"] == "none":
        return "[yellow]none[/]"
    delta = f", delta {privacy['delta']:g}" if privacy["delta"] else ""
    refit = ", refitted" if facts.get("refitted") else ""
    return f"{privacy['mechanism']}, epsilon {privacy['epsilon']:g}{delta}{refit}"


def _number(value: Any) -> str:
    return "" if value is None or value != value else f"{value:.6g}"


def compare(
    task: TaskName,
    rows: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file with ids, own columns and labels.")
    ],
    version: Annotated[
        list[int] | None, typer.Option(help="May be repeated; default: the last two.", show_default=False)
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds to wait for answers.", min=0.1)] = 60,
    join: Annotated[float, typer.Option(help="Seconds to wait for organizations to connect.", min=0)] = 30,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """How well versions predict labelled rows of your choice, new ones for example."""
    from gal.cli.predicting import do_with_spinner
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import home_of
    from gal.node.holder.version_facts import finished_versions

    folder = home_of(home)
    with opened(folder) as records:
        record = records.state.find_task(task, "label holder")
        chosen = finished_versions(records.state, record, version)
    arguments = {
        "task": task,
        "versions": chosen,
        "rows": str(rows.absolute()),
        "seconds": deadline,
        "join": join,
    }
    facts = do_with_spinner(folder, "compare", arguments, "predicting with each version")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    scores = facts["scores"]
    metric = next(iter(next(iter(scores.values()))))
    title = escape(f"{task} on {facts['n_rows']:,} labelled rows of {rows.name}")
    table = Table("version", "R2" if metric == "r2" else metric, "degraded rows", "", title=title)
    ranked = sorted((score[metric] for score in scores.values()), reverse=True)
    for number, score in scores.items():
        notes = ["predicts"] if int(number) == record.active else []
        notes += ["best"] if score[metric] == ranked[0] and len(ranked) > 1 and ranked[1] < ranked[0] else []
        table.add_row(str(number), f"{score[metric]:z.4f}", f"{score['degraded']:,}", ", ".join(notes))
    print_table(table, Screen())
    if any(score["degraded"] for score in scores.values()):
        Screen().print("Degraded: an organization did not answer, or does not know the row.")


def rollback(
    task: TaskName,
    version: Annotated[int, typer.Argument(help="The version that is to predict from now on.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Predict with another finished version from now on; a running node does so at once."""
    from gal.node.admin.membership import opened
    from gal.node.config.configuration import home_of

    with opened(home_of(home)) as records:
        record = records.state.find_task(task, "label holder")
        if records.state.statuses(record.id, "label holder").get(version) != "finished":
            raise TaskError(f"{task!r} has no finished version {version}: gal versions {task} shows them")
        if version != record.active:
            records.state.set_active(record.id, version)
            note = f"was {record.active}"
            records.audit.append("own", "rolled back", task=record.id, version=version, note=note)
    if as_json:
        typer.echo(json.dumps({"task": task, "active": version, "before": record.active}))
        return
    already = " already: nothing changes" if version == record.active else " now"
    Screen().print(f"{escape(task)} predicts with version {version}{already}.")


__all__ = ["compare", "rollback", "versions"]
