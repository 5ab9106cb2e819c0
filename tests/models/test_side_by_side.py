"""Where networks meet to be trained together: nobody waits for ever, nobody gets another's error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

import gal
from gal import Ensemble, Organization
from gal.engine.drivers import choose_driver
from gal.errors import LocalModelError
from gal.models.deep import SharedBodyModel, TorchModel
from gal.models.deep.side_by_side import Meeting, SideBySide, attending, current_meeting
from patience import patient

SECONDS = patient(60)
"""After which a test that hangs has failed."""


class Piece:
    """Something to be trained, of a group."""

    def __init__(self, kind: str = "a") -> None:
        self.kind = kind
        self.done = 0

    def group(self) -> object:
        return self.kind


class Work:
    """Notes who was worked on together; fails for the group ``broken``."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.calls: list[list[Piece]] = []

    def __call__(self, pieces: Sequence[Any]) -> None:
        self.calls.append(list(pieces))
        if pieces[0].kind == self.broken:
            raise ValueError(f"group {self.broken} is broken")
        for one in pieces:
            one.done += 1


class Joining:
    """A piece that joins a meeting in a thread of its own, which does not outlive the tests."""

    def __init__(self, meeting: Meeting, piece: Piece) -> None:
        self.error: str | None = None
        self.thread = threading.Thread(target=self._join, args=(meeting, piece), daemon=True)
        self.thread.start()

    def _join(self, meeting: Meeting, piece: Piece) -> None:
        try:
            meeting.join(piece)
        except ValueError as error:
            self.error = str(error)

    def is_done(self, seconds: float = SECONDS) -> bool:
        self.thread.join(seconds)
        return not self.thread.is_alive()


def meet(meeting: Meeting, pieces: Sequence[Piece]) -> list[str | None]:
    """All pieces join, each in its own thread; None or the error of each."""
    joining = [Joining(meeting, one) for one in pieces]
    assert all(one.is_done() for one in joining)
    return [one.error for one in joining]


# --- meetings


def test_all_are_worked_on_together() -> None:
    work, pieces = Work(), [Piece() for _ in range(5)]
    assert meet(Meeting(5, work), pieces) == [None] * 5
    assert [one.done for one in pieces] == [1] * 5
    (together,) = work.calls
    assert {id(one) for one in together} == {id(one) for one in pieces}


def test_nothing_is_done_before_all_are_there() -> None:
    work = Work()
    meeting = Meeting(2, work)
    early, late = Piece(), Piece()
    waiting = Joining(meeting, early)
    assert not waiting.is_done(0.05)
    assert work.calls == []
    assert meet(meeting, [late]) == [None]
    assert waiting.is_done()
    assert (early.done, late.done) == (1, 1)


def test_groups_are_worked_on_apart() -> None:
    work = Work()
    pieces = [Piece("a"), Piece("b"), Piece("a"), Piece("c")]
    assert meet(Meeting(4, work), pieces) == [None] * 4
    assert sorted("".join(one.kind for one in together) for together in work.calls) == ["aa", "b", "c"]


def test_an_error_reaches_exactly_its_group() -> None:
    work = Work(broken="b")
    pieces = [Piece("a"), Piece("b"), Piece("b"), Piece("c")]
    assert meet(Meeting(4, work), pieces) == [None, "group b is broken", "group b is broken", None]
    assert [one.done for one in pieces] == [1, 0, 0, 1]


def test_they_meet_again() -> None:
    work = Work()
    meeting, pieces = Meeting(3, work), [Piece() for _ in range(3)]
    for _ in range(4):
        meet(meeting, pieces)
    assert [one.done for one in pieces] == [4] * 3
    assert [len(together) for together in work.calls] == [3] * 4


def test_an_error_is_forgotten_by_the_next_meeting() -> None:
    work = Work(broken="a")
    meeting, pieces = Meeting(2, work), [Piece(), Piece()]
    assert meet(meeting, pieces) == ["group a is broken"] * 2
    work.broken = ""
    assert meet(meeting, pieces) == [None] * 2


def test_who_leaves_early_lets_the_others_go_on() -> None:
    work = Work()
    meeting = Meeting(3, work)
    pieces = [Piece(), Piece()]
    waiting = [Joining(meeting, one) for one in pieces]
    assert not waiting[0].is_done(0.05)
    meeting.leave()
    assert all(one.is_done() for one in waiting)
    assert [len(together) for together in work.calls] == [2]
    meeting.leave()
    assert meet(meeting, pieces[:1]) == [None]
    assert pieces[0].done == 2


def test_leaving_does_nothing_where_nobody_waits() -> None:
    work = Work()
    meeting = Meeting(2, work)
    meeting.leave()
    meeting.leave()
    assert work.calls == []


