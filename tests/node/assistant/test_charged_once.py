"""A prediction that is sent again, after a line was lost, is charged once; any other is charged."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_service import TERMS, Lab, N, begin, fit, predict
from test_who_is_known import OTHER, PSI, exchange, of, refusal

from gal.node.assistant import prediction_checks
from gal.node.assistant.prediction_checks import AGAIN
from gal.node.store.state import TaskRecord
from gal.protocol import Message

POLICY = "[policy]\nmin_rows = 20\npredictions_per_day = 1000\n"
ACCOUNTS = ("clinic", "small clinic", "unknown clinic")


def learned(lab: Lab, *terms: Any) -> None:
    for one in terms:
        lab.state.add_task(TaskRecord(one.task, one.name, "organization", "clinic", one))
    for one in (TERMS, *terms):
        rows = lab.ask(of(one, begin())).fields["rows"]
        lab.ask(of(one, fit(rows)))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, POLICY)
    learned(made, OTHER)
    yield made
    made.close()


def spent(lab: Lab) -> list[int]:
    """Rows, small predictions and unknown ids of today."""
    day = lab.today.date().isoformat()
    return [lab.state.spend_predictions(account, day, 0, 0) for account in ACCOUNTS]


FEW = predict([3, 4, 900], 1)


def test_the_same_bytes_are_charged_once_by_one_process(lab: Lab) -> None:
    first = lab.ask(FEW)
    assert spent(lab) == [3, 1, 1]
    for _ in range(3):
        np.testing.assert_array_equal(lab.ask(FEW).arrays["values"], first.arrays["values"])
    again = Lab(lab.home, POLICY)
    again.ask(FEW)
    assert spent(again) == [6, 2, 2]
    again.close()


def test_nobody_asks_all_day_for_one_charge(lab: Lab) -> None:
    for _ in range(1 + AGAIN):
        lab.ask(FEW)
    assert spent(lab) == [3, 1, 1]
    lab.ask(FEW)
    assert spent(lab) == [6, 2, 2]


def test_only_the_newest_requests_are_known(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_checks, "KEPT", 2)
    for ids in ([3], [4], [5], [5], [4], [3]):
        lab.ask(predict(ids, 1))
    assert spent(lab)[0] == 4


@pytest.mark.parametrize(
    "other",
    [
        predict([3, 4, 901], 1),
        predict([4, 3, 900], 1),
        Message("predict", FEW.task, 1, "another request", FEW.fields, FEW.arrays),
        of(OTHER, FEW),
    ],
    ids=["other ids", "another order", "asked for anew", "of another task"],
)
def test_whatever_differs_is_charged(lab: Lab, other: Message) -> None:
    lab.ask(FEW)
    lab.ask(other)
    assert spent(lab) == [6, 2, 2]


def test_nothing_is_free_that_was_charged_before_midnight(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = lab.service.worker

    def until_the_next_day(*given: Any, **more: Any) -> Any:
        found = worker(*given, **more)
        lab.today += timedelta(days=1)
        return found

    with monkeypatch.context() as slow:
        slow.setattr(lab.service, "worker", until_the_next_day)
        lab.ask(FEW)
    assert spent(lab) == [0, 1, 1]  # its rows are those of the day before
    lab.ask(FEW)
    assert spent(lab) == [3, 2, 2]
    lab.ask(FEW)
    assert spent(lab) == [3, 2, 2]


def test_an_answer_that_has_changed_is_charged(lab: Lab) -> None:
    """Else one could watch for a price of nothing when somebody becomes a customer."""
    lab.ask(FEW)
    table = pd.read_csv(lab.home / "rows.csv")
    pd.concat([table, table.tail(1).assign(id=900)]).to_csv(lab.home / "rows.csv", index=False)
    assert lab.ask(FEW).arrays["known"].tolist() == [1, 1, 1]
    assert spent(lab) == [6, 2, 1]


def test_two_at_once_are_charged_once(lab: Lab) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lab.ask, [FEW] * 4))
    assert spent(lab) == [3, 1, 1]


def test_with_private_set_intersection_a_prediction_may_come_again(tmp_path: Path) -> None:
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    lab = Lab(tmp_path, POLICY)
    lab.state.add_task(TaskRecord(PSI.task, "psi", "organization", "clinic", PSI))
    rows = lab.ask(of(PSI, begin(exchange(lab, range(N))))).fields["rows"]
    lab.ask(of(PSI, fit(rows)))
    shared = exchange(lab, range(25))
    asked = of(PSI, predict(shared, 1))
    for _ in range(2):
        assert lab.ask(asked).kind == "predicted"
    assert spent(lab) == [50, 0, 0]  # the exchange and the prediction
    other = of(PSI, predict(shared[::-1], 1))
    assert refusal(lab, other)[0] == "alignment"  # each row of an exchange is named once
    lab.close()


@pytest.mark.parametrize("small", [7, 0])
def test_a_step_of_an_exchange_that_comes_again_is_charged_and_counts_once(
    tmp_path: Path, small: int
) -> None:
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    from gal.alignment import RowIds
    from gal.alignment.psi import Asker

    lab = Lab(tmp_path, f"{POLICY}small_predictions_per_day = {small}\n")
    lab.state.add_task(TaskRecord(PSI.task, "psi", "organization", "clinic", PSI))
    lab.ask(of(PSI, begin(exchange(lab, range(N)))))
    fields = {"kind": "integer", "exchange": "ab" * 16, "n_rows": 5}
    content = np.frombuffer(Asker(RowIds("integer", np.arange(5))).request(), dtype=np.uint8)
    lab.ask(Message("blind", PSI.task, 1, "setup", fields | {"step": "setup"}))
    response = Message("blind", PSI.task, 1, "response", fields | {"step": "response"}, {"bytes": content})
    if small == 0:  # what was refused is not free the second time
        assert [refusal(lab, response)[0] for _ in range(3)] == ["too-few-rows"] * 3
        assert lab.state.spend_predictions("exchanged clinic", f"{PSI.task} 1", 0, 0) == 0
        lab.close()
        return
    first = lab.ask(response)
    np.testing.assert_array_equal(lab.ask(response).arrays["bytes"], first.arrays["bytes"])
    assert spent(lab) == [5, 1, 0]
    assert lab.state.spend_predictions("exchanged clinic", f"{PSI.task} 1", 0, 0) == 5
    lab.close()
