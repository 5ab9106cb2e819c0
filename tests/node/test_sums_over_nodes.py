"""Sums over real nodes: the numbers of one process, and no single answer anywhere at the label holder's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from gal.errors import LearningInterruptedError, TaskError
from gal.node.label_holder.learning.secure_sums import GroupCalls
from gal.secure_aggregation import Sums
from gal.secure_aggregation.member import GroupMember
from gal.secure_aggregation.terms import SUM
from low_bits import best_split, sums_of, without_rounding
from patience import LONGEST, patient
from small_network import LABEL, QUICKLY, ROW_ID, Network, exact, numbers, running

NAMES = ("clinic", "lab", "ward", "bank")
OPTIONS: dict[str, Any] = {"rounds": 3, "cross_validation": 0, "validation_fraction": 0.0}
GRID = 2e-4
"""Of the spread of the labels: what rounding on one grid may change."""
PLAIN: dict[str, Any] = {"weights": "uniform", "stacking": False}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with running(Network(tmp_path, numbers(120, organizations=NAMES))) as made:
        yield made


def predicted(network: Network, table: pd.DataFrame, task: str = "risk", **how: Any) -> dict[str, Any]:
    table.to_csv(network.root / "new.csv", index=False)
    return network.holder.predict_file(task, network.root / "new.csv", **{"join": patient(20.0)} | how)


def outputs(found: dict[str, Any]) -> list[float]:
    return [row["prediction"] for row in found["rows"]]


def test_the_same_as_in_one_process_and_nobodys_answer_comes(network: Network) -> None:
    record = network.invite("risk", secure_aggregation="sums", **OPTIONS)
    facts = network.learn("risk")
    found = predicted(network, network.tables["clinic"][[ROW_ID]])
    assert facts["contributions"]["by_organization"].keys() == {SUM}
    assert (found["degraded"], found["missing"], found["unknown"]) == (0, {}, {})
    came = {one.kind for one in network.nodes["clinic"].records.audit.entries() if one.direction == "in"}
    assert came >= {"masked", "opened", "done", "found"}
    assert not {"fitted", "predicted"} & came

    ensemble, members = network.in_process(secure_aggregation="sums", **OPTIONS)
    assert exact(network.ensemble(record)) == exact(ensemble)
    plain, others = network.in_process(**PLAIN, **OPTIONS)
    spread = network.tables["clinic"][LABEL].std()
    for output in (gal.predict(ensemble, members).output, gal.predict(plain, others).output):
        assert np.abs(output[:, 0] - outputs(found)).max() < GRID * spread


def test_classes_with_a_cross_validation_are_learned_to_the_same_bits(network: Network) -> None:
    """Every part is a sum of its own, in the same round trips."""
    table = network.tables["clinic"]
    network.write("clinic", table.assign(**{LABEL: (table[LABEL] > 0).astype(int)}))
    network.nodes["clinic"].worker.restart()
    options: dict[str, Any] = {"rounds": 2, "cross_validation": 2, "validation_fraction": 0.0}
    record = network.invite("class", secure_aggregation="sums", kind="classification", **options)
    network.learn("class")
    ensemble, _ = network.in_process(secure_aggregation="sums", kind="classification", **options)
    assert exact(network.ensemble(record)) == exact(ensemble)
    assert network.ensemble(record).summed == ("bank", "lab", "ward")


def test_restarts_do_not_change_the_sums(network: Network) -> None:
    """An organization loses its keys between two rounds; then the label holder stops and resumes."""
    record = network.invite("risk", secure_aggregation="sums", **OPTIONS)
    stopping = threading.Event()

    def restart(event: Mapping[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            network.stop("lab")
            network.start("lab")
        if event["event"] == "round" and event["round"] == 2:
            stopping.set()

    with pytest.raises(LearningInterruptedError):
        network.learn("risk", on_event=restart, stopping=stopping)
    network.stop("clinic")
    network.start("clinic")
    network.learn("risk")
    assert exact(network.ensemble(record)) == exact(
        network.in_process(secure_aggregation="sums", **OPTIONS)[0]
    )
    asked = [one.kind for one in network.nodes["bank"].records.audit.entries() if one.direction == "in"]
    assert asked.count("keys") == 3, "once for each round"


def test_without_everybody_nothing_is_learned_and_predictions_take_the_mean(network: Network) -> None:
    record = network.invite("risk", secure_aggregation="sums", **OPTIONS)
    network.wait_until_joined(record)
    network.stop("lab")
    with pytest.raises(TaskError, match=r"only 3 of 4 organizations are present.*the quorum is 4"):
        network.learn("risk", patience=replace(QUICKLY, join=0.3))
    network.start("lab")
    network.learn("risk")
    rows = network.tables["clinic"][[ROW_ID]].head(9)
    everybody = predicted(network, rows)
    network.stop("lab")
    found = predicted(network, rows, join=0.1)
    assert found["degraded"] == 9
    assert found["missing"] == {"lab": "is not connected, and without it there is no sum"}
    assert outputs(found) != outputs(everybody)
    network.start("lab")
    network.wait_until_joined(record)
    assert outputs(predicted(network, rows)) == outputs(everybody)


def test_rows_that_one_member_does_not_know_are_in_no_sum(network: Network) -> None:
    """The sum of a row that one organization alone knows would be its reply."""
    record = network.invite("risk", secure_aggregation="sums", **OPTIONS)
    network.learn("risk")
    rows = network.tables["clinic"][[ROW_ID]].head(20)
    before = predicted(network, rows)
    hidden = rows[ROW_ID].to_numpy()[4:7]
    table = network.tables["lab"]
    network.write("lab", table[~table[ROW_ID].isin(hidden)])
    network.nodes["lab"].worker.restart()
    found = predicted(network, rows)
    assert (found["degraded"], found["unknown"]) == (3, {"lab": 3})
    same = [a == b for a, b in zip(outputs(found), outputs(before), strict=True)]
    assert [place for place, one in enumerate(same) if not one] == [4, 5, 6]
    facts = network.learn("risk")
    assert (facts["version"], facts["n_rows"], facts["known_rows"]["lab"]) == (3, 117, 117)
    network.write("clinic", network.tables["clinic"][~network.tables["clinic"][ROW_ID].isin(hidden)])
    assert exact(network.ensemble(record, 3)) == exact(
        network.in_process(secure_aggregation="sums", **OPTIONS)[0]
    )


def test_who_drops_out_where_that_was_agreed_stays_out(tmp_path: Path) -> None:
    names = (*NAMES, "shop")
    with running(Network(tmp_path, numbers(100, organizations=names))) as network:
        record = network.invite("risk", secure_aggregation="sums", drop_outs=1, **OPTIONS)
        network.wait_until_joined(record)

        def leave(event: Mapping[str, Any]) -> None:
            if event["event"] == "round" and event["round"] == 1:
                network.stop("shop")

        network.learn("risk", on_event=leave, patience=replace(QUICKLY, join=patient(0.5)))
        ensemble = network.ensemble(record)
        assert [sorted(done.left_out) for done in ensemble.rounds] == [[], ["shop"], ["shop"]]
        assert network.nodes["clinic"].state.members(record.id)["shop"] == "left: dropped out of a sum"
        network.start("shop")
        asked = len(network.nodes["shop"].records.audit.entries())
        found = predicted(network, network.tables["clinic"][[ROW_ID]].head(5))
        assert found["degraded"] == 5, "its mean stands in"
        assert not np.isnan(outputs(found)).any()
        later = network.nodes["shop"].records.audit.entries()[asked:]
        assert "total" not in [one.kind for one in later]
        network.stop("bank")
        with pytest.raises(TaskError, match=r"only 3 of 4 organizations are present.*the quorum is 4"):
            network.learn("risk", patience=replace(QUICKLY, join=0.3))


def test_the_same_residual_is_not_opened_again_without_one_who_was_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second version of the same rows begins with the same residual; a prediction drops no member."""
    names = (*NAMES, "shop")
    with running(Network(tmp_path, numbers(100, organizations=names))) as network:
        record = network.invite("risk", secure_aggregation="sums", drop_outs=1, **OPTIONS)
        network.learn("risk")
        rows = network.tables["clinic"][[ROW_ID]].head(5)
        silent, sums = threading.Event(), network.nodes["shop"].service._sums
        waited: list[float] = []

        def add_up(calls: GroupCalls, questions: Any, members: Any, seconds: float, **how: Any) -> Any:
            waited.append(seconds)
            return all_together(calls, questions, members, seconds, **how)

        all_together = GroupCalls.add_up
        with monkeypatch.context() as patched:
            patched.setattr(sums, "answer", lambda *_: silent.wait(LONGEST))
            patched.setattr(GroupCalls, "add_up", add_up)
            found = predicted(network, rows, seconds=patient(1.0))
        silent.set()
        assert found["degraded"] == 5
        assert max(waited) <= patient(1.0), "a connected member gets no time to reconnect"
        assert predicted(network, rows)["degraded"] == 0
        network.stop("shop")
        patience = replace(QUICKLY, join=patient(0.5))
        with pytest.raises(TaskError, match=r"bank has helped to open a sum of the same for bank lab shop"):
            network.learn("risk", patience=patience)
        assert set(network.nodes["clinic"].state.members(record.id).values()) == {"invited"}


