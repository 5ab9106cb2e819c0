"""A label holder that tries to get single replies of organizations that agreed to sums only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gal.errors import InvalidMessageError, RefusedError
from gal.node.config.aggregation_messages import aggregation_group, check_members
from gal.node.config.invitations import Invited, TaskTerms
from gal.node.store.state import State
from gal.protocol import Message, digest, encode
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.record import DiskRecord
from small_groups import EXACT, identity
from sum_members import HOLDER, IDS, PLAIN_TASK, TASK, ByHand, N

NAMES = ("bank", "insurer", "lab", "shop")
LATER = ("bank", "insurer", "lab")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., ByHand]]:
    networks: list[ByHand] = []

    def make(**how: Any) -> ByHand:
        networks.append(ByHand(tmp_path / str(len(networks)), NAMES, **how))
        return networks[-1]

    yield make
    for one in networks:
        one.close()


def refused(code: str, words: str = ".") -> pytest.RaisesExc[RefusedError]:
    """An error with this code."""
    return pytest.raises(RefusedError, match=words, check=lambda error: error.code == code)


def all_answer(by: ByHand, number: int, question: Message, names: tuple[str, ...] = NAMES) -> Collector:
    """A sum of these, of which nothing is opened yet."""
    collector = by.ready(number, names)
    for name in names:
        collector.take_masked(by.masked(name, collector, question))
    return collector


def asked_all(by: ByHand, question: Message, names: tuple[str, ...] = NAMES) -> Message:
    """Everybody has had the question."""
    for name in names:
        assert by.members[name].answer(question).kind == {"fit": "done", "total": "found"}[question.kind]
    return question


def test_everybodys_sum_is_opened_and_nothing_else_leaves(made: Callable[..., ByHand]) -> None:
    by = made()
    question = asked_all(by, by.residual())
    collector = all_answer(by, 7, question)
    for name in NAMES:
        collector.take_opening(by.open(name, 7, NAMES))
    expected = sum(by.fitted(name).astype(np.float64) for name in NAMES)
    assert np.abs(collector.total() - expected).max() < EXACT
    said = by.members["lab"].answer(question)
    assert (said.kind, dict(said.arrays)) == ("done", {}), "that it has fitted is all that is said"
    for asked in (
        Message(
            "predict",
            TASK,
            1,
            "x",
            {"kind": "integer", "method": "plain", "secret": "", "track": "assisted", "rounds": [1]},
            {"integers": IDS},
        ),
        Message(
            "revisit", TASK, 1, "x", {"rows": question.fields["rows"], "track": "assisted", "rounds": [1]}
        ),
    ):
        with refused("sums-only", "lab agreed to secure aggregation in 'risk'"):
            by.members["lab"].answer(asked)


def test_plain_tasks_have_no_sums(made: Callable[..., ByHand]) -> None:
    by = made()
    plain = by.terms.model_copy(update={"secure_aggregation": "none", "task": PLAIN_TASK, "name": "plain"})
    by.join("lab", plain)
    keys = Message("keys", PLAIN_TASK, 1, "keys", {"circle": by.group.digest, "numbers": [1]})
    with refused("other-terms", "have no sums"):
        by.members["lab"].answer(keys)
    both = Message("keys", TASK, 1, "keys", {"circle": by.group.digest, "numbers": [1, 2]})
    with pytest.raises(InvalidMessageError, match="a message is about one sum, and this one about 2"):
        by.members["lab"].answer(both)


def test_nothing_is_sent_that_cannot_be_recorded(
    made: Callable[..., ByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    by = made()
    all_answer(by, 7, asked_all(by, by.residual()))

    def full(*_: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(DiskRecord, "settle", full)
    with pytest.raises(sqlite3.OperationalError):
        by.open("lab", 7, NAMES)


def test_rows_that_one_member_does_not_know_are_not_added_up(made: Callable[..., ByHand]) -> None:
    """Masks do not cancel in a row that one member does not know."""
    by = made(shop=N - 2)
    question = by.total(IDS)
    for name in NAMES:
        by.members[name].answer(by.residual(rows=N - 2 if name == "shop" else N))
        found = by.members[name].answer(question)
        assert int(found.arrays["known"].sum()) == (N - 2 if name == "shop" else N)
    collector, everything = by.ready(7), np.ones(N)
    for name in LATER:
        collector.take_masked(by.masked(name, collector, question, everything))
    with refused("other-rows", "shop does not know all rows"):
        by.masked("shop", collector, question, everything)
    with refused("too-few"):
        collector.survivors()
    with refused("too-few", "a sum needs 4 of the 4 members"):
        by.open("lab", 7, LATER)
    residual = by.residual(round=2)
    by.members["lab"].answer(residual)
    collector = by.ready(8)
    other = by.residual(round=2, rows=N - 2)
    with refused("content"):
        by.masked("lab", collector, other, of=digest(encode(residual)))


def test_requests_for_shares_are_not_played_back(made: Callable[..., ByHand]) -> None:
    by = made(drop_outs=1)
    before = by.ready(7).offers()
    with refused("order", "has given its shares of sum 7"):
        by.share("lab", 7, before)
    offers = [by.keys(name, 8) for name in NAMES]
    with refused("offer", "not signed by"):
        by.share("lab", 8, [replace(before[0], number=8), *offers[1:]])
    with refused("offer", "not signed by"):
        by.share("lab", 8, [replace(offers[0], mask_key=offers[1].mask_key), *offers[1:]])
    with refused("too-few"):
        by.share("lab", 8, offers[2:])
    assert by.share("lab", 8, offers).boxes.keys() == {"bank", "insurer", "shop"}


def test_a_masked_answer_is_given_again_and_not_anew(made: Callable[..., ByHand]) -> None:
    by = made()
    question = asked_all(by, by.residual())
    collector = by.ready(7)
    first = by.masked("lab", collector, question)
    assert (by.masked("lab", collector, question).values == first.values).all()
    with refused("order", "cannot reply in sum 7 now, or not again"):
        by.masked("lab", collector, question, round=2)


def test_invented_members_do_not_count(made: Callable[..., ByHand]) -> None:
    by = made()
    lab = by.members["lab"]
    unknown = Invited(name="unknown", fingerprint=identity("unknown").fingerprint)
    own = identity("lab").fingerprint
    invented = by.terms.model_copy(update={"organizations": (*by.terms.organizations[:3], unknown)})
    with refused("circle", r"unknown \(sha256:.*of whom no card is here: the label holder could have"):
        check_members(invented, lab.cards, own)
    second = Invited(name="second", fingerprint=identity(HOLDER).fingerprint)
    with refused("circle", "second"):
        check_members(
            by.terms.model_copy(update={"organizations": (*by.terms.organizations, second)}), lab.cards, own
        )
    check_members(by.terms, lab.cards, own)
    lab.cards.remove("bank")
    with refused("circle", r"bank \(sha256:"):
        by.keys("lab", 9)


def test_an_organization_is_in_one_group_of_a_label_holder(made: Callable[..., ByHand]) -> None:
    """Sums of two groups that differ in one member would show that member's reply."""
    by = made()
    by.keys("lab", 7)
    fewer = by.terms.model_copy(
        update={"task": PLAIN_TASK, "name": "other", "organizations": by.terms.organizations[:3]}
    )
    by.join("lab", TaskTerms.model_validate(fewer.model_dump()))
    keys = Message("keys", PLAIN_TASK, 1, "keys", {"circle": aggregation_group(fewer).digest, "numbers": [8]})
    with refused("circle", "has joined another aggregation group of this label holder"):
        by.members["lab"].answer(keys)
    with refused("circle", "agreed to another aggregation group"):
        by.members["lab"].answer(replace(keys, task=TASK))


