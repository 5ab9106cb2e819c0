"""Commands that open, join and forget tasks, whether or not the node runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal.clock import utc_now
from gal.errors import GALError, InvalidInputError, RefusedError
from gal.node.assistant.answer_guard import check_bounded
from gal.node.config.aggregation_messages import check_members
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.config.invitations import TaskTerms, read_invitation, write_invitation
from gal.node.config.policy import PolicyLimits
from gal.node.runtime.node import held_lock
from gal.node.store.audit import AuditLog
from gal.node.store.files import temporary_folder
from gal.node.store.state import State, TaskRecord
from gal.node.worker.erasing import erase_rows
from gal.node.worker.worker import Worker
from gal.transport import CardFolder, Identity, load_identity

REMOVED = "left: removed by the label holder"
"""The status of an organization that the label holder has removed."""
REHEARSED, FEWEST = 2_000, 20
"""The most, and the fewest, own rows on which interaction probes are rehearsed."""


@dataclass(frozen=True)
class HomeRecords:
    """The contents of a home folder, opened for one command."""

    configuration: NodeConfiguration
    identity: Identity
    cards: CardFolder
    state: State
    audit: AuditLog


@contextmanager
def opened(home: Path) -> Iterator[HomeRecords]:
    """Open the records of a node."""
    configuration = read_configuration(home)
    identity = load_identity(home, configuration.name)
    state = State(home)
    try:
        with AuditLog(state.path) as audit:
            yield HomeRecords(configuration, identity, CardFolder(home / "cards"), state, audit)
    finally:
        state.close()


def invite(
    home: Path,
    name: str,
    organizations: Sequence[str],
    path: Path,
    *,
    options: Mapping[str, Any],
    **choices: Any,
) -> TaskTerms:
    """Open an own task and write its invitation, or invite more organizations to one that is open."""
    from gal.node.label_holder.labels.tasks import check_options, new_task

    check_options(options)
    with opened(home) as records:
        known = next((one for one in records.state.tasks("label holder") if one.name == name), None)
        if known is None:
            made, keys = utc_now().isoformat(timespec="seconds"), (records.identity, records.cards)
            given = {"made": made, **choices, **options}
            record = new_task(records.configuration, *keys, name, organizations, **given)
        else:
            record = _invited_again(records, known, organizations)
        write_invitation(record.terms, records.identity, path)
        if record is not known:
            records.state.add_task(record, dict.fromkeys(organizations, "invited"))
        again = "" if known is None else ", again"
        note = f"{name}{again}: {', '.join(organizations)}"
        records.audit.append("own", "invited", task=record.id, note=note)
        return record.terms


def _invited_again(records: HomeRecords, task: TaskRecord, organizations: Sequence[str]) -> TaskRecord:
    """The task with an invitation for more organizations, or for those with a new key or that had left."""
    from gal.node.label_holder.labels.tasks import invited

    if (
        task.terms.secure_aggregation == "sums"
    ):  # the same invitation: an organization that dropped out stays out
        members = [one.name for one in task.terms.organizations]
        if new := sorted(set(organizations) - set(members)):
            raise InvalidInputError(
                f"{task.name!r} learns from sums over {', '.join(members)}, which no organization can join "
                f"later: two sums that differ in {', '.join(new)} would reveal its fitted values"
            )
        return task
    still = [one for one, status in records.state.members(task.id).items() if status == "invited"]
    everybody = invited(records.configuration.name, records.cards, [*dict.fromkeys([*still, *organizations])])
    changed = {"organizations": everybody, "fingerprint": records.identity.fingerprint}
    return replace(task, terms=task.terms.model_copy(update=changed))


def read_terms(home: Path, invitation: Path) -> tuple[TaskTerms, str]:
    """The terms in an invitation and its label holder, if this organization's policy allows them."""
    with opened(home) as records:
        terms, peer = read_invitation(invitation, records.cards, records.identity.fingerprint)
        if records.configuration.data is None:
            raise InvalidInputError("this node has no data: add a section [data] to node.toml")
        limits = PolicyLimits(records.configuration.name, records.configuration.policy)
        limits.check_invitation(peer, terms.rounds, terms.probes)
        check_bounded(records.configuration, terms)
        return terms, peer


