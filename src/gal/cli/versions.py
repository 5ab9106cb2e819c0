"""``gal versions``: list the versions of a task, report on one, choose the active one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gal.cli.options import AsJson, Home, Report, TaskName
from gal.cli.screen import Screen, command_line, escape, print_facts, print_parts
from gal.errors import InvalidInputError, TaskError

if TYPE_CHECKING:
    from gal.evaluate.reporting.facts import ReportFacts


def versions(
    task: TaskName,
    activate: Annotated[
        int | None,
        typer.Option(
            help="Make this finished version the active one, which predicts; a running node uses it at once."
        ),
    ] = None,
    report: Report = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Versions of an own task: when, how many rows, how good, and which one is active."""
    from gal.cli.tasks import current_privacy, print_privacy
    from gal.evaluate.reporting.learned import versions_cells
    from gal.evaluate.reporting.writing import check_report, write_report
    from gal.node.admin.membership import opened
    from gal.node.admin.status import live_facts
    from gal.node.config.configuration import home_of
    from gal.node.label_holder.version_facts import version_facts
    from gal.node.runtime.web.node_facts import task_state

    if activate is not None and report is not None:
        raise InvalidInputError("--activate and --report do not go together: give one of them")
    folder = home_of(home)
    if activate is not None:
        _activate(folder, task, activate, as_json)
        return
    if report is not None:
        check_report(report)
    with opened(folder) as records:
        data = records.configuration.data
        record = records.state.find_task(task, "label holder")
        statuses = records.state.statuses(record.id, record.role)
        found = {
            number: version_facts(record, number, learned)
            for number, learned in records.state.learned_versions(record.id).items()
        }
    privacy = current_privacy(folder, task) if data is not None and data.label is not None else None
    if report is not None:
        finished = [number for number, facts in found.items() if facts["status"] == "finished"]
        if not finished:
            raise TaskError(f"{task!r} has no finished version to report on yet: gal learn {task}")
        chosen = found[record.active if record.active in finished else finished[-1]]
        write_report(report_of_version(folder, chosen, found), report)
        Screen(stderr=True).print(f"The report is in {escape(str(report))}.")

    def show(out: Screen) -> None:
        if found:
            state = task_state(record, statuses, live_facts(folder))
            print_parts([versions_cells(record.active, found, state)], out)
        else:
            out.print(f"No version yet: {escape(command_line('gal', 'learn', task, home=folder))}")
        if privacy is not None:
            print_privacy(privacy, out, short=True)

    print_facts({"active": record.active, "versions": found, "privacy": privacy}, as_json, show)


def report_of_version(
    home: Path, facts: Mapping[str, Any], versions: Mapping[int, Mapping[str, Any]]
) -> ReportFacts:
    """The report of a version, with the audit log's totals of its task, and a table of all versions."""
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
            raise TaskError(f"{task!r} has no finished version {version}: gal versions {task} lists them")
        if version != record.active:
            records.state.set_active(record.id, version)
            note = f"was {record.active}"
            records.audit.append("own", "rolled back", task=record.id, version=version, note=note)
    change = " already: nothing changes" if version == record.active else f" now, instead of {record.active}"
    print_facts(
        {"task": task, "active": version, "before": record.active},
        as_json,
        lambda out: out.print(f"{escape(task)} predicts with version {version}{change}."),
    )
