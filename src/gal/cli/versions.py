"""``gal versions``: list versions of a task, compare them on rows, choose the one that predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gal.cli.options import AsJson, Home, Report, TaskName, Wait, check_report_path, write_report_to
from gal.cli.screen import Screen, print_cells, print_table
from gal.errors import InvalidInputError, TaskError

if TYPE_CHECKING:
    from gal.evaluate.reporting.facts import ReportFacts


def versions(
    task: TaskName,
    compare: Annotated[
        Path | None,
        typer.Option(
            help="How well versions predict these labelled rows: a file with ids, own columns and labels.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        list[int] | None,
        typer.Option(
            help="With --compare: which; may be repeated; default: the last two.", show_default=False
        ),
    ] = None,
    activate: Annotated[
        int | None,
        typer.Option(
            help="Predict with this finished version from now on; a running node does so at once.",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="With --compare: seconds to wait for answers.", min=0.1)
    ] = 60,
    wait: Wait = 30,
    report: Report = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """All versions of an own task: when, how many rows, how good, and which one predicts."""
    from gal.node.config.configuration import home_of

    if sum(one is not None for one in (compare, activate, report)) > 1 or (version and compare is None):
        raise InvalidInputError(
            "give one of --compare, --activate and --report; --version goes with --compare"
        )
    folder = home_of(home)
    if activate is not None:
        _activate(folder, task, activate, as_json)
    elif compare is not None:
        _compare(folder, task, compare, version, {"seconds": deadline, "join": wait}, as_json)
    else:
        _list(folder, task, report, as_json)


def _list(folder: Path, task: str, report: Path | None, as_json: bool) -> None:
    from gal.cli.tasks import print_privacy, privacy_now
    from gal.evaluate.reporting.learned import versions_cells
    from gal.node.admin.membership import opened
    from gal.node.admin.status import begun_state, live_facts
    from gal.node.holder.version_facts import version_facts

    check_report_path(report)
    with opened(folder) as records:
        labelled = records.configuration.data is not None and records.configuration.data.label is not None
        record = records.state.find_task(task, "label holder")
        found = {
            number: version_facts(record, number, learned)
            for number, learned in records.state.learned_versions(record.id).items()
        }
    privacy = privacy_now(folder, task) if labelled else None
    write_report_to(report, lambda: _report(folder, task, record.active, found))
    if as_json:
        typer.echo(json.dumps({"active": record.active, "versions": found, "privacy": privacy}, indent=2))
        return
    screen = Screen()
    if found:
        print_cells(versions_cells(record.active, found, begun_state(record, live_facts(folder))), screen)
    else:
        screen.print(f"No version yet: gal learn {escape(task)}")
    if privacy is not None:
        print_privacy(privacy, screen, short=True)


def _report(home: Path, task: str, active: int | None, found: Mapping[int, Any]) -> ReportFacts:
    """Of the version that predicts, or else of the last finished one; all others in a table."""
    from gal.cli.learning import report_of_version

    finished = [number for number, facts in found.items() if facts["status"] == "finished"]
    if not finished:
        raise TaskError(f"{task!r} has no finished version to report on yet: gal learn {task}")
    chosen = active if active in finished else finished[-1]
    return report_of_version(home, found[chosen], found)


def _compare(
    folder: Path,
    task: str,
    rows: Path,
    versions: list[int] | None,
    limits: Mapping[str, float],
    as_json: bool,
) -> None:
    from gal.cli.predicting import do_with_spinner
    from gal.node.admin.membership import opened
    from gal.node.holder.version_facts import finished_versions

    with opened(folder) as records:
        record = records.state.find_task(task, "label holder")
        chosen = finished_versions(records.state, record, versions)
    arguments = {"task": task, "versions": chosen, "rows": str(rows.absolute()), **limits}
    facts = do_with_spinner(folder, "compare", arguments, "predicting with each version")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    scores, screen = facts["scores"], Screen()
    metric = next(iter(next(iter(scores.values()))))
    title = escape(f"{task} on {facts['n_rows']:,} labelled rows of {rows.name}")
    table = Table("version", "R2" if metric == "r2" else metric, "degraded rows", "", title=title)
    ranked = sorted((score[metric] for score in scores.values()), reverse=True)
    for number, score in scores.items():
        notes = ["predicts"] if int(number) == record.active else []
        notes += ["best"] if score[metric] == ranked[0] and len(ranked) > 1 and ranked[1] < ranked[0] else []
        table.add_row(str(number), f"{score[metric]:z.4f}", f"{score['degraded']:,}", ", ".join(notes))
    print_table(table, screen)
    if any(score["degraded"] for score in scores.values()):
        screen.print("Degraded: an organization did not answer, or does not know the row.")


def _activate(folder: Path, task: str, version: int, as_json: bool) -> None:
    from gal.node.admin.membership import opened

    with opened(folder) as records:
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


__all__ = ["versions"]
