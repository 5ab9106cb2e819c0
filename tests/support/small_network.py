"""A small network of nodes in the test's own process, and the same learning without a network beside it.

Fits run in the test's process unless ``own_processes`` is set: a worker process costs seconds to start.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
import gal.node.runtime.node
from gal import Organization
from gal.assembling import grouped
from gal.core.state import Ensemble, ensemble_of, plain
from gal.models.registry import make_model
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.invitations import read_invitation, write_invitation
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.label_holder.labels.tasks import new_task
from gal.node.label_holder.learning.open_version import Patience
from gal.node.runtime.node import Node
from gal.node.store.audit import AuditEntry
from gal.node.store.failures import describe_failure
from gal.node.store.logs import Log
from gal.node.store.state import TaskRecord
from gal.node.worker.local_work import LocalWork
from gal.node.worker.worker import Result, WorkFailedError
from gal.node.worker.worker_process import ONE_AT_A_TIME
from gal.transport import CardFolder, card_of, make_identity, save_identity
from patience import LONGEST, patient
from ports import free_port
from rounded_alike import rounding_as_nodes

ROW_ID, LABEL = "id", "y"
LINEAR = 'use = "linear"'
QUICKLY = Patience(join=patient(20.0), deadline=patient(60.0))


def quiet() -> Log:
    """A log that keeps to itself."""
    logger = logging.Logger("quiet")
    logger.addHandler(logging.NullHandler())
    return Log(logger)


class WorkerHere:
    """Does what a worker process does, in this process: the same commands, as JSON and bytes."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._configuration = configuration
        self._one_at_a_time = threading.Lock()
        self._making = threading.Lock()
        self._work: LocalWork | None = None

    def start(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing to end."""

    @property
    def pid(self) -> int:
        """That of the test."""
        return os.getpid()

    rests = False

    def forget(self) -> None:
        """Let go of what is cached of files in a folder."""
        self("forget")

    def restart(self) -> None:
        """Forget everything."""
        with self._making:
            self._work = None

    def __call__(self, do: str, data: Any = b"", **command: Any) -> Result:
        told = json.loads(json.dumps(command, default=str))
        with self._making:
            if self._work is None:
                self._work = LocalWork(self._configuration)
        try:
            if do not in ONE_AT_A_TIME:
                result, content = getattr(self._work, do)(bytes(data), **told)
            else:
                with self._one_at_a_time:
                    result, content = getattr(self._work, do)(bytes(data), **told)
        except Exception as error:
            raise WorkFailedError(describe_failure(error, self._configuration.name)) from error
        return json.loads(json.dumps(result)), content


class Network:
    """A label holder and organizations, each with its own folder, key and rows."""

    def __init__(
        self,
        root: Path,
        tables: Mapping[str, pd.DataFrame],
        *,
        holders: Sequence[str] = (),
        models: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """``more``: lines of node.toml by organization; ``models``: the section
        [model]; the first one holds labels.
        """
        self.root, self.models, self.more = root, dict(models or {}), dict(more or {})
        self.holders = tuple(holders) or (next(iter(tables)),)
        self.tables = dict(tables)
        self.nodes: dict[str, Node] = {}
        self.label_holders: dict[str, LabelHolder] = {}
        self._stacks: dict[str, ExitStack] = {}
        identities = {name: make_identity(name) for name in tables}
        self._ports = {name: free_port() for name in self.holders}
        for name, identity in identities.items():
            (root / name / "cards").mkdir(parents=True, mode=0o700)
            save_identity(identity, root / name)
            self.write(name, self.tables[name])
            self.configure(name)
        for name in tables:
            for other, identity in identities.items():
                if other != name:
                    CardFolder(root / name / "cards").add(card_of(identity, self.address(other)))

    @property
    def holder(self) -> LabelHolder:
        """The first label holder, who must be running."""
        return self.label_holders[self.holders[0]]

    def address(self, name: str) -> str | None:
        """Where a label holder listens."""
        return f"127.0.0.1:{self._ports[name]}" if name in self.holders else None

    def write(self, name: str, table: pd.DataFrame) -> None:
        """An organization's rows."""
        self.tables[name] = table
        table.to_csv(self.root / name / "rows.csv", index=False)

    def configure(self, name: str) -> None:
        """An organization's node.toml."""
        text = f'name = "{name}"\n[data]\nsource = "rows.csv"\nrow_id = "{ROW_ID}"\n'
        text += f'label = "{LABEL}"\n' if name in self.holders else ""
        text += self.more.get(f"{name} data", "")
        text += f"[model]\n{self.models.get(name, LINEAR)}\n"
        if name in self.holders:
            text += f'[listen]\nbind = "{self.address(name)}"\naddress = "{self.address(name)}"\n'
        (self.root / name / "node.toml").write_text(text + self.more.get(name, ""), encoding="utf-8")

    def start(self, *names: str) -> None:
        """Start nodes (default: all)."""
        for name in names or tuple(self.tables):
            stack = self._stacks[name] = ExitStack()
            node = self.nodes[name] = stack.enter_context(Node(self.root / name, log=quiet()))
            if name in self.holders:
                self.label_holders[name] = LabelHolder(node)
                stack.callback(self.label_holders[name].close)

    def stop(self, *names: str) -> None:
        """End nodes (default: all)."""
        for name in names or tuple(self._stacks):
            self._stacks.pop(name).close()
            self.nodes.pop(name)
            self.label_holders.pop(name, None)

    def invite(
        self,
        task: str,
        *,
        holder: str | None = None,
        organizations: Sequence[str] = (),
        join: Sequence[str] | None = None,
        **options: Any,
    ) -> TaskRecord:
        """Open a task for everybody (or ``organizations`` only), and have them (or ``join`` only) join it."""
        who = holder or self.holders[0]
        node = self.nodes[who]
        others = list(organizations) or [name for name in self.tables if name != who]
        record = new_task(node.configuration, node.identity, node.cards, task, others, **options)
        node.state.add_task(record, dict.fromkeys(others, "invited"))
        path = self.root / f"{who}-{task}.invitation"
        write_invitation(record.terms, node.identity, path)
        for name in others if join is None else join:
            joining = self.nodes[name]
            read, peer = read_invitation(path, joining.cards, joining.identity.fingerprint)
            joining.state.add_task(TaskRecord(read.task, read.name, "organization", peer, read))
        return record

    def wait_until_joined(self, record: TaskRecord, *names: str) -> None:
        """Until these organizations (default: all) are connected and have said that they take part."""
        assistants = self.nodes[record.label_holder].assistants
        wanted = set(names) or set(self.tables) - {record.label_holder}
        assert assistants.wait_for(lambda: wanted <= set(assistants.present(record.id)), LONGEST)

    def learn(self, task: str, *, holder: str | None = None, **how: Any) -> dict[str, Any]:
        """Learn a version; its facts."""
        who = self.label_holders[holder or self.holders[0]]
        told: dict[str, Any] = {
            "patience": QUICKLY,
            "on_event": lambda event: None,
            "stopping": threading.Event(),
        }
        return who.learn(task, **told | how)

    def ensemble(self, record: TaskRecord, version: int = 1) -> Ensemble:
        """What was learned over the network."""
        learned = self.nodes[record.label_holder].state.learned_version(record.id, version)
        assert learned is not None
        assert learned.outcome is not None
        return ensemble_of(learned.outcome.ensemble)

    def audited(self, name: str) -> list[AuditEntry]:
        """The audit log of a node, verified."""
        audit = self.nodes[name].records.audit
        audit.verify()
        return audit.entries()

    # Without a network

    def members(self, holder: str | None = None) -> list[Organization]:
        """The same organizations in process, their rows in the order of the label holder's."""
        who = holder or self.holders[0]
        order = self.tables[who][ROW_ID]
        return [self._member(name, table, order) for name, table in self.tables.items()]

    def _member(self, name: str, table: pd.DataFrame, order: pd.Series[Any]) -> Organization:
        chosen: dict[str, Any] = tomllib.loads(self.models.get(name, LINEAR))
        view = view_by_hand(table.set_index(ROW_ID).loc[order])
        return Organization(name, view, make_model(name, chosen["use"], chosen.get("options", {})))

    def in_process(
        self, *, holder: str | None = None, secure_aggregation: Any = None, **options: Any
    ) -> tuple[Ensemble, list[Organization]]:
        """The same learning without a network."""
        who = holder or self.holders[0]
        members = self.members(who)
        y = self.tables[who][LABEL].to_numpy()
        with rounding_as_nodes(lambda name: self.root / name):
            ensemble = gal.learn(
                y, members, label_holder=who, secure_aggregation=secure_aggregation, **grouped(options)
            )
            return ensemble, members


def view_by_hand(rows: pd.DataFrame) -> Any:
    """What an organization's view is meant to be: float64 numbers, or a frame with sorted categories."""
    columns = rows.drop(columns=[LABEL], errors="ignore").reset_index(drop=True)
    if all(pd.api.types.is_numeric_dtype(kind) for kind in columns.dtypes):
        return np.ascontiguousarray(columns.to_numpy(dtype=np.float64))
    for name in columns:
        numeric = pd.api.types.is_numeric_dtype(columns[name])
        columns[name] = columns[name].astype(np.float64 if numeric else "category")
    return columns


def exact(ensemble: Ensemble) -> str:
    """An ensemble to the last bit; NaN (no validation rows) is like itself here."""
    return json.dumps(plain(ensemble), sort_keys=True)


@contextmanager
def running(network: Network, *, own_processes: bool = False) -> Iterator[Network]:
    """All nodes of a network, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        if not own_processes:
            patch.setattr(gal.node.runtime.node, "Worker", WorkerHere)
        try:
            network.start()
            yield network
        finally:
            network.stop()


def numbers(
    n: int = 120,
    seed: int = 0,
    organizations: Sequence[str] = ("clinic", "lab", "ward"),
    linear: bool = False,
) -> dict[str, pd.DataFrame]:
    """Tables of numbers: two columns each, the rows in another order everywhere; the first has the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, max(6, 2 * len(organizations))))
    y = X.sum(axis=1) if linear else X[:, 0] + np.sin(2 * X[:, 2]) + X[:, 4] * X[:, 5]
    y += 0.1 * rng.normal(size=n)
    tables: dict[str, pd.DataFrame] = {}
    for place, name in enumerate(organizations):
        table = pd.DataFrame(X[:, 2 * place : 2 * place + 2], columns=[f"{name}_a", f"{name}_b"])
        table.insert(0, ROW_ID, 1000 + np.arange(n))
        if place == 0:
            table[LABEL] = y
        tables[name] = table if place == 0 else table.sample(frac=1, random_state=place)
    return tables


__all__ = ["LABEL", "QUICKLY", "ROW_ID", "Network", "exact", "numbers", "quiet", "running"]