def test_low_bits_of_sums_do_not_give_a_two_valued_column_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rounding the same attack succeeds."""
    rng = np.random.default_rng(1)
    column = (rng.random(400) < 0.4).astype(np.float64)
    views = [rng.choice([-1, 1], 400) * rng.uniform(1.5, 2, 400) for _ in NAMES]
    label = np.sum(views, axis=0) + 0.02 * column + 0.1 * rng.normal(size=400)
    views[1] = column
    tables = {
        name: pd.DataFrame({ROW_ID: np.arange(400), f"{name}_x": view})
        for name, view in zip(NAMES, views, strict=True)
    }
    tables["clinic"][LABEL] = label
    found = []
    for place, exact_sums in enumerate((False, True)):
        if exact_sums:
            without_rounding(monkeypatch)
        models = dict.fromkeys(NAMES, 'use = "linear"')
        with running(Network(tmp_path / str(place), tables, models=models)) as network, sums_of() as opened:
            network.invite("risk", secure_aggregation="sums", **OPTIONS)
            network.learn("risk")
            found.append(best_split(opened, column))
        assert len(opened) >= 3
    assert found[0] < 0.1
    assert found[1] > 0.9


def test_the_removal_of_a_member_ends_a_task_without_drop_outs(network: Network) -> None:
    record = network.invite("risk", secure_aggregation="sums", **OPTIONS)
    network.nodes["clinic"].state.set_member(record.id, "lab", "left: removed by the label holder")
    with pytest.raises(TaskError, match=r"a quorum of 4 can never be reached: .risk. has 3"):
        network.learn("risk")


@pytest.mark.parametrize(("garbage", "drop_outs"), [("shares", 1), ("openings", 1), ("openings", 0)])
def test_a_member_who_sends_garbage_is_named_and_learning_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: str, drop_outs: int
) -> None:
    """Without drop-outs there are no shares."""
    with running(Network(tmp_path, numbers(120, organizations=(*NAMES, "shop")))) as network:
        sends_garbage(network, monkeypatch, garbage, drop_outs)


def sends_garbage(network: Network, monkeypatch: pytest.MonkeyPatch, garbage: str, drop_outs: int) -> None:
    share, help_to_open = GroupMember.share, GroupMember.open
    record = network.invite("risk", secure_aggregation="sums", drop_outs=drop_outs, **OPTIONS)

    def wrong_shares(member: GroupMember, number: int, offers: Any) -> Any:
        made = share(member, number, offers)
        if member.name != "lab":
            return made
        return replace(made, boxes={name: bytes(len(box)) for name, box in made.boxes.items()})

    def wrong_opening(member: GroupMember, number: int, survivors: Any) -> Any:
        made = help_to_open(member, number, survivors)
        if member.name != "lab":
            return made
        return replace(made, seeds={name: bytes(len(one)) for name, one in made.seeds.items()})

    with monkeypatch.context() as patched:
        patched.setattr(GroupMember, "share", wrong_shares if garbage == "shares" else share)
        patched.setattr(GroupMember, "open", help_to_open if garbage == "shares" else wrong_opening)
        what = "shares of 'lab' cannot be opened" if garbage == "shares" else "do not fit what it promised"
        with pytest.raises(TaskError, match=f"the sum of the others' fitted values cannot be opened.*{what}"):
            network.learn("risk")
    network.learn("risk")
    made = network.in_process(secure_aggregation=Sums(drop_outs), **OPTIONS)[0]
    assert exact(network.ensemble(record)) == exact(made)
