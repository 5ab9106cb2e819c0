"""What a task from sums would tell: ``gal leakage --secure-aggregation sums`` and the functions behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from gal.assembling import grouped
from gal.evaluate.rehearsal import Rehearsal, rehearse

pytest.importorskip("cryptography", reason="cryptography is not installed: the extra node")
pytestmark = pytest.mark.usefixtures("weak_attackers")

PARTS = {"clinic": ["a"], "lab": ["b"], "shop": ["c"], "ward": ["d"]}
OTHERS = ("lab", "shop", "ward")
QUICK: dict[str, Any] = {"local_models": Ridge(), "rounds": 2, "cross_validation": 0}


def table(n: int = 160) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    return X, (X.sum(axis=1) + 0.3 * rng.normal(size=n)).to_numpy()


@pytest.fixture(scope="module")
def both(weak_attackers: None) -> tuple[Rehearsal, Rehearsal]:
    """With sums, and with single replies."""
    X, y = table()
    return (
        rehearse(X, y, PARTS, secure_aggregation="sums", **grouped(QUICK))[0],
        rehearse(X, y, PARTS, **grouped(QUICK))[0],
    )


def test_a_sum_discloses_less_than_single_replies(both: tuple[Rehearsal, Rehearsal]) -> None:
    summed, single = both
    found = [
        {one.organization: one.with_messages.value for one in each.leak.reconstructions} for each in both
    ]
    assert set(found[0]) == set(found[1]) == set(OTHERS)
    assert min(found[1].values()) > 0.99  # a ridge on one column discloses that column
    assert max(found[0].values()) < 0.9
    assert summed.leak.summed
    assert not single.leak.summed
    assert "sums of replies reveal most" in summed.leak.verdict()
    assert "sums of" not in single.leak.verdict()