def test_after_a_restore_earlier_sums_are_refused(
    made: Callable[..., ByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    by = made()
    restore = SimpleNamespace(refusal=lambda *_: "was brought back from a backup")
    monkeypatch.setattr(State, "restored", lambda _: restore)
    with refused("restored", "lab was brought back from a backup"):
        by.keys("lab", 7)


# The request of one sum is the same for all members


def only_one_adds_anything(by: ByHand) -> Message:
    """The lab fits a residual, the others one number for all rows, which is what they say then."""
    residual = by.residual()
    values = residual.arrays["residual"]
    same = replace(residual, arrays={"residual": np.full_like(values, np.abs(values).max())})
    for name in NAMES:
        by.members[name].answer(residual if name == "lab" else same)
    return by.total(IDS[:6])


def only_one_has_the_round(by: ByHand) -> Message:
    """The lab alone is asked to fit the second round, and the first one does not count."""
    asked_all(by, by.residual())
    by.members["lab"].answer(by.residual(round=2, size=0.25))
    return by.total(IDS[:6], rates=(0.0, 1.0))


def only_one_fits_other_rows(by: ByHand) -> Message:
    """The same residual, for the lab of other rows: from another version the sum differs in its answer."""
    for name in NAMES:
        by.begin(name, version=2, fit=np.arange(N) < N - 5 if name == "lab" else np.arange(N) >= 5)
        residual = by.residual(rows=N, version=2)
        by.members[name].answer(replace(residual, arrays={"residual": residual.arrays["residual"][5:]}))
    return by.total(IDS[:6], version=2)


@pytest.mark.parametrize(
    "learned", [only_one_adds_anything, only_one_has_the_round, only_one_fits_other_rows]
)
def test_models_of_other_residuals_are_not_added_up(
    made: Callable[..., ByHand], learned: Callable[[ByHand], Message]
) -> None:
    """No sum was opened in learning. In prediction all are asked the same, and the sum would be the lab's."""
    by = made()
    question = asked_all(by, learned(by))
    collector = by.ready(7)
    collector.take_masked(by.masked("lab", collector, question, np.ones(6)))
    for name in NAMES:
        if name != "lab":
            with refused("content", "nothing was sent"):
                by.masked(name, collector, question, np.ones(6))


@pytest.mark.parametrize("other", [{"seed": 1}, {"fit": np.arange(N) < N - 5}, {"rounds": 2}])
def test_fits_of_versions_that_began_otherwise_are_not_added_up(
    made: Callable[..., ByHand], other: dict[str, Any]
) -> None:
    """With the same residual twice, and another seed or other rows for the lab, sums differ in its answer."""
    by = made()
    same: dict[str, Any] = {"fit": np.arange(N) >= 5, "version": 2}
    question = by.residual(version=2)
    question = replace(question, arrays={"residual": question.arrays["residual"][5:]})
    for name in NAMES:
        by.begin(name, **(same | other if name == "lab" else same))
        by.members[name].answer(question)
    collector = by.ready(7)
    for name in LATER[:2]:
        by.masked(name, collector, question, shape=[N, 1])
    with refused("content", "than the request to lab"):
        by.masked("lab", collector, question, shape=[N, 1])


def test_of_one_residual_there_is_one_sum_however_it_is_fitted(made: Callable[..., ByHand]) -> None:
    """All begin a new version with another seed: linear models answer the same, and the shop is gone."""
    by = made(drop_outs=1)
    all_answer(by, 7, asked_all(by, by.residual()))
    for name in NAMES:
        by.open(name, 7, NAMES)
    for name in LATER:
        by.begin(name, version=2, seed=1)
    question = asked_all(by, by.residual(version=2), LATER)
    with refused("content", "has helped to open a sum of the same for bank insurer lab shop"):
        by.masked("lab", by.ready(8, LATER), question)


def test_answers_follow_from_the_name_in_the_terms(made: Callable[..., ByHand]) -> None:
    by = made()
    with refused("other-terms", "lab is 'lab' in the terms of 'risk', and the request names it 'lab-2'"):
        by.begin("lab", version=2, organization="lab-2")


def test_models_that_move_do_not_answer_in_sums(
    made: Callable[..., ByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they say of a residual depends on earlier ones, which others may not have been told."""
    by = made()
    monkeypatch.setattr(by.members["lab"].service, "moves", lambda: True)
    with refused("sums-only", "the local model of lab is stateful"):
        by.members["lab"].answer(by.residual())


def test_the_size_of_a_reply_is_not_disclosed(made: Callable[..., ByHand]) -> None:
    """Residuals at the limit of the units: with other rates a label holder could search for the largest
    value of each row and each organization.
    """
    by = made()
    asked_all(by, by.residual(size=2.0**26))
    question = asked_all(by, by.total(IDS[:6], rates=(1.0,)))
    collector = by.ready(7)
    for name in NAMES:
        collector.take_masked(by.masked(name, collector, question, np.ones(6)))
    for name in NAMES:
        collector.take_opening(by.open(name, 7, NAMES))
    expected = sum(by.fitted(name)[:6].astype(np.float64) for name in NAMES)
    assert np.abs(expected).max() > 2.0**15 / len(NAMES), "the test asks for what could not be written"
    assert np.abs(collector.total() - expected).max() < EXACT * 2.0**26


def predicted(by: ByHand, number: int, question: Message) -> Any:
    """The sum of all for all rows of a question."""
    asked_all(by, question)
    n = len(question.arrays["integers"])
    collector = by.ready(number)
    for name in NAMES:
        collector.take_masked(by.masked(name, collector, question, np.ones(n)))
    for name in NAMES:
        collector.take_opening(by.open(name, number, NAMES))
    return collector.total()


def test_repeated_requests_are_rounded_once(made: Callable[..., ByHand]) -> None:
    """For a row in another batch, for a residual and after a restart: the mean of several roundings
    would disclose the exact value.
    """
    by = made()
    fitted = asked_all(by, by.residual())
    rows = predicted(by, 7, by.total(IDS[:6]))
    residual = all_opened(by, 8, fitted)
    exact = np.sum([0.5 * by.fitted(name).astype(np.float64) for name in NAMES], axis=0)
    assert np.abs(rows - exact[:6]).min() > 0
    assert np.abs(rows - exact[:6]).max() < EXACT / 2, "0.5 is the unit"
    for name in NAMES:
        by.members[name].stop()
        by.members[name].start()
    assert (predicted(by, 9, by.total(IDS[3:9], name="total 2"))[:3] == rows[3:]).all()
    assert (all_opened(by, 10, asked_all(by, fitted)) == residual).all()


def all_opened(by: ByHand, number: int, question: Message) -> Any:
    """The sum of all."""
    collector = all_answer(by, number, question)
    for name in NAMES:
        collector.take_opening(by.open(name, number, NAMES))
    return collector.total()


def test_the_rounds_of_a_version_are_added_up_with_one_choice_of_rates(made: Callable[..., ByHand]) -> None:
    """Many rates that hardly differ would give many roundings of the same replies."""
    by = made()
    asked_all(by, by.residual())
    asked_all(by, by.total(IDS[:6]))
    by.members["lab"].stop()
    by.members["lab"].start()
    for rates in ((0.5 + 2.0**-40,), (0.25,), (1e308,)):
        with refused("content", "lab has added up the rounds of version 1 with other rates"):
            by.members["lab"].answer(by.total(IDS[6:9], rates, name="total 2"))
    by.members["lab"].answer(by.total(IDS[6:9], name="total 2"))


def test_one_request_is_one_choice_of_rows(made: Callable[..., ByHand]) -> None:
    """A request is charged once: other rows in every sum would be free of charge."""
    by = made()
    asked_all(by, by.residual())
    question = asked_all(by, by.total(IDS[:6]))
    chosen, other = np.array([1, 1, 1, 0, 0, 0]), np.array([1, 0, 0, 0, 0, 0])
    by.masked("lab", by.ready(7), question, chosen)
    with refused("other-rows", "lab has added up other rows of this request"):
        by.masked("lab", by.ready(8), question, other)
    by.masked("lab", by.ready(9), question, chosen)
    by.members["lab"].stop()
    by.members["lab"].start()
    by.members["lab"].answer(question)
    with refused("other-rows", "lab has added up other rows of this request"):
        by.masked("lab", by.ready(10), question, other)
    asked_all(by, again := by.total(IDS[:1], name="total 2"))
    assert by.masked("lab", by.ready(11), again, np.ones(1)).values.shape == (1, 1)


@pytest.mark.parametrize("drop_outs", [0, 1])
def test_rows_keep_their_names_where_members_may_drop_out(
    made: Callable[..., ByHand], drop_outs: int
) -> None:
    """A second task of the same group could open a row under another name without one member."""
    by = made(drop_outs=drop_outs)
    by.keys("lab", 7)
    hashed = by.terms.model_copy(update={"task": PLAIN_TASK, "name": "other", "alignment": "hashed"})
    by.join("lab", hashed)
    keys = Message("keys", PLAIN_TASK, 1, "keys", {"circle": by.group.digest, "numbers": [8]})
    if not drop_outs:
        assert by.members["lab"].answer(keys).kind == "offers"
        return
    with refused("circle", "names rows to lab by plain ids where members may drop out, and not by hashed"):
        by.members["lab"].answer(keys)
    by.keys("lab", 9)
