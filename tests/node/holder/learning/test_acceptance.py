"""Which version predicts after a learning: the better one, with enough
organizations, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.core.state import Ensemble, Round, plain
from gal.errors import InvalidOptionError
from gal.node.holder.learning.gathering import Patience
from gal.node.holder.learning.versions import decide, missing_at_end
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome
from patience import patient
from small_network import LABEL, ROW_ID, Network, numbers, running

ALL = {"clinic": "", "lab": ""}
ONE = {"clinic": "", "lab": "has not connected yet"}


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
    ("new", "old", "asked", "ending", "active"),
    [
        (version(9, 5), None, {}, ALL, 2),
        (version(9, 5), version(9, 6), {}, ALL, 2),
        (version(9, 5), version(9, 5), {}, ALL, 2),
        (version(9, 6), version(9, 5), {}, ALL, 1),
        (version(9, 6), version(9, 5), {"activate": True}, ALL, 2),
        (version(9, 6, kept=0), version(9, 8), {}, ALL, 1),
        (version(9, 6), version(9, 5, loss="absolute"), {}, ALL, 2),
        (version(np.nan, np.nan), version(9, 5), {}, ALL, 2),
        (version(9, 5), version(9, 6), {}, ONE, 2),
        (version(9, 5), version(9, 6), {"everybody": True}, ONE, 1),
        (version(9, 5), version(9, 6), {"quorum": 2, "activate": True}, ONE, 1),
        (version(9, 5), version(9, 6), {"quorum": 1}, ONE, 2),
    ],
)
def test_which_one_predicts(
    new: LearnedVersion,
    old: LearnedVersion | None,
    asked: dict[str, Any],
    ending: dict[str, str],
    active: int,
) -> None:
    patience = Patience(quorum=asked.get("quorum", 0), everybody=asked.get("everybody", False))
    activate = asked.get("activate", False)
    found = decide(patience, ending, new, 2, 0 if old is None else 1, old, activate=activate)
    assert found["active"] == active
    assert bool(found["why_not_active"]) == (active == 1)
    assert found["too_few"] == (ending is ONE and (patience.everybody or patience.quorum == 2))


def test_who_was_removed_is_not_missed() -> None:
    members = {
        "lab": "left of its own accord",
        "ward": "left: removed by the label holder",
        "bank": "invited",
    }
    found = missing_at_end({"clinic": "invited"} | members, {"bank": "has not connected yet"})
    assert found == {"clinic": "", "lab": "has left of its own accord", "bank": "has not connected yet"}


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
    assert (first["active"], first["why_not_active"], first["not_there"]) == (1, "", {})
    assert first["validation_loss"] < first["alone_validation_loss"]
    state = pair.nodes["clinic"].state
    state.set_member(record.id, "ward", "left of its own accord")
    second = pair.learn("risk")
    assert second["validation_loss"] > first["validation_loss"]
    assert second["active"] == state.find_task("risk").active == 1
    assert f"version 1 is {first['validation_loss']:.6g}" in second["why_not_active"]
    assert second["not_there"] == {"ward": "has left of its own accord"}
    assert pair.learn("risk", activate=True)["active"] == 3
    assert state.find_task("risk").active == 3


def test_with_fewer_than_asked_for(pair: Network) -> None:
    pair.invite("few", rounds=2)
    pair.stop("ward")
    soon = Patience(join=patient(1.0), deadline=patient(20.0))
    found: dict[str, Any] = pair.learn("few", patience=replace(soon, everybody=True))
    assert (found["too_few"], found["active"], set(found["not_there"])) == (True, 0, {"ward"})
    found = pair.learn("few", patience=replace(soon, quorum=2))
    assert (found["too_few"], found["active"]) == (False, 2)
    with pytest.raises(InvalidOptionError, match="--quorum 4 can never be reached"):
        pair.learn("few", patience=replace(soon, quorum=4))
