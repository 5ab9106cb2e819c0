"""An organization that lies, repeats messages or uses another's name: it is named in the audit log, and the
others are not harmed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gal.alignment import RowIds, row_digest
from gal.errors import NodeError
from gal.node.admin.init import rotate_key
from gal.node.config.configuration import read_configuration
from gal.node.config.invitations import TaskTerms
from gal.node.label_holder.learning.open_version import Patience
from gal.protocol import Message
from gal.transport import read_card
from hostile import (
    USED,
    ZERO_DIGEST,
    Asker,
    Network,
    Peer,
    Twist,
    assisting,
    dialed,
    joined,
    network,
)
from patience import patient, until

SOON = Patience(join=patient(20.0), deadline=patient(30.0))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(tmp_path_factory.mktemp("organization")) as made:
        yield made


# Tasks of others


def test_only_tasks_that_it_was_invited_to_can_be_joined(net: Network) -> None:
    theirs, own = net.offer("theirs", net.lab), net.offer("for-mallory", net.mallory)
    other = own.model_copy(update={"rounds": 50})
    unknown = own.model_copy(update={"task": "e" * 32})
    assistants = net.nodes["clinic"].assistants
    since = net.mark("clinic")
    with dialed(net.mallory, net.clinic) as peer:
        for number, (terms, code) in enumerate(
            [(theirs, "not-invited"), (unknown, "not-invited"), (other, "other-terms")]
        ):
            peer.send(joined(terms))
            answer = peer.wait_for(lambda one: one.kind == "refusal", "refusal", seen=number)
            assert answer.fields["code"] == code
        assert "mallory" not in assistants.present(theirs.task)
        assert "mallory" not in assistants.present(own.task)
        peer.send(joined(own))
        until(lambda: "mallory" in assistants.present(own.task), "mallory joins its own")
    assert net.refusals("clinic", since) == ["not-invited", "not-invited", "other-terms"]


def test_it_cannot_make_another_leave(net: Network) -> None:
    terms = net.offer("stay", net.lab)
    with dialed(net.mallory, net.clinic) as peer:
        peer.send(Message("leave", terms.task, request="x"))
        assert peer.wait_for(lambda one: one.request == "x", "refusal").fields["code"] == "not-invited"
    assert net.nodes["clinic"].state.members(terms.task) == {"lab": "invited"}


def test_who_left_cannot_come_back_by_itself(net: Network) -> None:
    terms = net.offer("gone", net.mallory)
    with dialed(net.mallory, net.clinic) as peer:
        peer.send(Message("leave", terms.task))
        peer.send(joined(terms))
        assert peer.wait_for(lambda one: one.kind == "refusal", "refusal").fields["code"] == "left"


def test_an_organization_asks_nothing(net: Network) -> None:
    """As if it were a label holder: the clinic's own organization would fit and predict for it."""
    terms = net.offer("asked", net.mallory)
    task = Asker(terms, net.tables["clinic"]["id"].to_numpy())
    hello = Message("hello", fields={"versions": [1], "software": "x", "nonce": "ab" * 32}, request="hello")
    since = net.mark("clinic")
    with dialed(net.mallory, net.clinic) as peer:
        peer.send(joined(terms))
        asked = [
            task.begin(),
            task.fit(),
            task.predict(),
            task.revisit(),
            task.end(),
            task.blind("setup"),
            hello,
        ]
        for message in asked:
            peer.send(message)
        for message in asked:
            answer = peer.wait_for(lambda one, name=message.request: one.request == name, "refusal")  # type: ignore[misc]
            assert answer.fields["code"] == "not-an-answer"
    assert net.refusals("clinic", since) == ["not-an-answer"] * len(asked)


# Answers


def only(kind: str, **changes: Any) -> Twist:
    """Change the answers of this kind: fields by name, arrays by their names."""

    def twist(request: Message, answer: Message) -> list[Message]:
        if answer.kind != kind:
            return [answer]
        fields = {name: value for name, value in changes.items() if name in answer.fields}
        arrays = {name: make(answer.arrays[name]) for name, make in changes.items() if name in answer.arrays}
        return [replace(answer, fields={**answer.fields, **fields}, arrays={**answer.arrays, **arrays})]

    return twist


def instead(kind: str, other: Message) -> Twist:
    """Another kind of answer to the right request."""

    def twist(request: Message, answer: Message) -> list[Message]:
        if answer.kind != kind:
            return [answer]
        fields = {**other.fields, "answers": answer.fields["answers"]}
        return [
            replace(other, task=answer.task, version=answer.version, request=answer.request, fields=fields)
        ]

    return twist


