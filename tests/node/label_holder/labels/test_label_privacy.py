"""Labels over nodes: what leaves follows from noise that is drawn once and
charged before anything is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal.node.label_holder.labels.label_guard
from gal.errors import (
    BudgetSpentError,
    InvalidLabelsError,
    InvalidOptionError,
    LearningInterruptedError,
    PrivacyError,
)
from gal.node.label_holder.labels.label_guard import Drawn
from gal.node.label_holder.labels.label_privacy import LabelPrivacy
from gal.node.label_holder.labels.tasks import labels_of_task, read_labelled
from gal.privacy import SeededNoise, SystemNoise
from gal.privacy.accounting import spent as composed
from gal.privacy.ledger import row_keys
from gal.privacy.mechanisms.columns import SUBJECT as COLUMNS_SUBJECT
from gal.protocol import decode
from noisy_labels import (
    COLUMNS,
    EPSILON,
    LAPLACE,
    MECHANISMS,
    RESPONSE,
    SUBJECT,
    FixedNoise,
    N,
    audited,
    charged,
    labelled,
    spied,
    traffic,
    versions,
)
from small_network import LABEL, ROW_ID, Network, exact, running


@pytest.fixture(scope="module")
def running_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A clinic that holds labels and a lab that helps."""
    with running(Network(tmp_path_factory.mktemp("net"), labelled())) as network:
        yield network


@pytest.fixture
def net(running_net: Network, monkeypatch: pytest.MonkeyPatch) -> Network:
    """The same with its labels as they were, and noise that tests can foresee;
    each test has tasks of its own.

    The private refit, which takes longer than all else, is left out.
    """
    monkeypatch.setattr(gal.node.label_holder.labels.label_guard, "refit_privately", lambda *_, **__: None)
    running_net.write("clinic", labelled()["clinic"])
    running_net.holder.guard.noise = FixedNoise
    return running_net


