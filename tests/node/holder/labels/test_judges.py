"""Which rows judge a version after others: none that was sent before, as far as there are others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")

from gal.alignment import RowIds
from gal.core.rows import Rows, assign_rows
from gal.errors import NodeError
from gal.node.holder.labels.labelled_tasks import LabelledRows, with_unsent_judges
from gal.node.store.row_index import HEADER, SENT, forget_sent, sent_rows
from gal.protocol import Message
from hostile import assisting, network


def roles_of(n: int, seed: int, groups: Any, n_parts: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    if n_parts:
        return assign_rows(n, rng, n_parts=n_parts, groups=groups)
    return assign_rows(n, rng, fitted="held-out", validation_fraction=0.2, groups=groups)


@given(
    n=st.integers(30, 80),
    seed=st.integers(0, 99),
    share=st.floats(0, 1),
    classes=st.sampled_from([0, 2, 3]),
    parts=st.sampled_from([0, 4]),
)
def test_judges_were_not_sent_and_roles_stay(
    n: int, seed: int, share: float, classes: int, parts: int
) -> None:
    rng = np.random.default_rng(seed)
    y: Any = rng.integers(0, classes, n) if classes else rng.normal(size=n)
    rows, groups = LabelledRows(RowIds("integer", np.arange(n)), y, 3), y if classes else None
    roles, sent = roles_of(n, seed, groups, parts), rng.random(n) < share
    moved, n_sent = with_unsent_judges(rows, roles, sent, groups, seed)
    ids = moved.ids.values
    assert sorted(ids) == list(range(n))  # the same rows, each with its label
    assert np.array_equal(moved.y, y[ids])
    if groups is not None:
        assert np.array_equal(moved.y, y)  # so that the same roles are drawn again:
    again = roles_of(n, seed, moved.y if classes else None, parts)
    assert np.array_equal(again.judging, roles.judging)
    assert roles.judging.any()
    assert n_sent == sent[ids][roles.judging].sum()
    if parts:  # the part that is learned first has to be like the others
        assert np.array_equal(ids, np.arange(n))
        return
    judging, others = np.flatnonzero(roles.judging), np.flatnonzero(~roles.judging)
    for code in np.unique(y) if classes else [None]:
        here = judging if code is None else judging[y[judging] == code]
        fitted = others if code is None else others[y[others] == code]
        assert not sent[ids][here].any() or sent[ids][fitted].all()  # unless all others were sent, too
    kept = ids[judging] == judging
    assert kept[~sent[judging]].all()  # who may judge stays


def test_validation_rows_come_first_where_too_few_were_not_sent() -> None:
    roles = roles_of(50, 0, None)
    sent = np.ones(50, dtype=np.bool_)
    sent[roles.fit[:10]] = False
    rows = LabelledRows(RowIds("integer", np.arange(50)), np.zeros(50), 0)
    moved, n_sent = with_unsent_judges(rows, roles, sent, None, 0)
    assert set(moved.ids.values[roles.validation]) == set(roles.fit[:10])
    assert n_sent == len(roles.search)


@pytest.mark.parametrize("harm", ["empty", "shorter", "a byte more", "another byte", "a full disk"])
def test_a_file_that_is_not_what_was_written_is_an_error_and_never_a_row_that_may_judge(
    tmp_path: Path, harm: str
) -> None:
    sent = sent_rows(tmp_path, "cost")
    sent.add(np.arange(1000))
    [path] = (tmp_path / SENT).iterdir()
    whole = path.read_bytes()
    place = len(whole) // 2
    harmed = {
        "empty": b"",
        "shorter": whole[: HEADER + 8 * 999],
        "a byte more": whole + b"\0",
        "another byte": whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
        "a full disk": whole[:place] + bytes(len(whole) - place),
    }[harm]
    path.write_bytes(harmed)
    with pytest.raises(NodeError, match="is not what was written: which rows are in it is not known"):
        sent_rows(tmp_path, "cost")
    assert forget_sent(tmp_path, ["3"]) == 1  # nothing of any row stays in it
    assert path.read_bytes() == b""
    with pytest.raises(NodeError):
        sent_rows(tmp_path, "cost")


class Remembered:
    """Which rows a partner was told of, and which of them it was to fit, by task and version."""

    def __init__(self) -> None:
        self.named: dict[tuple[str, int], set[int]] = {}
        self.fitted: dict[tuple[str, int], set[int]] = {}

    def __call__(self, request: Message, answer: Message) -> list[Message]:
        if request.kind == "begin":
            ids, one = request.arrays["integers"], (request.task, request.version)
            self.named[one] = set(ids.tolist())
            self.fitted[one] = set(ids[request.arrays["fit"] == 1].tolist())
        return [answer]

    def judging(self) -> tuple[set[int], set[int]]:
        """The rows that judge in the last version, and those that were sent before it."""
        *before, last = self.named
        return self.named[last] - self.fitted[last], set().union(*(self.fitted[one] for one in before))


def learn_from(net: Any, task: str, n_rows: int) -> None:
    net.data["clinic"][:n_rows].to_csv(net.clinic.home / "rows.csv", index=False)
    net.learn(task)


JUDGED: dict[str, Any] = {"fitted": "held-out", "validation_fraction": 0.2}


def test_who_remembers_residuals_is_not_judged_by_them_in_a_later_version(tmp_path: Path) -> None:
    """With a few rows more, other places are drawn: rows that were sent in the first version would judge."""
    with network(tmp_path) as net:
        terms, remembered = net.invite("again", net.lab, net.mallory, **JUDGED), Remembered()
        with assisting(net, terms, remembered):
            for n_rows in (50, 56, 60):
                learn_from(net, "again", n_rows)
                judging, sent = remembered.judging()
                assert len(judging) >= n_rows // 4
                assert not judging & sent
