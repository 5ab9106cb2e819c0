"""The newest version that both speak is chosen; where there is none, a sentence says who upgrades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.errors import RefusedError
from gal.protocol import VERSIONS, choose, versions


@given(st.lists(st.integers(1, 1_000_000), max_size=16))
def test_the_newest_common_one_or_a_refusal(theirs: list[int]) -> None:
    if set(theirs) & set(VERSIONS):
        assert choose(theirs, "bank") == max(set(theirs) & set(VERSIONS))
        return
    with pytest.raises(RefusedError, match="upgrade gal-learn at") as refused:
        choose(theirs, "bank", "clinic")
    assert refused.value.code == "unknown-version"


def test_the_order_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "VERSIONS", (2, 3, 4))
    assert choose([1, 3, 2], "bank") == choose([2, 3, 1], "bank") == 3


def test_who_is_older_is_told_to_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "VERSIONS", (5, 6))
    for theirs, who in (([1, 2], "bank"), ([7, 8], "clinic"), ([], "bank")):
        with pytest.raises(RefusedError, match=f"upgrade gal-learn at {who}"):
            choose(theirs, "bank", "clinic")