@pytest.fixture
def sent(net: Network, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """Grows by all that is sent to others: to whom, what kind, and the bytes."""
    return spied(net, monkeypatch)


# What leaves


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_labels_with_the_same_noise_leave_no_trace(net: Network, sent: Any, mechanism: str) -> None:
    privacy, task = MECHANISMS[mechanism], mechanism.replace(" ", "-")
    found = []
    for seed in (0, 7):
        net.write("clinic", labelled(privacy.classes is not None, seed)["clinic"])
        found.append(traffic(net, sent, f"{task}-{seed}", privacy, cross_validation=0))
    assert [kind for _, kind, _ in found[0]] == ["begin", "fit", "fit", "end", "predict", "terms"]
    assert found[0] == found[1]


# What it costs


def protected(
    net: Network, task: str, version: int, noise: FixedNoise, peers: Sequence[str] = ("lab",)
) -> Any:
    """What the guard lets a version see of today's labels."""
    node = net.nodes["clinic"]
    record, rows = node.state.find_task(task), read_labelled(node.configuration)
    net.holder.guard.noise = lambda: noise
    labels = labels_of_task(record.options, rows.y)
    return net.holder.guard.protect(record, version, rows.ids, labels, peers)


def test_every_version_of_a_task_costs_once(net: Network) -> None:
    keys = row_keys(net.tables["clinic"][ROW_ID].to_numpy())
    spent = partial(net.nodes["clinic"].ledger.spent, SUBJECT, 0.0)
    net.invite("once", rounds=1, privacy=RESPONSE)
    first = protected(net, "once", 1, draws := FixedNoise())
    assert (draws.drawn, spent(task="once")) == ([N], EPSILON)
    again = protected(net, "once", 2, draws := FixedNoise(1))
    assert (draws.drawn, spent(task="once")) == ([], EPSILON)
    np.testing.assert_array_equal(first.labels.y, again.labels.y)
    # One label is corrected, one row is new: only the new one is drawn. Noise for the other would show that
    # it was corrected.
    table = net.tables["clinic"].copy()
    table.loc[5, LABEL] = "no" if table.loc[5, LABEL] == "yes" else "yes"
    new = pd.DataFrame([[7, 0.5, 0.5, "yes"]], columns=table.columns)
    net.write("clinic", pd.concat([table, new], ignore_index=True))
    third = protected(net, "once", 3, draws := FixedNoise(2))
    assert draws.drawn == [1]
    np.testing.assert_array_equal(third.labels.y[:N], first.labels.y)
    assert spent(task="once", rows=keys) == EPSILON
    assert spent(task="once", rows=row_keys([7])) == EPSILON
    # Another task knows nothing of these draws: it adds up.
    before = spent(rows=keys[5:6])
    net.invite("more", rounds=1, privacy=RESPONSE)
    protected(net, "more", 1, draws := FixedNoise(3))
    assert draws.drawn == [N + 1]
    assert spent(rows=keys[5:6]) == before + EPSILON


def test_a_draw_that_was_lost_is_drawn_and_paid_again(net: Network) -> None:
    node = net.nodes["clinic"]
    spent = partial(node.ledger.spent, SUBJECT, 0.0, task="lost")
    net.invite("lost", rounds=1, privacy=RESPONSE)
    protected(net, "lost", 1, FixedNoise())
    kept = net.root / "clinic" / "tasks" / node.state.find_task("lost").id / "noisy-labels.arrow"
    kept.unlink()
    protected(net, "lost", 1, draws := FixedNoise(1))
    assert (draws.drawn, spent()) == ([N], 2 * EPSILON)


def test_rows_are_told_in_the_order_of_their_ids(net: Network, sent: Any) -> None:
    """Cases before controls, as many sources have them, would tell every label."""
    table = net.tables["clinic"].sort_values(LABEL)
    net.write("clinic", table)
    net.invite("ordered", rounds=1, privacy=RESPONSE)
    net.learn("ordered")
    [begin] = [decode(data) for _, kind, data in sent if kind == "begin"]
    ids = begin.arrays["integers"]
    np.testing.assert_array_equal(ids, np.sort(ids))
    assert not np.array_equal(ids, table[ROW_ID].to_numpy())


def test_who_is_invited_later_is_charged_for_what_was_drawn_before(net: Network) -> None:
    spent = partial(net.nodes["clinic"].ledger.spent, SUBJECT, 0.0, task="later")
    net.invite("later", rounds=1, privacy=RESPONSE)
    protected(net, "later", 1, FixedNoise())
    assert spent(peer="ward") == 0
    protected(net, "later", 2, FixedNoise(), peers=("lab", "ward"))
    assert (spent(peer="ward"), spent()) == (EPSILON, EPSILON)


def test_columns_have_an_account_of_their_own_and_cost_anew_in_every_version(net: Network) -> None:
    spent = net.nodes["clinic"].ledger.spent
    net.invite("columns", rounds=3, privacy=COLUMNS)
    for version in (1, 2, 2):
        protected(net, "columns", version, FixedNoise())
    assert spent(SUBJECT, 0.0, task="columns") == EPSILON
    [labels, *columns] = charged(net, "columns")
    assert labels.subject == SUBJECT
    assert {one.subject for one in columns} == {"columns through residuals"}
    assert [(one.event.count, one.n_rows, one.peers) for one in columns] == [(8, N, ("lab",))] * 2
    single = columns[0].event
    assert composed([single], 1e-6) == pytest.approx(10.0, rel=1e-3)
    assert spent(COLUMNS_SUBJECT, 1e-6, task="columns") == pytest.approx(
        composed([replace(single, count=16)], 1e-6)
    )
    assert audited(net, "charged")[-1].startswith("columns through residuals: gaussian")


def test_a_budget_for_columns_refuses_what_has_no_noise_for_them_or_costs_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = {"clinic": "[privacy]\ncolumn_epsilon = 15\ncolumn_delta = 1e-6\n"}
    with running(Network(tmp_path, labelled(), more=budget)) as network:
        network.holder.guard.noise = FixedNoise
        monkeypatch.setattr(
            gal.node.label_holder.labels.label_guard, "refit_privately", lambda *_, **__: None
        )
        with pytest.raises(PrivacyError, match=r"no column privacy.*-o columns_epsilon"):
            network.invite("plain", rounds=1, privacy=RESPONSE)
        network.invite("columns", rounds=2, privacy=COLUMNS)
        network.learn("columns")
        sent = spied(network, monkeypatch)
        with pytest.raises(BudgetSpentError, match=r"columns through residuals.*epsilon 15 at delta 1e-06"):
            network.learn("columns")
        assert sent == []
        assert list(versions(network, "columns")) == [1]


def test_a_spent_budget_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = {"clinic": "[privacy]\nlabel_epsilon = 1.5\n"}
    with running(Network(tmp_path, labelled(), more=budget)) as network:
        network.holder.guard.noise = FixedNoise
        network.invite("first", rounds=1, privacy=RESPONSE)
        events: list[Mapping[str, Any]] = []
        network.learn("first", on_event=events.append)
        [said] = [one for one in events if one["event"] == "privacy"]
        assert (said["spent"], said["budget"], said["left"]) == (1.0, 1.5, 0.5)
        network.learn("first")  # costs nothing more
        network.invite("second", rounds=1, privacy=RESPONSE)
        sent = spied(network, monkeypatch)
        with pytest.raises(BudgetSpentError, match=r"0\.5 is left.*would bring them to 2"):
            network.learn("second")
        assert sent == []
        assert versions(network, "second") == {}
        assert network.nodes["clinic"].ledger.spent(SUBJECT, 0.0) == 1.0
        assert "budget spent" in audited(network, "not charged")[-1]
        with pytest.raises(PrivacyError, match=r"label_epsilon.*gal invite --privacy"):
            network.invite("third", rounds=1)


# Crashes


def stopped_after(round: int, stopping: threading.Event) -> Any:
    def tell(event: Mapping[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == round:
            stopping.set()

    return tell


@pytest.mark.parametrize("mechanism", ["randomised-response", "response and columns"])
def test_what_resumes_sends_the_same_and_is_charged_once(
    net: Network, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = (f"{word}-{mechanism.replace(' ', '-')}" for word in ("whole", "parts"))
    same = FixedNoise()
    net.holder.guard.noise = lambda: same
    record = net.invite(whole, rounds=3, privacy=MECHANISMS[mechanism])
    net.learn(whole)
    net.invite(parts, rounds=3, privacy=MECHANISMS[mechanism])
    net.holder.guard.noise = lambda: noise
    stopping, noise = threading.Event(), FixedNoise()
    before = spied(net, monkeypatch)
    with pytest.raises(LearningInterruptedError):
        net.learn(parts, stopping=stopping, on_event=stopped_after(2, stopping))
    drawn = list(noise.drawn)
    # Labels once; for columns in every round but the first, in five learnings.
    draws = {"randomised-response": 1, "response and columns": 1 + 5 * 2}
    assert drawn == [N] * draws[mechanism]
    net.stop("clinic")
    net.start("clinic")
    net.holder.guard.noise = lambda: noise
    sent = spied(net, monkeypatch)
    net.learn(parts)
    assert noise.drawn == drawn  # what is on the disk is not drawn again
    assert exact(net.ensemble(record)) == exact(net.ensemble(net.nodes["clinic"].state.find_task(parts)))
    fits = 5  # of the task, and without each part
    # Of the last round some may have been sent before it was stopped; none is ever sent in another form.
    assert [kind for _, kind, _ in sent][-1] == "end"
    assert {kind for _, kind, _ in sent[:-1]} == {"fit"}
    assert len(sent) - 1 <= fits
    assert len({data for _, kind, data in before + sent if kind == "fit"}) == 3 * fits
    for one, other in zip(charged(net, whole), charged(net, parts), strict=True):
        assert (one.subject, one.event, one.n_rows, one.most) == (
            *(other.subject, other.event),
            *(other.n_rows, other.most),
        )


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_charge_neither_draws_twice_nor_sends(net: Network, sent: Any, when: str) -> None:
    task, noise, ledger = f"crash-{when}", FixedNoise(), net.nodes["clinic"].ledger
    net.invite(task, rounds=1, privacy=RESPONSE)
    net.holder.guard.noise = lambda: noise
    charge = ledger.charge

    def dies(*args: Any, **more: Any) -> None:
        if when == "after":
            charge(*args, **more)
        raise SystemError("the power failed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "charge", dies)
        patch.setattr("gal.node.label_holder.learning.learning.drop_files", lambda *_: None)
        with pytest.raises(SystemError):
            net.learn(task)
    assert sent == []
    assert versions(net, task) == {}
    net.learn(task)
    assert noise.drawn == [N]
    assert [(one.n_rows, one.most) for one in charged(net, task)] == [(N, 1)]


def test_noisy_labels_stay_until_the_task_is_forgotten(net: Network) -> None:
    record = net.invite("kept", rounds=1, privacy=RESPONSE)
    net.learn("kept")
    path = net.root / "clinic" / "tasks" / record.id / "noisy-labels.arrow"
    drawn = Drawn.read(path)
    np.testing.assert_array_equal(drawn.noisy, np.random.default_rng(0).integers(0, 2, N))
    assert (path.stat().st_mode & 0o777) == 0o600
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PrivacyError, match="damaged"):
        net.learn("kept")


# What is refused


def test_noise_that_can_be_repeated_is_refused(net: Network, sent: Any) -> None:
    for task, privacy in {"labels": RESPONSE, "with-columns": COLUMNS}.items():
        net.invite(task, rounds=1, privacy=privacy)
        net.holder.guard.noise = lambda: SeededNoise(0)
        with pytest.raises(PrivacyError, match="SeededNoise is no secure source"):
            net.learn(task)
        assert charged(net, task) == []
    assert sent == []


def test_a_tasks_seed_does_not_fix_the_noise(net: Network) -> None:
    pytest.importorskip("opendp", reason="the extra privacy")
    net.holder.guard.noise = SystemNoise
    drawn = []
    for task in ("seeded", "seeded-too"):
        record = net.invite(task, rounds=1, seed=3, privacy=RESPONSE)
        net.learn(task)
        path = net.root / "clinic" / "tasks" / record.id / "noisy-labels.arrow"
        drawn.append(Drawn.read(path).noisy)
    assert (drawn[0] != drawn[1]).any()


def test_labels_that_are_not_public(net: Network, sent: Any) -> None:
    with pytest.raises(InvalidLabelsError, match="none of the public classes"):
        net.invite("few", privacy=LabelPrivacy("randomised-response", 1.0, classes=("no", "maybe")))
    with pytest.raises(InvalidLabelsError, match="must be numbers"):
        net.invite("text", privacy=LAPLACE)
    net.invite("strange", rounds=1, privacy=RESPONSE)
    table = net.tables["clinic"].copy()
    table.loc[3, LABEL] = "perhaps"
    net.write("clinic", table)
    with pytest.raises(InvalidLabelsError, match=r"1 of 60 labels \(first at row 3\)"):
        net.learn("strange")
    assert (sent, versions(net, "strange"), charged(net, "strange")) == ([], {}, [])


def test_the_kind_is_not_looked_up_in_the_labels(net: Network) -> None:
    with pytest.raises(InvalidOptionError, match="kind 'regression' does not go"):
        net.invite("risk", kind="regression", privacy=RESPONSE)
    with pytest.raises(InvalidOptionError, match="name all possible ones: --classes"):
        net.invite(
            "risk", kind="classification", privacy=LabelPrivacy("laplace-labels", 1.0, lower=0.0, upper=1.0)
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mechanism": "paper-laplace"}, "there are: none, randomised-response"),
        ({"mechanism": "none", "epsilon": 1.0}, "none has no epsilon"),
        ({"mechanism": "randomised-response", "epsilon": 0.0, "classes": ("a", "b")}, "above 0"),
        ({"mechanism": "randomised-response", "epsilon": 1.0}, "public set of all classes"),
        ({"mechanism": "laplace-labels", "epsilon": 1.0}, "public lower bound"),
        ({"mechanism": "laplace-labels", "epsilon": 1.0, "classes": ("a", "b")}, "classes has no effect"),
        ({"mechanism": "gaussian-labels", "epsilon": 1.0, "lower": 0.0, "upper": 1.0}, "needs delta"),
    ],
)
def test_what_cannot_be_promised(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        LabelPrivacy(**given)
