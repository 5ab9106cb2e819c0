"""``gal versions``: list versions of a task, choose the one that predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gal.cli.options import AsJson, Home, Report, TaskName, check_report_path, write_report_to
from gal.cli.screen import Screen, print_cells
from gal.errors import InvalidInputError, TaskError

if TYPE_CHECKING:
    from gal.evaluate.reporting.facts import ReportFacts
    from gal.node.store.state import TaskRecord


def versions(
    task: TaskName,
    activate: Annotated[
        int | None,
        typer.Option(
            help="Predict with this finished version from now on; a running node does so at once.",
            show_default=False,
        ),
    ] = None,
    report: Report = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """All versions of an own task: when, how many rows, how good, and which one predicts."""
    from gal.node.config.configuration import home_of

    if activate is not None and report is not None:
        raise InvalidInputError("give one of --activate and --report")
    folder = home_of(home)
    if activate is not None:
        _activate(folder, task, activate, as_json)
    else:
        _list(folder, task, report, as_json)


def _list(folder: Path, task: str, report: Path | None, as_json: bool) -> None:
    from gal.cli.tasks import print_privacy, privacy_now
    from gal.evaluate.reporting.learned import versions_cells
    from gal.node.admin.membership import opened
    from gal.node.admin.status import live_facts
    from gal.node.label_holder.version_facts import version_facts
    from gal.node.runtime.web.node_facts import task_state

    check_report_path(report)
    with opened(folder) as records:
        labelled = records.configuration.data is not None and records.configuration.data.label is not None
        record = records.state.find_task(task, "label holder")
        statuses = records.state.statuses(record.id, record.role)
        found = {
            number: version_facts(record, number, learned)
            for number, learned in records.state.learned_versions(record.id).items()
        }
    privacy = privacy_now(folder, task) if labelled else None
    write_report_to(report, lambda: _report(folder, record, found))
    if as_json:
        typer.echo(json.dumps({"active": record.active, "versions": found, "privacy": privacy}, indent=2))
        return
    screen = Screen()
    if found:
        print_cells(
            versions_cells(record.active, found, task_state(record, statuses, live_facts(folder))), screen
        )
    else:
        screen.print(f"No version yet: gal learn {escape(task)}")
    if privacy is not None:
        print_privacy(privacy, screen, short=True)


def _report(home: Path, record: TaskRecord, found: Mapping[int, Any]) -> ReportFacts:
    """Of the version that predicts, or else of the last finished one; all others in a table."""
    finished = [number for number, facts in found.items() if facts["status"] == "finished"]
    if not finished:
        raise TaskError(f"{record.name!r} has no finished version to report on yet: gal learn {record.name}")
    return report_of_version(home, found[record.active if record.active in finished else finished[-1]], found)


def report_of_version(
    home: Path, facts: Mapping[str, Any], versions: Mapping[int, Mapping[str, Any]]
) -> ReportFacts:
    """A version, what the audit log says of its task, and all versions."""
    from gal.evaluate.reporting.learned import facts_of_version, versions_cells
    from gal.node.admin.membership import opened
    from gal.node.label_holder.labels.label_privacy import in_words

    with opened(home) as records:
        record = records.state.find_task(facts["task"], "label holder")
        moved = [one for one in records.audit.summary() if one.task == record.id]
    spent = [in_words(facts["privacy"])] if "spent" in facts["privacy"] else []
    listed = versions_cells(record.active, versions)
    return facts_of_version(facts, moved=moved, privacy=spent, versions=listed)


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


__all__ = ["report_of_version", "versions"]