def rehearse_probes(home: Path) -> dict[str, Any]:
    """What interaction probes would reveal of this organization's columns, measured on some of its rows.

    ``columns`` are those of `rehearse_signs`; where nothing could be measured, ``why`` says so.
    """
    from gal.node.source.data import data_of, read_some, read_source, view_of_table
    from gal.node.store.views import save_view

    configuration = read_configuration(home)
    place = temporary_folder(configuration.home)
    try:
        streamed = data_of(configuration).is_streamed
        table = read_some(configuration, REHEARSED) if streamed else read_source(configuration)
        if len(table) < FEWEST:
            raise InvalidInputError(f"there are {len(table)} rows, and {FEWEST} are needed")
        rows = np.sort(np.random.default_rng(0).permutation(len(table))[:REHEARSED])
        with (
            closing(Worker(configuration)) as worker,
            tempfile.TemporaryDirectory(prefix="gal-join-", dir=place) as folder,
        ):
            save_view(view_of_table(table, rows), Path(folder) / "view")
            found, _ = worker("signs", view=Path(folder) / "view", names=table.features)
    except GALError as error:
        return {"why": str(error), "columns": []}
    return {"model": configuration.model.use, "rows": len(rows), "of": len(table.features)} | found


def check_group_cards(home: Path, terms: TaskTerms) -> None:
    """An error where cards of the aggregation group are missing here."""
    if terms.secure_aggregation == "sums":
        with opened(home) as records:
            check_members(terms, records.cards, records.identity.fingerprint)


def join(home: Path, terms: TaskTerms, peer: str) -> None:
    """Accept the terms."""
    check_group_cards(home, terms)
    with opened(home) as records:
        known = records.state.get_task(terms.task)
        if known is not None and (known.role, known.label_holder) != ("organization", peer):
            raise RefusedError(
                "other-task",
                f"{peer}'s invitation has the id of the task {known.name!r} of {known.label_holder}: it "
                f"would change that task's terms. Ask {peer} for a new invitation",
            )
        made = utc_now().isoformat(timespec="seconds")
        record = TaskRecord(terms.task, terms.name, "organization", peer, terms, made=made)
        records.state.add_task(record)
        about = {"peer": peer, "task": terms.task, "digest": terms.digest}
        records.audit.append("own", "joined", **about, note=terms.name)


def remove(home: Path, name: str, organizations: Sequence[str]) -> None:
    """Remove organizations from an own task for good."""
    with opened(home) as records:
        task = records.state.find_task(name, "label holder")
        members = records.state.members(task.id)
        unknown = sorted(set(organizations) - set(members))
        if unknown:
            there = ", ".join(one for one, how in members.items() if how != REMOVED) or "none"
            raise InvalidInputError(f"{', '.join(unknown)} is not in {name!r}; its organizations: {there}")
        gone = [one for one in organizations if members[one] == REMOVED]
        if gone:
            raise InvalidInputError(f"removed from {name!r} already: {', '.join(gone)}. Name the others only")
        for organization in organizations:
            records.state.set_member(task.id, organization, REMOVED)
            records.audit.append("own", "removed", peer=organization, task=task.id, note=task.name)


def forget(home: Path, name: str) -> int:
    """Leave a task and delete all its records and files; the number of files.

    A joined task is kept as "left" until its label holder has been notified (``links.py``).
    """
    with opened(home) as records:
        task = records.state.find_task(name)
        folder = home / "tasks" / task.id
        n_files = sum(path.is_file() for path in folder.rglob("*"))
        with records.state.transaction():
            records.state.forget(task.id)
            if task.role == "organization" and task.status == "open":
                records.state.add_task(replace(task, status="left"))
        shutil.rmtree(folder, ignore_errors=True)
        note = f"{task.name}: {n_files} files"
        records.audit.append("own", "forgot", peer=task.label_holder, task=task.id, note=note)
        return n_files


def forget_rows(home: Path, ids: Sequence[str], *, drop_versions: bool = False) -> dict[str, Any]:
    """Forget rows everywhere at this node, which must not run, as it has rows in memory; a report."""
    with opened(home) as records, held_lock(home, records.configuration.name):
        return erase_rows(records.state, records.audit, ids, drop_versions=drop_versions)
