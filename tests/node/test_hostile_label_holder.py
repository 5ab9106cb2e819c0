"""A label holder who asks for more than was agreed: refused by name, written down,
and others are served as before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.errors import LinkLostError, RefusedError
from gal.node.admin import membership as registering
from gal.node.assistant.links import Link
from gal.node.config.invitations import Invited, TaskTerms, write_invitation
from gal.protocol import Message, encode
from gal.transport import Received
from hostile import (
    ZERO_DIGEST,
    Asker,
    Network,
    Peer,
    asker,
    listening,
    network,
    opened,
    raw,
)
from patience import LONGEST, patient, until

POLICY = (
    "[policy]\ninteractions = true\nmax_rounds = 3\nmin_rows = 20\nmax_rows = 50_000\n"
    "predictions_per_day = 300\nrefused_begins_per_day = 100\n"
)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(tmp_path_factory.mktemp("label holder"), lab=POLICY) as made:
        yield made


@pytest.fixture(scope="module")
def link(net: Network) -> Iterator[Peer]:
    """Mallory's stream from the lab."""
    with listening(net.mallory) as came:
        asker(net, "first")
        peer = came.get(timeout=patient(30))
        peer.wait_for(lambda one: one.kind == "joined", "joined")
        yield peer


@pytest.fixture
def task(net: Network, link: Peer, request: pytest.FixtureRequest) -> Asker:
    """A fresh task of mallory's that the lab has joined."""
    return asker(net, f"task-{os.urandom(4).hex()}", **getattr(request, "param", {}))


N = 60
FEW = np.arange(10, dtype=np.int64) + 1000


def test_requests_without_an_agreed_task_are_refused(net: Network, link: Peer) -> None:
    unknown = asker(net, "unknown", join=False)
    since = net.mark("lab")
    for message in (unknown.begin(), unknown.fit(), unknown.predict(), unknown.revisit(), unknown.end()):
        assert link.refused(message) == "not-joined"
    assert net.refusals("lab", since) == ["not-joined"] * 5


