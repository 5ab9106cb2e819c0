"""An organization's noisy answers: charged before they leave, drawn once,
refused when the budget is spent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_service as service
from test_service import RESIDUAL, TERMS, CountingWorker, N, X, begin, end, fit, predict

from gal.errors import PrivacyError, RefusedError
from gal.models import LinearModel
from gal.node.store.state import TaskRecord
from gal.node.worker.local_work import LocalWork
from gal.node.worker.worker import WorkFailedError
from gal.privacy.ledger import Ledger, row_keys
from gal.privacy.noise import SeededNoise
from gal.protocol import Message, prepare
from small_network import LINEAR, Network, numbers, running

pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")

NOISE = '[privacy]\nanswer_noise = "laplace"\nanswer_clip = 0.5\nanswer_epsilon = 0.5\n'
MOVING = 'use = "moving_models:Drifting"\ntrusted = ["moving_models.Drifting"]'
SHOP = TERMS.model_copy(update={"task": "b" * 32, "label_holder": "shop"})
SECRETS = ("0.5", str(N), "epsilon", "laplace")
"""What a refusal must not tell."""


class Steps:
    """Noise of 1, 2, 3, ...: one more in every draw. It calls itself secure, as no seeded one does."""

    secure = True

    def __init__(self) -> None:
        self.draws = 0

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> Any:
        raise NotImplementedError

    def laplace(self, values: Any, scale: float) -> Any:
        self.draws += 1
        return values + self.draws

    gaussian = laplace


class Here(CountingWorker):
    """A worker in this process whose noise is known."""

    def __init__(self, configuration: Any, source: Any) -> None:
        super().__init__(configuration)
        self._work = LocalWork(configuration, source)


class Lab(service.Lab):
    """An organization with noise on its answers."""

    def __init__(self, home: Path, section: str = NOISE, model: str = LINEAR, source: Any = None) -> None:
        self.source = Steps() if source is None else source
        self._ledger: Ledger | None = None
        super().__init__(home, section, model=model, ledger=self.ledger)

    def new_worker(self, configuration: Any) -> CountingWorker:
        """A worker that draws noise from the source."""
        return Here(configuration, self.source)

    def ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(self.home / "ledger.sqlite")
        return self._ledger

    def spent(self, *ids: int) -> float:
        """epsilon that these rows have cost at most; all rows, where none is named."""
        return self.ledger().spent("answers", 0.0, rows=row_keys(ids) if ids else None)

    def fitted(self, round: int = 1) -> Message:
        """Begin, and fit so many rounds; the last answer."""
        rows = self.ask(begin()).fields["rows"]
        answers = [self.ask(fit(rows, RESIDUAL, round=one)) for one in range(1, round + 1)]
        return answers[-1]

    def close(self) -> None:
        super().close()
        if self._ledger is not None:
            self._ledger.close()


@contextlib.contextmanager
def opened(home: Path, *given: Any, **more: Any) -> Iterator[Lab]:
    made = Lab(home, *given, **more)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with opened(tmp_path) as made:
        yield made


def plain(rows: Any = X) -> Any:
    """What its model says without noise, cut at 0.5."""
    said = LinearModel().fit(X, RESIDUAL).predict(rows)
    return np.clip(np.reshape(said, (len(rows), 1)), -0.5, 0.5)


def same(one: Message, other: Message) -> bool:
    return prepare(one).digest == prepare(other).digest


# Rounds


def test_fitted_values_are_cut_noised_and_charged_to_every_row(lab: Lab) -> None:
    answer = lab.fitted()
    np.testing.assert_allclose(answer.arrays["fitted"], plain() + 1, atol=1e-5)
    assert np.abs(plain()).max() == 0.5
    assert lab.spent() == pytest.approx(0.5)
    assert lab.spent(3) == pytest.approx(0.5)
    [entry] = lab.ledger().entries()
    assert (entry.subject, entry.task, entry.peers, entry.n_rows) == ("answers", "risk", ("clinic",), N)


def test_also_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as lab:
        first = lab.fitted()
    with opened(tmp_path) as lab:
        assert same(lab.fitted(), first)
        assert [lab.spent(), lab.source.draws] == pytest.approx([0.5, 0])


def test_an_answer_that_was_lost_is_drawn_and_paid_for_anew(lab: Lab) -> None:
    lab.fitted()
    [answer] = lab.state.folder(TERMS.task, 1).glob("answer-*")
    answer.write_bytes(b"damaged")
    np.testing.assert_allclose(lab.fitted().arrays["fitted"], plain() + 2, atol=1e-5)
    assert lab.spent() == pytest.approx(1.0)


def test_what_moving_models_say_again_is_drawn_and_charged_again(tmp_path: Path) -> None:
    with opened(tmp_path, model=MOVING) as lab:
        rows = lab.fitted(2).fields["rows"]
        fields = {"rows": rows, "track": "assisted", "rounds": [1, 2]}
        message = Message("revisit", TERMS.task, 1, "9.0", fields)
        first = lab.ask(message)
        assert first.arrays["values"].shape == (2, N, 1)
        assert not same(lab.ask(message), first)
        assert [lab.spent(), lab.source.draws] == pytest.approx([6 * 0.5, 4])
        assert (first.arrays["values"] > 2).all()  # the third draw's noise, on values cut at 0.5


# Predictions


def test_predictions_are_charged_to_the_rows_that_are_known_for_every_round(lab: Lab) -> None:
    lab.fitted(2)
    answer = lab.ask(predict([3, 999, 1], 1, 2))
    assert answer.arrays["known"].tolist() == [1, 0, 1]
    np.testing.assert_allclose(answer.arrays["values"][0], plain(X[[3, 1]]) + 3, atol=1e-5)
    assert lab.spent(3) == pytest.approx(4 * 0.5)
    assert lab.spent(2) == pytest.approx(2 * 0.5)
    assert lab.spent(999) == 0


def test_a_prediction_asked_for_again_is_drawn_and_charged_again(lab: Lab) -> None:
    lab.fitted()
    first = lab.ask(predict([3, 1], 1))
    assert not same(lab.ask(predict([3, 1], 1)), first)
    assert lab.spent(3) == pytest.approx(1.5)
    lab.ask(end(1))
    lab.ask(predict([3], 1))
    assert lab.spent(3) == pytest.approx(2.0)


# The budget


def refusal(lab: Lab, message: Message) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        lab.ask(message)
    return error.value


def test_when_the_budget_is_spent_nothing_leaves_and_nothing_is_told(tmp_path: Path) -> None:
    with opened(tmp_path, NOISE + "answer_budget_epsilon = 1.5\n") as lab:
        rows = lab.fitted(2).fields["rows"]
        lab.ask(predict([3], 1))
        for message in (fit(rows, RESIDUAL, round=3), predict([2, 3], 1), predict([2], 1, 2)):
            refused = refusal(lab, message)
            assert refused.code == "privacy-budget-spent"
            assert not [word for word in SECRETS if word in str(refused)]
        assert [lab.spent(3), lab.spent(2)] == pytest.approx([1.5, 1.0])
        assert lab.ask(predict([2], 1)).kind == "predicted"  # of other rows there is some left
        assert refusal(lab, predict([2], 1)).code == "privacy-budget-spent"


def of_shop(message: Message, **fields: Any) -> Message:
    """The same for another label holder's task."""
    return replace(message, task=SHOP.task, fields={**message.fields, **fields})