def spoiled(place: int, value: float) -> Any:
    def make(values: Any) -> Any:
        changed = np.array(values, dtype=np.float32)
        changed.reshape(-1)[place] = value
        return changed

    return make


DONE = Message("done", fields={"answers": ZERO_DIGEST})
NO = Message("refusal", fields={"code": "will-not", "message": "no"})


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (only("fitted", fitted=lambda one: one[:-1]), r"shape \(59, 1\)"),
        (only("fitted", fitted=spoiled(3, np.nan)), "NaN or infinite"),
        (only("fitted", fitted=spoiled(3, np.inf)), "NaN or infinite"),
        (only("fitted", fitted=spoiled(3, 3e38)), "absurd"),
        (only("fitted", rows=ZERO_DIGEST), "other rows"),
        (only("fitted", round=2_000), "for round 2000"),
        (instead("fitted", DONE), "replied with done"),
        (instead("fitted", NO), "will-not"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_bad_reply_has_no_effect(
    net: Network, twist: Twist, said: str, request: pytest.FixtureRequest
) -> None:
    """Its sender is left out of the round by name, and the others learn as if it were not there."""
    name = f"bad-{request.node.callspec.indices['twist']}"
    terms = net.offer(name, net.lab, net.mallory)
    with assisting(net, terms, twist):
        ensemble = net.learned(name, patience=SOON)
    alone = net.expected("clinic", "lab")
    for mine, theirs in zip(ensemble.rounds, alone.rounds, strict=True):
        assert mine.rate == theirs.rate
        assert mine.weights["lab"] == theirs.weights["lab"]
        assert said.replace("\\", "") in mine.left_out["mallory"].replace("\\", "")


def test_words_of_a_refusal_are_no_commands_for_a_terminal(net: Network) -> None:
    terms = net.offer("words", net.lab, net.mallory)
    loud = replace(NO, fields={"code": "no", "message": "\x1b[2J\r\nall is well\u202e"})
    with assisting(net, terms, instead("fitted", loud)):
        ensemble = net.learned("words", patience=SOON)
    said = ensemble.rounds[0].left_out["mallory"]
    assert "all is well" in said
    assert said.isprintable()


def test_only_the_first_answer_counts(net: Network) -> None:
    def twice(request: Message, answer: Message) -> list[Message]:
        if answer.kind != "fitted":
            return [answer]
        other = replace(answer, arrays={"fitted": answer.arrays["fitted"] * np.float32(-100)})
        return [answer, other, other]

    honest_terms = net.offer("once", net.lab, net.mallory, **USED)
    with assisting(net, honest_terms):
        honest = net.learned("once", patience=SOON)
    terms = net.offer("twice", net.lab, net.mallory, **USED)
    since = net.mark("clinic")
    with assisting(net, terms, twice) as peer:
        ensemble = net.learned("twice", patience=SOON)
        peer.send(Message("leave", "e" * 32, request="sync"))
        peer.wait_for(lambda one: one.request == "sync", "everything before it is read")
    assert [one.rate for one in ensemble.rounds] == [one.rate for one in honest.rounds]
    asked = sum(one.kind == "fit" for one in peer.inbox)
    assert asked >= 2
    assert net.refusals("clinic", since).count("not-asked") == 2 * asked


@pytest.mark.parametrize(
    "changes",
    [
        {"fields": {"answers": ZERO_DIGEST}},
        {"request": "2.0"},
        {"task": "e" * 32},
    ],
    ids=str,
)
def test_answers_to_what_was_not_asked_do_not_count(
    net: Network, changes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Another digest, a later round, another task: mallory is missed in that round, by name."""

    def twist(request: Message, answer: Message) -> list[Message]:
        if answer.kind != "fitted" or request.fields["round"] > 1:
            return [answer]
        fields = {**answer.fields, **changes.get("fields", {})}
        return [replace(answer, **{**changes, "fields": fields})]

    name = f"unasked-{request.node.callspec.indices['changes']}"
    terms = net.offer(name, net.lab, net.mallory, **USED)
    since = net.mark("clinic")
    with assisting(net, terms, twist):
        ensemble = net.learned(name, patience=Patience(join=patient(20.0), deadline=patient(1.5)))
    assert "did not reply" in ensemble.rounds[0].left_out["mallory"]
    assert "not-asked" in net.refusals("clinic", since)
    assert "mallory" not in ensemble.rounds[1].left_out


def test_it_cannot_reply_for_another(net: Network) -> None:
    """Mallory receives the lab's request and knows its digest; its reply counts only as its own."""
    theirs = net.offer("not-yours", net.lab)
    stop = threading.Event()
    with dialed(net.mallory, net.clinic) as peer:

        def shout() -> None:
            fields = {"answers": ZERO_DIGEST, "rows": ZERO_DIGEST, "round": 1}
            while not stop.wait(patient(0.01)):  # its day must not be spent by that
                for step in (1, 2):
                    arrays = {"fitted": np.full((60, 1), 9, dtype=np.float32)}
                    peer.send(Message("fitted", theirs.task, 1, f"{step}.0", fields, arrays))

        thread = threading.Thread(target=shout)
        thread.start()
        try:
            ensemble = net.learned("not-yours")
        finally:
            stop.set()
            thread.join()
    assert ensemble == net.expected("clinic", "lab")


@pytest.mark.parametrize(
    "twist",
    [
        only("begun", known=lambda one: one[:-1]),
        only("begun", known=lambda one: one * np.uint8(2)),
        only("begun", n_rows=10**15),
        only("begun", rows=ZERO_DIGEST),
        instead("begun", DONE),
        instead("begun", NO),
    ],
)
def test_lies_about_rows_stop_learning_before_it_begins(
    net: Network, twist: Twist, request: pytest.FixtureRequest
) -> None:
    """Silent misalignment must be impossible: people have to sort it out, and are told with whom."""
    name = f"rows-{request.node.callspec.indices['twist']}"
    terms = net.offer(name, net.lab, net.mallory, **USED)
    with assisting(net, terms, twist), pytest.raises(NodeError, match="mallory"):
        net.learned(name, patience=SOON)


HUGE = 1 << 22
NOTHING = {
    "known": lambda one: one * np.uint8(0),
    "values": lambda one: np.empty((HUGE, 0, HUGE), dtype=np.float32),
    "rows": row_digest(np.zeros(0, dtype=np.int64), "integer", "plain"),
}
"""No row is known, so that no bytes are needed for as many rounds and outputs as one likes."""


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (only("predicted", values=lambda one: one[:, :-1]), "replied for"),
        (only("predicted", values=lambda one: one[:1]), "shape"),
        (only("predicted", values=lambda one: np.repeat(one, 2, axis=2)), "shape"),
        (only("predicted", known=lambda one: one[:-1]), "replied for"),
        (only("predicted", rows=ZERO_DIGEST), "other rows"),
        (only("predicted", **NOTHING), "shape (4194304, 0, 4194304)"),
        (instead("predicted", DONE), "replied with done"),
        (instead("predicted", NO), "will-not"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_bad_prediction_is_stood_in_for(net: Network, learned: Any, twist: Twist, said: str) -> None:
    with assisting(net, learned, twist):
        facts = predicted(net, learned)
    assert facts["degraded"] == 60
    assert said in facts["missing"]["mallory"]


@pytest.mark.parametrize(
    ("twist", "counts"),
    [
        (only("predicted"), True),
        (only("predicted", values=spoiled(7, np.nan)), False),
        (only("predicted", values=lambda one: one[:, :-1]), False),
        (only("predicted", rows=ZERO_DIGEST), False),
        (instead("predicted", DONE), False),
    ],
)
def test_bad_last_words_of_a_moving_model_count_for_nothing(
    net: Network, twist: Twist, counts: bool, request: pytest.FixtureRequest
) -> None:
    name = f"moving-{request.node.callspec.indices['twist']}"
    terms = net.offer(name, net.lab, net.mallory, **USED)
    with assisting(net, terms, twist, moving=True) as peer:
        ensemble = net.learned(name, patience=SOON)
        assert any(one.kind == "revisit" for one in peer.inbox)
    used = any("mallory" in one for one in ensemble.coefficients)
    assert used is counts


def blind_task(net: Network, name: str) -> TaskTerms:
    """A task of the clinic and mallory that aligns rows by private set intersection."""
    pytest.importorskip("private_set_intersection", reason="needs the extra psi")
    return net.offer(name, net.mallory, rounds=1, alignment="psi", **USED)


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 33, b"\3" * 33 * 60], ids=len)
def test_garbage_in_a_private_set_intersection_is_named(net: Network, content: bytes) -> None:
    terms = blind_task(net, f"blind-{len(content)}")
    with assisting(net, terms, blind=lambda request: content), pytest.raises(NodeError, match="mallory"):
        net.learned(terms.name, patience=SOON)


def test_garbage_in_a_private_set_intersection_does_not_stop_predictions(net: Network) -> None:
    terms, ids = blind_task(net, "blind"), net.tables["mallory"]["id"].to_numpy()
    holders: dict[str, Any] = {}

    def honestly(request: Message) -> bytes:
        from gal.alignment.psi import Holder

        holder = holders.setdefault(request.fields["exchange"], Holder(RowIds("integer", ids)))
        if request.fields["step"] == "setup":
            return bytes(holder.setup(request.fields["n_rows"]))
        return bytes(holder.respond(request.arrays["bytes"].tobytes()))

    def rows(request: Message, answer: Message) -> list[Message]:
        """The honest answer, for rows that were found by this method."""
        if answer.kind not in {"begun", "predicted"}:
            return [answer]
        order = row_digest(request.arrays["integers"], "integer", "psi")
        return [replace(answer, fields={**answer.fields, "rows": order})]

    own = net.clinic.home / "rows.csv"
    with assisting(net, terms, rows, blind=honestly):
        net.learned("blind", patience=SOON)
        assert net.holder.predict_file("blind", own, join=patient(20.0))["degraded"] == 0
    with assisting(net, terms, rows, blind=lambda request: b"garbage"):
        facts = net.holder.predict_file("blind", own, join=patient(20.0))
    assert facts["degraded"] == 60
    assert "private set intersection" in facts["missing"]["mallory"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_no_number_degrades_its_row(net: Network, learned: Any, value: float) -> None:
    with assisting(net, learned, only("predicted", values=spoiled(7, value))):
        facts = predicted(net, learned)
    assert facts["degraded"] == 1
    assert all(np.isfinite(one["prediction"]) for one in facts["rows"])
    assert [one["degraded"] for one in facts["rows"]].index(True) == 7


@pytest.fixture(scope="module")
def learned(net: Network) -> Any:
    """A task that was learned with mallory's help."""
    terms = net.offer("learned", net.lab, net.mallory, **USED)
    with assisting(net, terms):
        net.learned("learned", patience=SOON)
    return terms


def predicted(net: Network, terms: Any) -> dict[str, Any]:
    present = net.nodes["clinic"].assistants.present
    until(lambda: {"lab", "mallory"} <= set(present(terms.task)), "both are there")
    return net.holder.predict_file("learned", net.clinic.home / "rows.csv", seconds=patient(5.0))


@pytest.mark.slow
def test_an_organization_that_does_not_read_delays_no_other(net: Network) -> None:
    """It sends "joined" again and again, gets requests again and again, and reads none."""
    terms = net.offer("deaf", net.lab, net.mallory, **USED)
    asked, ears = threading.Event(), threading.Event()

    def deaf(request: Message, answer: Message) -> list[Message]:
        if answer.kind != "fitted":
            return [answer]
        asked.set()
        ears.wait(patient(60))
        return []

    def shout(peer: Peer) -> None:
        assert asked.wait(patient(30))
        for _ in range(2000):
            peer.send(joined(terms))

    def hear_the_end(event: Mapping[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 2:
            ears.set()

    with assisting(net, terms, deaf) as peer:
        thread = threading.Thread(target=shout, args=(peer,))
        thread.start()
        try:
            ensemble = net.learned(
                "deaf", patience=Patience(join=patient(20.0), deadline=patient(4.0)), on_event=hear_the_end
            )
        finally:
            ears.set()
            thread.join()
    for one in ensemble.rounds:
        assert "lab" not in one.left_out
        assert "did not reply" in one.left_out["mallory"]


# Keys


def test_a_revoked_card_ends_the_link_and_a_new_one_lets_it_back_in(net: Network) -> None:
    net.offer("revoked", net.lab)
    first = net.learned("revoked")
    assistants = net.nodes["clinic"].assistants
    net.clinic.cards.remove("lab")
    with pytest.raises(NodeError, match="lab"):
        net.learned("revoked", patience=Patience(join=patient(1.0), deadline=patient(3.0)))
    until(lambda: "lab" not in assistants.connected(), "the lab's stream ends")
    assert any("removed or replaced" in one.note for one in net.audited("clinic") if one.kind == "refused")
    net.clinic.cards.add(net.lab.card)
    until(lambda: "lab" in assistants.connected(), "the lab comes back")
    again = net.learned("revoked", anew=True)
    assert again == first


def test_a_new_key_goes_on_with_a_task(net: Network) -> None:
    """The task, its versions and its invitation stay."""
    net.offer("rotated", net.lab)
    first = net.learned("rotated")
    old = net.lab.identity.fingerprint
    path, new = rotate_key(net.lab.home, read_configuration(net.lab.home))
    net.clinic.cards.add(read_card(path), replace=True)
    assert net.clinic.cards.get("lab").fingerprint == new != old  # type: ignore[union-attr]
    net.stop("lab")
    net.start("lab")
    assert net.learned("rotated") == first
    facts = net.holder.predict_file("rotated", net.clinic.home / "rows.csv", version=1, join=patient(20.0))
    assert facts["degraded"] == 0
