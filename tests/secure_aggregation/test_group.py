"""An honest group: sums are right, with drop-outs at each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal.errors import InvalidMessageError, InvalidReplyError, RefusedError
from gal.secure_aggregation.masking import split_secret
from gal.secure_aggregation.messages import Masked
from small_groups import EXACT, NAMES, Round, answers, group_of, member_of


def started(drop_outs: int = 0, names: tuple[str, ...] = NAMES) -> Round:
    group = group_of(names, drop_outs)
    return Round(group, {name: member_of(group, name) for name in names})


@pytest.mark.parametrize("gone", NAMES)
def test_one_drops_out_before_it_answers(gone: str) -> None:
    one, said = started(drop_outs=1).keys(), answers()
    del said[gone]
    one.ask(said)
    assert np.abs(one.open() - sum(said.values())).max() <= EXACT


def test_one_drops_out_while_the_sum_is_opened() -> None:
    one, said = started(drop_outs=1).keys(), answers()
    one.ask(said)
    assert np.abs(one.open(NAMES[1:]) - sum(said.values())).max() <= EXACT
    assert len(NAMES[1:]) == one.group.threshold
    other = started(drop_outs=1).keys()
    other.ask(said)
    with pytest.raises(RefusedError, match="2 members have helped to open it, 3 are needed"):
        other.open(NAMES[2:])


def test_masked_values_are_uniform() -> None:
    """A masked value is uniform on the ring, and discloses nothing of the value."""
    one = started().keys()
    same = {name: np.ones((4000, 1)) for name in NAMES}
    asked = one.collector.ask("a residual", (4000, 1), 1.0)
    for name, said in same.items():
        masked = one.members[name].answer(
            asked, one.collector.boxes_for(name), said, content="a residual", unit=1.0
        )
        counts = np.bincount((masked.values >> np.uint32(29)).astype(int).ravel(), minlength=8)
        assert (np.abs(counts - 500) < 5 * np.sqrt(500)).all()


@pytest.mark.parametrize("secret", ["seeds", "keys"])
def test_shares_of_another_secret_than_promised_are_noticed(secret: str) -> None:
    """They fit each other, and would give a sum that is not the sum."""
    one, said = started(drop_outs=1).keys(), answers()
    if secret == "keys":
        del said["bank"]
    one.ask(said)
    there = one.collector.survivors()
    others = split_secret(b"x" * 32, one.group.threshold, len(NAMES))
    for name in there:
        opening = one.members[name].open(1, there)
        changed: Any = {secret: {**getattr(opening, secret), "bank": others[one.group.place(name) - 1]}}
        one.collector.take_opening(replace(opening, **changed))
    with pytest.raises(InvalidMessageError, match="a secret of 'bank' do not fit what it promised"):
        one.collector.total()


def test_an_opening_of_something_else_is_not_taken() -> None:
    one, said = started(drop_outs=1).keys(), answers()
    one.ask(said, arriving=NAMES[1:])
    there = one.collector.survivors()
    right = one.members["lab"].open(1, there)
    for wrong in (
        replace(right, number=2),
        replace(right, name="bank"),
        replace(right, keys={}),
        replace(right, seeds=dict.fromkeys(NAMES, b"")),
    ):
        with pytest.raises(InvalidReplyError, match="opened something else than sum 1"):
            one.collector.take_opening(wrong)
    one.collector.take_opening(right)


def test_answers_of_another_shape_or_twice_are_not_added() -> None:
    one, said = started().keys(), answers()
    one.collector.ask("a residual", (20, 2), 1.0)
    with pytest.raises(InvalidReplyError, match="lab replied with uint32 of shape"):
        one.collector.take_masked(Masked("lab", 1, np.zeros((3, 2), dtype=np.uint32)))
    one.ask(said)
    with pytest.raises(RefusedError, match="an answer of 'lab' was not expected"):
        one.collector.take_masked(Masked("lab", 1, np.zeros((20, 2), dtype=np.uint32)))
