"""Ids that were forgotten are known at once, though their file is read only when it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gal.errors import NodeError
from gal.node.store import forgotten
from gal.node.store.forgotten import FILE, forget_ids, forgotten_now


def test_each_one_that_is_forgotten_counts_from_then_on(tmp_path: Path) -> None:
    assert forgotten_now(tmp_path).among([7, "8"]).tolist() == [False, False]
    forget_ids(tmp_path, [7])
    assert forgotten_now(tmp_path).among([7, "8"]).tolist() == [True, False]
    forget_ids(tmp_path, ["8"])
    assert forgotten_now(tmp_path).among([7, "8"]).tolist() == [True, True]


def test_the_file_is_read_once_while_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_ids(tmp_path, [7])
    forgotten_now(tmp_path)
    monkeypatch.setattr(forgotten, "read_forgotten", lambda home: pytest.fail(f"{home} was read again"))
    assert forgotten_now(tmp_path).among([7]).tolist() == [True]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    forget_ids(tmp_path, [7])
    forgotten_now(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(NodeError, match="says which rows were forgotten"):
        forgotten_now(tmp_path)
