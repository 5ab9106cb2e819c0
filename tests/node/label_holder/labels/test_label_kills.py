"""A label holder of protected labels is killed at every point: noise is drawn and charged
once, and before anything leaves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import real_nodes
from gal.node.admin.membership import invite, join, read_terms
from gal.node.label_holder.labels.label_privacy import LabelPrivacy
from gal.node.store.audit import AuditLog
from gal.privacy.ledger import Ledger
from gal.privacy.mechanisms.columns import SUBJECT as COLUMN_SUBJECT
from small_network import LABEL

LABELS = LabelPrivacy("laplace-labels", 1.0, lower=-50.0, upper=50.0)
COLUMNS = replace(LABELS, columns_epsilon=10.0, columns_delta=1e-6)
SUBJECT = f"labels: {LABEL}"


@dataclass
class Protected(real_nodes.Network):
    """Real processes with a task whose labels are protected."""

    privacy: LabelPrivacy = LABELS

    def invite(self, task: str = real_nodes.TASK) -> None:
        path, home = self.root / f"{task}.invitation", self.home(real_nodes.HOLDER)
        choices = {"kind": "regression", "alignment": "plain", "seed": 0, "purpose": ""}
        names = list(self.organizations)
        invite(home, task, names, path, privacy=self.privacy, options={"rounds": self.rounds}, **choices)
        for name in self.organizations:
            join(self.home(name), *read_terms(self.home(name), path))


POINTS = ("commit-before", "commit-after", "rename-before", "rename-after", "record-before", "sent")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("privacy", [LABELS, COLUMNS], ids=["labels", "columns"])
def test_a_label_holder_killed_anywhere_draws_and_pays_once(tmp_path: Path, privacy: LabelPrivacy) -> None:
    pytest.importorskip("opendp", reason="the extra privacy")
    with Protected(tmp_path, privacy=privacy) as network:
        network.serve(*network.organizations)
        state, deaths = network.state(real_nodes.HOLDER), 0
        for doom in [f"node.{point}:{at}" for at in (2, 3, 4, 6) for point in POINTS] + [""]:
            one = network.start(real_nodes.HOLDER, "learn", real_nodes.TASK, doom=doom)
            assert one.end() == (-9 if one.died else 0), one.said()
            deaths += one.died
        assert deaths > 12
        statuses = state.statuses(network.task_id(), "label holder")
        assert set(statuses.values()) == {"finished"}
        check_paid_before_sent(network, residuals=5)  # of the task, and without each part
        with Ledger(network.home(real_nodes.HOLDER) / "ledger.sqlite") as ledger:
            # Noisy labels are drawn and paid for once; noise for columns in every version, however often it
            # was killed.
            assert ledger.spent(SUBJECT, 0.0) == pytest.approx(1.0)
            columns = [one for one in ledger.entries() if one.subject == COLUMN_SUBJECT]
            assert len(columns) == (0 if privacy is LABELS else len(statuses))


def check_paid_before_sent(network: Protected, residuals: int) -> None:
    """Nothing left before its charge; in a round each got so many residuals, however often they were sent."""
    with AuditLog(network.home(real_nodes.HOLDER) / "state.sqlite") as audit:
        entries = audit.entries()
    left = [one for one in entries if one.direction == "out" and one.kind in {"begin", "fit"}]
    paid = {one.version: one.seq for one in reversed(entries) if one.kind == "charged"}
    assert all(paid[one.version] < one.seq for one in left)
    told = {(one.version, one.round, one.peer, one.kind, one.digest) for one in left}
    different = Counter(facts[:4] for facts in told)
    assert different == {facts: 1 if facts[3] == "begin" else residuals for facts in different}
