"""Known rows: refusals and replies of an organization disclose them only as far as its policy allows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_service import TERMS, Lab, N, begin, fit, predict

from gal.alignment import RowIds, secret_digest, tokens
from gal.errors import RefusedError
from gal.node.assistant import request_checks
from gal.node.store.failures import describe_failure
from gal.node.store.state import TaskRecord
from gal.node.worker.worker import WorkFailedError
from gal.protocol import Message

POLICY = (
    "[policy]\nmin_rows = 20\nrefused_begins_per_day = 6\nunknown_ids_per_day = "
    "50\nsmall_predictions_per_day = 8\n"
)
OTHER = TERMS.model_copy(update={"task": "b" * 32, "name": "other"})
SECRET = b"a secret that both of them know"
HASHED = TERMS.model_copy(update={"task": "d" * 32, "name": "hashed", "alignment": "hashed"})
PSI = TERMS.model_copy(update={"task": "c" * 32, "name": "psi", "alignment": "psi"})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, POLICY)
    for terms in (OTHER, PSI):
        made.state.add_task(TaskRecord(terms.task, terms.name, "organization", "clinic", terms))
    yield made
    made.close()


def refusal(lab: Lab, message: Message) -> tuple[str, str]:
    with pytest.raises((RefusedError, WorkFailedError)) as error:
        lab.ask(message)
    failed = isinstance(error.value, WorkFailedError)
    failure = error.value.failure if failed else describe_failure(error.value, "lab")  # type: ignore[attr-defined]
    return failure.code, failure.outside


def of(terms: Any, message: Message) -> Message:
    fields = dict(message.fields)
    if "terms" in fields:
        fields["terms"] = terms.digest
    if "method" in fields:
        fields["method"] = terms.alignment
    return Message(
        message.kind,
        terms.task,
        message.version,
        message.request,
        fields,
        message.arrays,
    )


def learned(lab: Lab) -> None:
    rows = lab.ask(begin()).fields["rows"]
    lab.ask(fit(rows))


# Beginning


def test_a_beginning_says_the_same_of_known_and_unknown_ids(lab: Lab) -> None:
    known, unknown, some = refusal(lab, begin([3])), refusal(lab, begin([999])), refusal(lab, begin([3, 999]))
    assert known == unknown == some
    assert known[0] == "too-few-rows"


def test_refused_beginnings_are_limited_over_tasks_and_restarts(lab: Lab) -> None:
    for number in range(3):
        assert refusal(lab, begin([number]))[0] == "too-few-rows"
        assert refusal(lab, of(OTHER, begin([number])))[0] == "too-few-rows"
    again = Lab(lab.home, POLICY)
    again.state.add_task(TaskRecord(OTHER.task, "other", "organization", "clinic", OTHER))
    for message in (begin([3]), begin([999]), begin(), of(OTHER, begin())):
        assert refusal(again, message)[0] == "budget-spent"
    assert again.worker.done == []
    again.today += timedelta(days=1)
    assert again.ask(begin()).kind == "begun"
    again.close()


# Prediction


def test_unknown_ids_are_limited_and_then_nothing_is_told(lab: Lab) -> None:
    learned(lab)
    assert lab.ask(predict([*range(N), *range(900, 930)], 1)).arrays["known"].sum() == N
    code = refusal(lab, predict([*range(N), *range(1000, 1025)], 1))
    assert code[0] == "budget-spent"
    assert (
        refusal(lab, predict([3], 1))
        == refusal(lab, predict([999], 1))
        == refusal(lab, predict(range(N), 1))
        == code
    )
    again = Lab(lab.home, POLICY)
    assert refusal(again, predict([3], 1)) == code
    again.today += timedelta(days=1)
    assert again.ask(predict(range(N), 1)).kind == "predicted"
    again.close()


def test_single_rows_are_limited(lab: Lab) -> None:
    """Known or not, alone or among made-up ones: few known rows at once can be asked for so often."""
    learned(lab)
    for number in range(8):
        assert lab.ask(predict([number] if number % 2 else [number, 900 + number], 1)).kind == "predicted"
    known, unknown = refusal(lab, predict([30], 1)), refusal(lab, predict([999], 1))
    assert known == unknown
    assert known[0] == "too-few-rows"
    assert lab.ask(predict(range(N), 1)).kind == "predicted"


@pytest.mark.parametrize("ids", [[3] * 40, [3, 4] * 5000, [3] * 40 + [999], [3] * 5000 + [*range(4, 22)]])
def test_one_row_named_many_times_is_no_bulk(tmp_path: Path, ids: list[int]) -> None:
    """Else one would ask forty times about one id, and be answered if it is known."""
    lab = Lab(tmp_path, "[policy]\nsmall_predictions_per_day = 0\n")
    learned(lab)
    assert refusal(lab, predict(ids, 1)) == refusal(lab, predict([999] * len(ids), 1))
    assert lab.ask(predict([*ids, *range(20), 39], 1)).kind == "predicted"
    lab.close()


def test_rounds_that_were_never_fitted_do_not_tell_who_is_known(tmp_path: Path) -> None:
    """Of an unknown row there is nothing to compute; of a known one it would fail."""
    lab = Lab(tmp_path, "[policy]\nsmall_predictions_per_day = 0\n")
    lab.ask(begin())
    never = refusal(lab, predict([3], 1))
    assert never == refusal(lab, predict([999], 1)) == refusal(lab, predict(range(N), 1))
    assert never[0] == "not-fitted"
    lab.ask(fit(lab.ask(begin()).fields["rows"]))
    assert refusal(lab, predict([3], 2)) == refusal(lab, predict([999], 2)) == never
    assert lab.worker.done.count("predict") == 0
    lab.close()


def test_a_model_that_fails_does_not_tell_who_is_known(tmp_path: Path) -> None:
    """Only of known rows it does: who may ask about few rows no more hears the same of both."""
    lab = Lab(tmp_path, "[policy]\nsmall_predictions_per_day = 2\n")
    learned(lab)
    for model in lab.home.rglob("*.gal"):
        model.write_bytes(b"broken")
    assert refusal(lab, predict([3], 1))[0] == "model-failed"
    assert lab.ask(predict([999], 1)).arrays["known"].tolist() == [0]
    assert refusal(lab, predict([4], 1)) == refusal(lab, predict([998], 1))
    lab.close()


# Private set intersections


def exchange(lab: Lab, ids: Any, version: int = 1) -> list[int]:
    """An honest exchange; which ids are shared."""
    from gal.alignment.psi import Asker

    wanted = RowIds("integer", np.asarray(ids, dtype=np.int64))
    asker, number = Asker(wanted), np.random.default_rng(len(lab.worker.done)).bytes(16).hex()

    def step(name: str, content: bytes | None) -> bytes:
        fields = {"step": name, "kind": "integer", "exchange": number, "n_rows": len(wanted)}
        arrays = {} if content is None else {"bytes": np.frombuffer(content, dtype=np.uint8)}
        blind = Message("blind", PSI.task, version, f"blind {name} {number}", fields, arrays)
        return bytes(lab.ask(blind).arrays["bytes"].tobytes())

    setup = step("setup", None)
    found = asker.shared(setup, step("response", asker.request()))
    return [int(one) for one in wanted.values[found]]


def test_nothing_is_said_of_ids_without_an_exchange(lab: Lab) -> None:
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    known, unknown = refusal(lab, of(PSI, begin())), refusal(lab, of(PSI, begin(range(900, 940))))
    assert known == unknown
    assert known[0] == "alignment"
    assert lab.worker.done == []
    shared = exchange(lab, range(10, 60))
    assert shared == list(range(10, N))
    rows = lab.ask(of(PSI, begin(shared))).fields["rows"]
    lab.ask(of(PSI, fit(rows, np.random.default_rng(0).normal(size=(len(shared), 1)))))
    # What is left of the exchange are 20 rows: a request for other rows is refused, and charged.
    assert refusal(lab, of(PSI, predict(range(N), 1)))[0] == "alignment"
    assert refusal(lab, of(PSI, predict([3, 999], 1)))[0] == "alignment"
    assert exchange(lab, range(N)) == list(range(N))
    assert lab.ask(of(PSI, predict(range(N), 1))).kind == "predicted"


def test_an_exchange_is_charged_for_the_ids_that_came(tmp_path: Path) -> None:
    """A peer that announces one row and sends thirty blinded ids is charged for thirty."""
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    from gal.alignment.psi import Asker

    lab = Lab(tmp_path, "[policy]\nmin_rows = 20\nmax_rows = 40\n")
    lab.state.add_task(TaskRecord(PSI.task, "psi", "organization", "clinic", PSI))
    lab.ask(of(PSI, begin(exchange(lab, range(N)))))
    fields = {"kind": "integer", "exchange": "ab" * 16}
    request = Asker(RowIds("integer", np.arange(30))).request()
    content = {"bytes": np.frombuffer(request, dtype=np.uint8)}

    def blind(step: str, n_rows: int, arrays: Any = None) -> Message:
        said = fields | {"step": step, "n_rows": n_rows}
        return Message("blind", PSI.task, 1, f"blind {step}", said, arrays or {})

    assert refusal(lab, blind("setup", 41))[0] == "too-many-rows"
    lab.ask(blind("setup", 30))
    for n_rows in (1, 29, 31):
        assert refusal(lab, blind("response", n_rows, content))[0] == "alignment"
    assert refusal(lab, blind("response", 30))[0] == "alignment"
    assert lab.state.spend_predictions("clinic", lab.today.date().isoformat(), 0, 0) == 0
    assert lab.ask(blind("response", 30, content)).kind == "blinded"
    assert lab.state.spend_predictions("clinic", lab.today.date().isoformat(), 0, 0) == 30
    lab.close()


def begun_exchange(number: int) -> Message:
    """The first step of an exchange, for which all rows are blinded."""
    fields = {"step": "setup", "kind": "integer", "exchange": f"{number:032x}", "n_rows": 30}
    return Message("blind", PSI.task, 1, f"setup {number}", fields)


def test_exchanges_that_are_only_begun_are_limited(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs as much here as if it was gone on with, and nothing there."""
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    monkeypatch.setattr(request_checks, "UNFINISHED", 3)
    for version in range(1, 7):  # those that are gone on with do not count
        exchange(lab, range(25), version)
    for number in range(3):
        lab.ask(begun_exchange(number))
    computed = len(lab.worker.done)
    for asked in (lab, Lab(lab.home, POLICY)):
        with pytest.raises(RefusedError) as error:
            asked.ask(begun_exchange(9))
        assert error.value.code == "too-many-exchanges"
    assert len(lab.worker.done) == computed
    lab.today += timedelta(days=1)
    lab.ask(begun_exchange(9))