def test_a_thread_knows_its_meeting_while_it_attends() -> None:
    meeting, seen = Meeting(1, Work()), []
    assert current_meeting() is None
    with attending(meeting):
        seen.append(current_meeting())
        elsewhere = threading.Thread(target=lambda: seen.append(current_meeting()))
        elsewhere.start()
        elsewhere.join(SECONDS)
    assert seen == [meeting, None]
    assert current_meeting() is None


def test_who_fails_leaves_too() -> None:
    work, piece = Work(), Piece()
    meeting = Meeting(2, work)
    with pytest.raises(KeyError), attending(meeting):
        raise KeyError("failed")
    assert current_meeting() is None
    assert meet(meeting, [piece]) == [None]
    assert piece.done == 1


# --- the driver


def test_results_come_in_the_order_of_the_jobs() -> None:
    first = threading.Event()

    def late() -> int:
        assert first.wait(SECONDS)  # done after the others
        return 0

    def other(number: int) -> Callable[[], int]:
        def job() -> int:
            first.set()
            return number

        return job

    driver = SideBySide()
    assert driver([late, other(1), other(2)]) == [0, 1, 2]
    assert driver([other(7)]) == [7]
    assert driver([other(number) for number in range(8)]) == list(range(8))


def test_all_jobs_run_at_once() -> None:
    together = threading.Barrier(4)
    SideBySide()([lambda: together.wait(SECONDS)] * 4)


def test_its_threads_stay() -> None:
    driver = SideBySide()
    together = threading.Barrier(3)

    def name() -> str:
        together.wait(SECONDS)
        return threading.current_thread().name

    assert set(driver([name] * 3)) == set(driver([name] * 3))


def test_exceptions_of_a_job_come_out() -> None:
    def failing() -> int:
        raise LocalModelError("no network here")

    with pytest.raises(LocalModelError, match="no network here"):
        SideBySide()([lambda: 1, failing])


def test_every_job_attends_one_meeting_of_its_own_call() -> None:
    driver = SideBySide()
    first, second = driver([current_meeting] * 3), driver([current_meeting] * 3)
    assert len({id(one) for one in first}) == 1
    assert first[0] is not None
    assert first[0] is not second[0]
    assert current_meeting() is None


def test_no_jobs_have_no_results() -> None:
    assert SideBySide()([]) == []


# --- learning side by side


def learned(driver: Any, models: Sequence[Any], **options: Any) -> tuple[Ensemble, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = X[:, 0] + np.sin(2 * X[:, 2]) + X[:, 4]
    organizations = [
        Organization(name, X[:, 2 * m : 2 * m + 2], models[m]) for m, name in enumerate(("a", "b", "c"))
    ]
    ensemble = gal.learn(y, organizations, rounds=3, seed=2, driver=driver, **options)
    return ensemble, gal.predict(ensemble, organizations, driver=driver).output


NETWORK = TorchModel(epochs=2, batch_size=20, device="cpu")
SHARED = SharedBodyModel(epochs=2, batch_size=20, device="cpu")


@pytest.mark.parametrize(
    "models",
    [(NETWORK, NETWORK, NETWORK), (SHARED, SHARED, SHARED), (NETWORK, SHARED, Ridge())],
    ids=["networks", "shared bodies", "each their own"],
)
@pytest.mark.parametrize("fitted", ["in-sample", "out-of-fold"])
def test_learning_side_by_side_gives_what_learning_in_turn_gives(models: Any, fitted: str) -> None:
    options: dict[str, Any] = {"fitted": fitted, "validation_fraction": 0.2, "n_folds": 2}
    ensemble, output = learned("in-process", models, **options)
    together, its = learned(SideBySide(), models, **options)
    assert repr(together) == repr(ensemble)
    assert its.tobytes() == output.tobytes()


def test_chance_outside_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    learned(SideBySide(), (NETWORK, SHARED, NETWORK), cross_validation=0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("on_gpu", "chosen"), [(2, "side-by-side"), (1, "in-process"), (0, "in-process")])
def test_auto_is_side_by_side_where_networks_share_a_gpu(on_gpu: int, chosen: str) -> None:
    class OnGpu(Ridge):  # type: ignore[misc]
        on_gpu = True

    models = [OnGpu() if index < on_gpu else Ridge() for index in range(3)]
    members = {
        str(index): Organization(str(index), np.zeros((4, 2)), one) for index, one in enumerate(models)
    }
    assert choose_driver("auto", members) == chosen
    assert choose_driver("threads", members) == "threads"
    assert not TorchModel(device="cpu").on_gpu
