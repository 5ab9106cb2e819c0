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
from gal.node.holder.labels.judges import with_unsent_judges
from gal.node.holder.labels.labelled_tasks import LabelledRows
from gal.node.journal.sent_rows import FILE, RowsSent
from gal.protocol import Message
from hostile import assisting, network


def roles_of(n: int, seed: int, groups: Any) -> Rows:
    rng = np.random.default_rng(seed)
    return assign_rows(n, rng, fitted="held-out", validation_fraction=0.2, groups=groups)


@given(
    n=st.integers(30, 80), seed=st.integers(0, 99), share=st.floats(0, 1), classes=st.sampled_from([0, 2, 3])
)
def test_judges_were_not_sent_and_roles_stay(n: int, seed: int, share: float, classes: int) -> None:
    rng = np.random.default_rng(seed)
    y: Any = rng.integers(0, classes, n) if classes else rng.normal(size=n)
    rows, groups = LabelledRows(RowIds("integer", np.arange(n)), y, 3), y if classes else None
    roles, sent = roles_of(n, seed, groups), rng.random(n) < share
    moved, n_sent = with_unsent_judges(rows, roles, sent, groups, seed)
    ids = moved.ids.values
    assert sorted(ids) == list(range(n))  # the same rows, each with its label
    assert np.array_equal(moved.y, y[ids])
    if groups is not None:
        assert np.array_equal(moved.y, y)  # so that the same roles are drawn again:
    again = roles_of(n, seed, moved.y if classes else None)
    assert np.array_equal(again.fit, roles.fit)
    judging = np.flatnonzero(~roles.is_fit)
    assert n_sent == sent[ids][judging].sum()
    for code in np.unique(y) if classes else [None]:
        here = judging if code is None else judging[y[judging] == code]
        fitted = roles.fit if code is None else roles.fit[y[roles.fit] == code]
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


@pytest.mark.parametrize("kind", ["integer", "text"])
def test_what_was_sent_is_known_by_digests_until_it_is_forgotten(tmp_path: Path, kind: str) -> None:
    names = [7_300_001_000 + number for number in range(200)]
    ids = np.array(names) if kind == "integer" else np.array([f"row {one}" for one in names], dtype=object)
    sent = RowsSent(tmp_path)
    assert not sent.among(ids).any()
    sent.add(ids[:100])
    sent.add(ids[50:120])
    assert RowsSent(tmp_path).among(ids).tolist() == [True] * 120 + [False] * 80
    assert len(RowsSent(tmp_path)) == 120
    assert RowsSent(tmp_path).forget([str(ids[3]), "nobody"]) == 1
    assert RowsSent(tmp_path).forget([str(ids[3])]) == 0
    assert RowsSent(tmp_path).among(ids[:5]).tolist() == [True, True, True, False, True]
    assert b"7300001" not in (tmp_path / FILE).read_bytes()


def test_who_remembers_residuals_is_not_judged_by_them_in_a_later_version(tmp_path: Path) -> None:
    """With a few rows more, other places are drawn: rows that were sent in the first version would judge."""
    with network(tmp_path) as net:
        terms = net.invite("again", net.lab, net.mallory, fitted="held-out", validation_fraction=0.2)
        fitted: dict[int, set[int]] = {}
        named: dict[int, set[int]] = {}

        def remember(request: Message, answer: Message) -> list[Message]:
            if request.kind == "begin":
                ids = request.arrays["integers"]
                named[request.version] = set(ids.tolist())
                fitted[request.version] = set(ids[request.arrays["fit"] == 1].tolist())
            return [answer]

        with assisting(net, terms, remember):
            for version, n_rows in enumerate((50, 56, 60), 1):
                net.data["clinic"][:n_rows].to_csv(net.clinic.home / "rows.csv", index=False)
                net.learn("again")
                judging = named[version] - fitted[version]
                assert len(judging) >= n_rows // 4
                assert not judging & set().union(*(fitted[one] for one in range(1, version)))