@pytest.mark.parametrize(
    ("code", "arrays", "fields"),
    [
        ("other-terms", {}, {"rounds": 4}),
        ("other-terms", {}, {"n_outputs": 2}),
        ("other-terms", {}, {"terms": ZERO_DIGEST}),
        ("other-terms", {}, {"method": "hashed"}),
        ("other-terms", {"folds": np.arange(N, dtype=np.int32) % 5}, {}),
        ("other-terms", {"parts": np.arange(N, dtype=np.int32) % 5}, {}),
        ("alignment", {"fit": np.ones(N - 1, dtype=np.uint8)}, {}),
        ("alignment", {"fit": np.zeros(N, dtype=np.uint8)}, {}),
        ("alignment", {"fit": np.full(N, 2, dtype=np.uint8)}, {}),
        ("alignment", {"folds": np.full(N, -5, dtype=np.int32)}, {}),
        ("alignment", {"parts": np.full(N, -1, dtype=np.int32)}, {}),
        ("alignment", {"integers": np.zeros(N, dtype=np.int64)}, {}),
        ("too-few-rows", {"integers": np.arange(N, dtype=np.int64)}, {}),
        ("alignment", {"integers": None, "texts": np.array(["a"] * N, dtype=object)}, {}),
        ("alignment", {"texts": np.array(["a"] * N, dtype=object)}, {}),
        ("alignment", {"integers": None}, {}),
        ("alignment", {"integers": None, "texts": np.array(list("ab"), dtype=object)}, {"kind": "text"}),
    ],
)
def test_beginning_otherwise_than_agreed_is_refused(
    link: Peer, task: Asker, code: str, arrays: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert link.refused(task.begin(arrays=arrays, **fields)) == code


def test_small_groups_are_not_probed(link: Peer, task: Asker, net: Network) -> None:
    ones = np.ones(10, dtype=np.uint8)
    assert link.refused(task.begin(arrays={"integers": FEW, "fit": ones})) == "too-few-rows"
    # Many rows, most of which the lab does not know:
    ids, many = np.r_[FEW, np.arange(500) + 10**6], np.ones(510, dtype=np.uint8)
    assert link.refused(task.begin(arrays={"integers": ids, "fit": many})) == "too-few-rows"
    # All known, but few to be fitted, by their roles or by their weights:
    fit = np.zeros(N, dtype=np.uint8)
    fit[:10] = 1
    assert link.ask(task.begin(arrays={"fit": fit})).kind == "begun"
    assert link.refused(task.fit(residual=np.ones((10, 1)))) == "too-few-rows"
    assert link.ask(task.begin(version=2)).kind == "begun"
    assert link.refused(task.fit(version=2, weight=fit.astype(np.float64))) == "too-few-rows"
    # The same by weights that are small, not zero, and by residuals that are small in all rows but one:
    small, one = np.full(N, 2e-6), np.full((N, 1), 1e-3)
    small[0] = one[0] = 1.0
    assert link.refused(task.fit(version=2, weight=small)) == "too-few-rows"
    assert link.refused(task.fit(version=2, residual=one)) == "too-few-rows"
    assert (
        link.refused(task.fit(version=2, weight=1 / (one[:, 0] + 1e-9) ** 1, residual=one**2))
        == "too-few-rows"
    )
    assert link.ask(task.fit(version=2)).kind == "fitted"


@pytest.mark.parametrize(
    ("task", "role", "further"),
    [({"folds": 2}, "folds", 0), ({"signs": 4, "rounds": 1}, "probes", 4)],
    indirect=["task"],
)
def test_small_groups_are_not_probed_in_one_of_the_folds(
    link: Peer, task: Asker, role: str, further: int
) -> None:
    """Each model is fitted without a fold: it must not rest on one row because the fold has all the others."""
    folds = np.arange(N, dtype=np.int32) % 2
    assert link.ask(task.begin(arrays={role: folds + (role == "probes")}, further=further)).kind == "begun"
    beyond = {"target": "probe", "round": task.terms.rounds + 1} if further else {"round": 1}
    heavy, sole = np.ones(N), np.ones((N, 1))
    heavy[folds == 1], sole[folds == 1] = 2e-6, 1e-3
    heavy[1] = sole[1] = 1.0
    assert link.refused(task.fit(weight=heavy, **beyond)) == "too-few-rows"
    assert link.refused(task.fit(residual=sole, **beyond)) == "too-few-rows"
    assert link.ask(task.fit(**beyond)).kind == "fitted"


NAN, INF = np.full((N, 1), np.nan), np.full((N, 1), np.inf)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("wrong-shape", {"residual": np.ones((N - 1, 1))}),
        ("wrong-shape", {"residual": np.ones((N, 2))}),
        ("not-finite", {"residual": NAN}),
        ("not-finite", {"residual": INF}),
        ("wrong-shape", {"weight": np.full(N, -1.0)}),
        ("wrong-shape", {"weight": np.full(N, np.nan)}),
        ("wrong-shape", {"weight": np.ones(N + 1)}),
        ("too-few-rows", {"weight": np.zeros(N)}),
        ("other-rows", {"rows": ZERO_DIGEST}),
        ("not-yours", {"track": "alone"}),
        ("too-many-rounds", {"round": 4}),
        ("other-terms", {"part": 0}),
        ("not-begun", {"version": 2}),
        ("not-begun", {"version": 0}),
    ],
)
def test_residuals_that_cannot_be_are_refused(
    net: Network, link: Peer, begun: Asker, code: str, fields: dict[str, Any]
) -> None:
    since = net.mark("lab")
    assert link.refused(begun.fit(**fields)) == code
    assert net.refusals("lab", since) == [code]


@pytest.fixture(scope="module")
def begun(net: Network, link: Peer) -> Asker:
    """A task whose first version is begun, and nothing more."""
    made = asker(net, "begun")
    assert link.ask(made.begin()).kind == "begun"
    return made


def test_predictions_have_a_budget(net: Network, link: Peer, task: Asker) -> None:
    """300 rows a day in this file's policy, for all of mallory's tasks together."""
    link.ask(task.begin())
    link.ask(task.fit())
    assert link.ask(task.predict(request="a")).kind == "predicted"
    assert link.refused(task.predict(rounds=[1, 1], request="b")) == "repeated-rounds"
    assert link.refused(task.predict(rounds=[4], request="c")) == "too-many-rounds"
    assert link.refused(task.predict(track="alone", request="d")) == "not-yours"
    assert link.refused(task.predict(np.arange(241) + 1000, request="e")) == "budget-spent"
    unknown = link.ask(task.predict(np.arange(240) + 10**6, request="f"))
    assert unknown.arrays["known"].sum() == 0
    assert link.refused(task.predict(np.arange(1) + 1000, request="g")) == "budget-spent"


