"""Which version predicts after a learning: the better one, unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from gal.core.state import Ensemble, Round, plain
from gal.node.label_holder.learning.learning import inactive_reason
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome
from small_network import LABEL, ROW_ID, Network, numbers, running


def version(*losses: float, kept: int | None = None, loss: str = "squared") -> LearnedVersion:
    rounds = tuple(Round(place, {}, 1.0, 1.0, 0.0, one, {}) for place, one in enumerate(losses[1:], start=1))
    used = len(rounds) if kept is None else kept
    ensemble = Ensemble(("clinic",), "clinic", (0.0,), 1, ({},) * used, rounds, 1.0, losses[0])
    outcome = LearningOutcome(
        ensemble=plain(ensemble),
        classes=None,
        loss=loss,
        finished="",
        seconds=0.0,
        known_rows={},
        unknown_rows={},
    )
    return LearnedVersion(
        status="finished", n_rows=1, n_without_label=0, started="", privacy={}, outcome=outcome
    )


@pytest.mark.parametrize(
    ("new", "old", "stays"),
    [
        (version(9, 5), None, False),
        (version(9, 5), version(9, 6), False),
        (version(9, 5), version(9, 5), False),
        (version(9, 6), version(9, 5), True),
        (version(9, 6, kept=0), version(9, 8), True),
        (version(9, 6), version(9, 5, loss="absolute"), False),
        (version(np.nan, np.nan), version(9, 5), False),
    ],
)
def test_which_one_predicts(new: LearnedVersion, old: LearnedVersion | None, stays: bool) -> None:
    assert new.outcome is not None
    assert bool(inactive_reason(new.outcome, old, 1)) == stays


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    tables = numbers(200)
    columns = pd.concat(
        [table.set_index(ROW_ID).drop(columns=LABEL, errors="ignore") for table in tables.values()], axis=1
    )
    clinic = tables["clinic"].set_index(ROW_ID)
    tables["clinic"] = clinic.assign(**{LABEL: columns.sum(axis=1)}).reset_index()
    with running(Network(tmp_path_factory.mktemp("net"), tables)) as made:
        yield made


def test_a_worse_version_does_not_predict(pair: Network) -> None:
    """After a partner left: what is learned without it is kept, and the better version stays."""
    record = pair.invite("risk", rounds=3, validation_fraction=0.3)
    first = pair.learn("risk")
    assert (first["active"], first["why_not_active"]) == (1, "")
    assert first["validation_loss"] < first["alone_validation_loss"]
    state = pair.nodes["clinic"].state
    state.set_member(record.id, "ward", "left of its own accord")
    second = pair.learn("risk")
    assert second["validation_loss"] > first["validation_loss"]
    assert second["active"] == state.find_task("risk").active == 1
    assert f"version 1 is {first['validation_loss']:.6g}" in second["why_not_active"]