def test_all_label_holders_draw_on_one_budget(tmp_path: Path) -> None:
    with opened(tmp_path, NOISE + "answer_budget_epsilon = 1.5\n") as lab:
        lab.fitted(2)
        record = TaskRecord(SHOP.task, "sales", "organization", "shop", SHOP)
        lab.state.add_task(record)
        rows = lab.ask(of_shop(begin(), terms=SHOP.digest), "shop").fields["rows"]
        assert lab.ask(of_shop(fit(rows)), "shop").kind == "fitted"
        with pytest.raises(RefusedError, match="privacy budget"):
            lab.ask(of_shop(fit(rows, round=2)), "shop")
        assert lab.ledger().spent("answers", 0.0, peer="shop") == pytest.approx(0.5)
        assert lab.spent() == pytest.approx(1.5)


# Where there is no noise


def test_own_tasks_get_answers_without_noise(lab: Lab) -> None:
    own = TERMS.model_copy(update={"label_holder": "lab"})
    lab.state.forget(TERMS.task)
    lab.state.add_task(TaskRecord(TERMS.task, "risk", "label holder", "lab", own))
    rows = lab.ask(begin(terms=own.digest), "lab", own=True).fields["rows"]
    lab.ask(fit(rows), "lab", own=True)
    lab.ask(predict([1], 1), "lab", own=True)
    assert (lab.source.draws, lab._ledger) == (0, None)


def test_a_version_that_began_without_noise_is_not_gone_on_with(tmp_path: Path) -> None:
    with opened(tmp_path, "") as lab:
        rows = lab.fitted().fields["rows"]
    with opened(tmp_path) as lab:
        refused = refusal(lab, fit(rows, RESIDUAL, round=2))
        assert (refused.code, lab.source.draws) == ("privacy-changed", 0)
        assert "Learn a new version" in str(refused)
        np.testing.assert_allclose(lab.ask(predict([3], 1)).arrays["values"][0], plain(X[[3]]) + 1, atol=1e-5)
        assert lab.spent(3) == pytest.approx(0.5)


# Where noise comes from


def test_a_node_refuses_noise_that_can_be_repeated(tmp_path: Path) -> None:
    with opened(tmp_path, source=SeededNoise(0)) as lab, pytest.raises(WorkFailedError) as error:
        lab.fitted()
    assert isinstance(error.value.__cause__, PrivacyError)
    assert "SeededNoise" in str(error.value)
    assert "SeededNoise" not in error.value.failure.outside


# Over a network


def test_learning_goes_on_without_whose_budget_is_spent(tmp_path: Path) -> None:
    """Real noise, real nodes: the lab answers two rounds, says no to the third,
    and both sides have it on record.
    """
    noisy = NOISE.replace("0.5", "8.0") + "answer_budget_epsilon = 16.0\n"
    network = Network(tmp_path, numbers(60), more={"lab": noisy})
    with running(network):
        record = network.invite("risk", rounds=3, cross_validation=0, validation_fraction=0.0, patience=None)
        network.wait_until_joined(record)
        facts = network.learn("risk")
        assert facts["version"] == 1
        ensemble = network.ensemble(record)
        missed = [dict(one.left_out) for one in ensemble.rounds]
        assert [("lab" in one) for one in missed] == [False, False, True]
        assert "privacy-budget-spent" in missed[2]["lab"]
        refused = [one for one in network.nodes["lab"].records.audit.entries() if one.kind == "refused"]
        assert [one.peer for one in refused] == ["clinic"]
        assert "privacy-budget-spent" in refused[0].note
        ledger = network.nodes["lab"].ledger
        assert ledger.spent("answers", 0.0) == pytest.approx(16.0)
        assert ledger.spent("answers", 0.0, peer="clinic") == pytest.approx(16.0)
        answers = [one for one in network.nodes["lab"].records.audit.entries() if one.kind == "fitted"]
        assert len(answers) == 2