def test_another_label_holders_task_is_not_touched(net: Network, link: Peer) -> None:
    """The clinic's task, its id and its terms known to mallory: as if it were mallory's own."""
    net.offer("of-the-clinic", net.lab)
    net.learned("of-the-clinic")
    terms = TaskTerms.model_validate(net.nodes["lab"].state.find_task("of-the-clinic").terms)
    stolen = Asker(terms, net.tables["clinic"]["id"].to_numpy())
    messages = (stolen.begin(version=2), stolen.fit(), stolen.predict(), stolen.revisit(), stolen.end(kept=0))
    assert [link.refused(message) for message in messages] == ["not-joined"] * 5
    assert net.nodes["lab"].state.version(terms.task, 1) is not None


def test_an_invitation_with_the_id_of_anothers_task_is_not_joined(net: Network, tmp_path: Path) -> None:
    """Otherwise mallory could change what the lab agreed to with the clinic, and the clinic's own tasks."""
    terms = net.offer("precious", net.lab)
    forged = terms.model_copy(
        update={
            "fingerprint": net.mallory.identity.fingerprint,
            "rounds": 3,
            "label_holder": "mallory",
            "organizations": tuple(
                Invited(name=one.name, fingerprint=one.identity.fingerprint) for one in (net.lab, net.clinic)
            ),
        }
    )
    write_invitation(forged, net.mallory.identity, tmp_path / "forged")
    for organization in (net.lab, net.clinic):
        with pytest.raises(RefusedError, match="has the id of the task 'precious'"):
            registering.join(
                organization.home, *registering.read_terms(organization.home, tmp_path / "forged")
            )
    assert net.nodes["lab"].state.get_task(terms.task).terms == terms  # type: ignore[union-attr]


@pytest.mark.parametrize("task", [{"alignment": "psi"}], indirect=True)
def test_blind_steps_out_of_order_and_garbage_are_refused(link: Peer, task: Asker) -> None:
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    points = os.urandom(33 * 30)
    assert link.refused(task.blind("response", content=points)) == "alignment"
    assert link.refused(task.blind("setup", n=5)) == "too-few-rows"
    assert link.refused(task.blind("setup", n=10**18)) == "too-many-rows"
    assert link.ask(task.blind("setup")).kind == "blinded"
    assert link.refused(task.blind("response")) == "alignment"
    for content in (b"", b"x", points[:-1], points[:-33], points, b"\0" * 33 * 30):
        assert link.refused(task.blind("response", content=content)) in {"invalid-message", "alignment"}
    assert link.refused(task.blind("response", exchange="cd" * 16, content=points)) == "alignment"


def test_one_broken_message_does_not_end_the_stream(net: Network, link: Peer, task: Asker) -> None:
    header, columns = opened(task.begin())
    header["fields"]["\x1b[31mred\n"] = 1
    since = net.mark("lab")
    assert link.refused_bytes(raw(header, columns)) == "invalid-message"
    assert link.refused_bytes(b"nothing") == "invalid-message"
    assert net.refusals("lab", since) == ["invalid-message"] * 2
    assert all(one.note.isprintable() for one in net.audited("lab"))
    assert link.ask(task.begin()).kind == "begun"


def test_a_link_that_fails_inside_is_dialed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with network(tmp_path) as net, listening(net.mallory) as came:
        task = asker(net, "unlucky")
        link = came.get(timeout=LONGEST)
        link.wait_for(lambda one: one.kind == "joined", "joined")

        def no_thread(*_: Any) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as exhausted:
            exhausted.setattr("gal.node.assistant.links.WaitingBytes.take", no_thread)
            link.send(task.end())
            link.wait_for_end()
        again = came.get(timeout=LONGEST)
        again.wait_for(lambda one: one.kind == "joined", "joined")
        assert again.ask(task.end()).kind == "done"


class Flood:
    """A stream on which a label holder sends requests without end, as fast as they are read."""

    def __init__(self, request: Message) -> None:
        self.taken, self._request, self._closed = 0, request, threading.Event()
        self.peer, self.software, self.version = "mallory", "", 2

    def receive(self) -> Received:
        if self._closed.is_set():
            raise LinkLostError("closed")
        self.taken += 1
        return Received(self._request, ZERO_DIGEST, 1_000_000, bytearray())

    def send(self, message: object) -> None:
        pass

    def close(self) -> None:
        self._closed.set()