def test_a_prediction_names_so_many_ids_at_most(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "[policy]\nmax_rows = 45\nmin_rows = 20\n")
    learned(lab)
    computed = len(lab.worker.done)
    assert refusal(lab, predict(range(46), 1))[0] == "too-many-rows"
    assert len(lab.worker.done) == computed
    assert lab.ask(predict(range(45), 1)).kind == "predicted"
    lab.close()


# Keyed hashes


def by_hashes(message: Message) -> Message:
    """The same with keyed hashes instead of ids."""
    made = of(HASHED, message)
    ids = RowIds("integer", message.arrays["integers"])
    hashes = {"hashes": tokens(ids, "hashed", SECRET)}
    arrays = hashes | {name: one for name, one in message.arrays.items() if name != "integers"}
    fields = dict(made.fields) | {"secret": secret_digest(SECRET)}
    return Message(made.kind, made.task, made.version, made.request, fields, arrays)


def hashing_lab(home: Path, source: str = "rows.csv") -> Lab:
    (home / "secret").write_bytes(SECRET)
    made = Lab(home, POLICY, 'secret_file = "secret"\n', source)
    made.state.add_task(TaskRecord(HASHED.task, "hashed", "organization", "clinic", HASHED))
    return made


def known(lab: Lab, ids: Any) -> list[int]:
    found: list[int] = lab.ask(by_hashes(predict(ids, 1))).arrays["known"].tolist()
    return found


@pytest.mark.parametrize("source", ["rows.csv", "lake"])
def test_rows_are_found_by_their_hashes(tmp_path: Path, source: str) -> None:
    lab = hashing_lab(tmp_path, source)
    rows = lab.ask(by_hashes(begin(range(20)))).fields["rows"]
    lab.ask(of(HASHED, fit(rows, np.random.default_rng(0).normal(size=(20, 1)))))
    assert known(lab, [3, 999, 30]) == [1, 0, 1]
    lab.close()
