"""What crossed residuals tell of the label holder's columns: measured where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from gal.core.requests import FitRequest
from gal.core.rows import Rows, all_rows, with_probes
from gal.evaluate.rehearsal import canary_leak
from gal.privacy.leakage import SignLeak, Transcript, measure_signs, recovered_signs

N = 4000


def roles(n: int = N) -> Rows:
    """All rows are fitted, and probes are about all of them."""
    return with_probes(all_rows(n), np.random.default_rng(0))


def heard(columns: Any, *signs: Any, sampled: bool = False) -> Transcript:
    """A transcript of one round, and of probes with these sign bits for Bob."""
    residual = np.random.default_rng(1).normal(size=(len(columns), 2)).astype(np.float32)
    rows = np.arange(0, len(columns), 2) if sampled else None
    transcript = Transcript(roles=roles(len(columns)), rows=rows)
    transcript([FitRequest(1, residual, ("alice", "bob"))], [{}])
    transcript([FitRequest(2, residual, ("alice", "bob"), target="random")], [{}])
    for number, sign in enumerate(signs):
        probe = residual * sign[:, None].astype(np.float32)
        transcript([FitRequest(3 + number, probe, ("bob",), target="probe")], [{}])
    return transcript


def read(columns: Any, *signs: Any) -> SignLeak:
    """What Bob reads of Alice's columns."""
    return measure_signs(heard(columns, *signs), "bob", {"alice": columns}, roles())


def test_a_sign_is_read_and_tells_of_a_normal_column_what_it_must() -> None:
    columns = np.random.default_rng(0).normal(size=(N, 2))
    sign = np.sign(columns[:, 0])
    transcript = heard(columns, sign)
    np.testing.assert_array_equal(recovered_signs(transcript, "bob", roles())[:, 0], sign)
    leak = measure_signs(transcript, "bob", {"alice": columns}, roles())
    assert (leak.vectors, leak.organization) == (1, "bob")
    assert leak.bits == pytest.approx(1, abs=0.01)
    assert leak.columns[0].told == pytest.approx(2 / np.pi, abs=0.03)  # E[|x|]^2 of a standard normal x
    assert leak.columns[1].told < 0.02


def test_more_signs_tell_more_and_turned_ones_less() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(N, 1))
    signs = [np.where(columns[:, 0] > edge, 1, -1) for edge in (-1, 0, 1)]
    one, three = (read(columns, *some) for some in (signs[1:2], signs))
    assert three.columns[0].told > one.columns[0].told + 0.1
    assert one.bits < three.bits < 2
    turned = [np.where(rng.random(N) < 0.25, -sign, sign) for sign in signs]
    assert read(columns, *turned).columns[0].told < one.columns[0].told
    hidden = [np.where(rng.random(N) < 0.5, -sign, sign) for sign in signs]
    assert read(columns, *hidden).columns[0].told < 0.02


def test_who_received_none_reads_none_and_a_sample_is_read_as_well() -> None:
    columns = np.random.default_rng(0).normal(size=(N, 1))
    transcript = heard(columns, np.sign(columns[:, 0]), sampled=True)
    assert measure_signs(transcript, "carol", {"alice": columns}, roles()).vectors == 0
    assert measure_signs(transcript, "bob", {"alice": columns}, roles()).columns[0].told > 0.5
    assert set(transcript.messages) == {(1, None)}  # what is attacked for labels are the residuals of rounds


def test_columns_of_every_other_organization_count() -> None:
    """A sign may be another organization's two-valued column, in every row."""
    rng = np.random.default_rng(0)
    views = {name: rng.normal(size=(N, 1)) for name in ("alice", "bob", "carol")}
    views["carol"] = np.sign(views["carol"])
    leak = measure_signs(heard(views["alice"], views["carol"][:, 0]), "bob", views, roles())
    assert [one.organization for one in leak.columns] == ["alice", "carol"]
    assert leak.most.organization == "carol"
    assert leak.most.told > 0.99
    assert leak.columns[0].told < 0.02
    assert "100 % of '0' of carol" in leak.sentence()


def test_a_rehearsal_says_what_signs_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.engine.task_making.LARGE", 900)  # so many rows are many
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1000, 4)), columns=["age", "town", "usage", "calls"])
    X["town"] = np.where(X["town"] > 0, "Bern", "Basel")
    y = (X["age"] * X["usage"] > 0).astype(int)
    parts = {"bank": ["age", "town"], "telecom": ["usage", "calls"]}
    models = HistGradientBoostingRegressor(max_iter=5)
    options: dict[str, Any] = {"rounds": 2, "closing": False, "local_models": {"telecom": models}}
    crossed, plain = (
        canary_leak(X, y.to_numpy(), parts, classes=[0, 1], interactions=signs, **options)
        for signs in (4, False)
    )
    (told,) = crossed.signs
    assert (told.organization, plain.signs) == ("telecom", ())
    assert [(one.organization, one.column) for one in told.columns] == [("bank", "age"), ("bank", "town")]
    assert 0 < told.bits <= told.vectors <= 4
    assert told.most.told > 0.2
    assert told.sentence() in crossed.verdict()
    assert f"{told.most.told:.0%}".replace("%", " %") in told.sentence()
    assert crossed.to_json()["signs"][0]["bits"] == told.bits
    assert "probes" not in plain.verdict()
