"""Rows that were forgotten are known again by their digests, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gal.errors import NodeError
from gal.node.store.row_index import FORGOTTEN, forgotten_rows


def test_numbers_and_their_texts_are_the_same(tmp_path: Path) -> None:
    assert forgotten_rows(tmp_path).among([7, "8"]).tolist() == [False, False]
    forgotten_rows(tmp_path).add(["7"])
    for ids in ([7, "8"], np.array([7, 8]), np.array(["7", "8"], dtype=object)):
        assert forgotten_rows(tmp_path).among(ids).tolist() == [True, False]
    forgotten_rows(tmp_path).add(["8", "8"])
    assert forgotten_rows(tmp_path).among([7, "8"]).tolist() == [True, True]
    assert len(forgotten_rows(tmp_path)) == 2


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FORGOTTEN).write_bytes(b"damaged")
    with pytest.raises(NodeError, match="is damaged"):
        forgotten_rows(tmp_path)