def test_an_endless_flood_of_requests_is_not_kept(net: Network, task: Asker) -> None:
    """Pending requests are limited in bytes: beyond the limit the stream is not read until some have replies."""
    answered, flood = threading.Semaphore(0), Flood(task.fit())

    def answer(asked: object) -> None:
        answered.acquire()
        raise RefusedError("no", "no")

    lab = net.nodes["lab"]
    policy = lab.configuration.policy.model_copy(update={"largest_message": 10_000_000})
    service = SimpleNamespace(
        configuration=lab.configuration.model_copy(update={"policy": policy}),
        state=SimpleNamespace(tasks=lambda role: []),
        moves=lambda: False,
        answer=answer,
    )
    written = SimpleNamespace(append=lambda *_, **__: None, append_each=lambda *_, **__: None)
    records = replace(lab.records, audit=written)  # type: ignore[arg-type]
    link = Link("mallory", service, records, lambda peer: flood)  # type: ignore[arg-type, return-value]
    try:
        until(lambda: flood.taken >= 10, "ten requests of a megabyte wait")
        time.sleep(0.3)  # time in which an unbounded queue takes thousands
        assert flood.taken <= 11
        for _ in range(5):
            answered.release()
        until(lambda: flood.taken >= 15, "it reads on when it has answered")
        time.sleep(0.3)
        assert flood.taken <= 16
    finally:
        answered.release(1000)
        link.close()


# What leaves


LEAKY = '''
class Model:
    """Fails, and says on what."""

    def fit(self, view, residual, **more):
        raise ValueError(f"cannot fit {view.head(3).to_dict() if hasattr(view, 'head') else view[:3].tolist()}")

    def predict(self, view):
        raise ValueError(f"cannot predict {view}")
'''
SECRETS = ("SECRET-ID-7", "SECRET-VALUE-123", "424242")


def secret_rows() -> pd.DataFrame:
    ids = [f"SECRET-ID-{one}" for one in range(60)]
    return pd.DataFrame({"id": ids, "code": ["SECRET-VALUE-123", "other"] * 30, "amount": [424242.5] * 60})


def test_no_failure_tells_what_the_data_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The local model fails and quotes rows; then the source is broken in ways whose errors quote cells."""
    (tmp_path / "leaky.py").write_text(LEAKY, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with (
        network(tmp_path / "net", lab_model='use = "leaky:Model"') as net,
        listening(net.mallory) as came,
    ):
        rows = net.lab.home / "rows.csv"
        table = secret_rows()
        table.to_csv(rows, index=False)
        task = asker(net, "curious")
        peer = came.get(timeout=patient(30))
        texts = table["id"].to_numpy(dtype=object)
        asked = {"integers": None, "texts": texts}
        begun = peer.ask(task.begin(arrays=asked, kind="text"))
        assert begun.kind == "begun"
        assert peer.refused(task.fit(rows=begun.fields["rows"])) == "model-failed"
        broken = {
            "twice": pd.concat([table, table.iloc[7:8]]),
            "gap": table.assign(id=table["id"].where(table.index != 5)),
            "no column": table.drop(columns="id"),
            "no rows": table.iloc[:0],
            "new column": table.assign(more="SECRET-VALUE-123"),
        }
        for version, source in enumerate(broken.values(), start=2):
            source.to_csv(rows, index=False)
            peer.ask(task.begin(version=version, arrays=asked, kind="text"))
        rows.write_bytes(b'id,code,amount\n"SECRET-ID-7,\xff\xfe,"\n')
        assert peer.ask(task.begin(version=9, arrays=asked, kind="text")).kind == "refusal"
        rows.unlink()
        assert peer.ask(task.begin(version=10, arrays=asked, kind="text")).kind == "refusal"
        left = [bytes(encode(message)) for message in peer.inbox]
        entries = [str(one) for one in net.audited("lab")]
    assert len(left) > 8
    assert all(secret.encode() not in message for message in left for secret in SECRETS)
    assert all(secret not in entry for entry in entries for secret in SECRETS)
    assert (
        "SECRET-VALUE-123" in capfd.readouterr().err
    )  # at home it is said, otherwise nothing was tried here


# Invitations
