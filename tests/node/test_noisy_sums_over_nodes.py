"""Distributed noise on sums over nodes: in the terms, in every sum, in every organization's ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")

from gal.errors import GALError, RefusedError
from gal.node.admin.membership import read_terms
from gal.node.assistant.answer_guard import SUBJECT
from gal.privacy.accounting import noise_multiplier
from gal.privacy.ledger import row_keys
from gal.secure_aggregation.masking import noise_share
from patience import patient
from small_network import QUICKLY, ROW_ID, Network, exact, numbers, running

NAMES = ("clinic", "lab", "ward", "bank")
OPTIONS: dict[str, Any] = {"rounds": 3, "cross_validation": 0, "validation_fraction": 0.0}
NOISE: dict[str, Any] = {"sums_epsilon": 50.0, "sums_delta": 1e-5, "clip": 3.0}
DELTA = 1e-5


def test_every_sum_has_noise_and_is_charged_by_every_organization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = list[tuple[float, ...]]()

    def counted(shape: tuple[int, ...], *facts: float) -> Any:
        shares.append(facts)
        return noise_share(shape, *facts)  # type: ignore[arg-type]

    monkeypatch.setattr("gal.secure_aggregation.member.noise_share", counted)
    with running(Network(tmp_path, numbers(120, organizations=NAMES))) as network:
        record = network.invite("risk", secure_aggregation="sums", **NOISE, **OPTIONS)
        multiplier = noise_multiplier(50.0, DELTA, 3)
        assert record.terms.noise is not None
        assert record.terms.noise.multiplier == multiplier
        [sentence] = [one for one in record.terms.sentences() if "discrete Gaussian noise" in one]
        assert "The 3 sums about a row in one learning cost epsilon 50 at delta 1e-05" in sentence
        network.learn("risk")
        assert exact(network.ensemble(record)) != exact(
            network.in_process(secure_aggregation="sums", **OPTIONS)[0]
        )
        assert set(shares) == {(multiplier, 3.0, 3)}
        assert len(shares) == 3 * 3, "of three organizations in three rounds"
        table = network.tables["clinic"][[ROW_ID]].head(9)
        table.to_csv(tmp_path / "new.csv", index=False)
        found = [network.holder.predict_file("risk", tmp_path / "new.csv")["rows"] for _ in range(2)]
        assert len(shares) == 3 * 5
        first, second = ([row["prediction"] for row in one] for one in found)
        assert np.all(np.not_equal(first, second)), "each prediction draws anew"
        predicted, rest = (
            row_keys(one) for one in np.split(network.tables["clinic"][ROW_ID].to_numpy(), [9])
        )
        for name in NAMES[1:]:
            ledger = network.nodes[name].ledger
            assert ledger.spent(SUBJECT, DELTA, rows=rest) == pytest.approx(50.0, rel=1e-3)
            assert ledger.spent(SUBJECT, DELTA, rows=predicted) > 60.0
            assert {one.event.mechanism for one in ledger.entries()} == {"discrete-gaussian"}


def test_a_budget_caps_the_sums_without_noise_of_its_own(tmp_path: Path) -> None:
    """Two learnings of epsilon 50 go beyond a budget of 65: the ledger refuses within the second."""
    budget = "[privacy]\nanswer_budget_epsilon = 65.0\nanswer_budget_delta = 1e-5\n"
    with running(Network(tmp_path, numbers(120, organizations=NAMES), more={"lab": budget})) as network:
        network.invite("risk", secure_aggregation="sums", **NOISE, **OPTIONS)
        network.learn("risk")
        lab = network.nodes["lab"]
        assert lab.ledger.spent(SUBJECT, DELTA) == pytest.approx(50.0, rel=1e-3)
        network.wait_until_joined(network.invite("next", secure_aggregation="sums", **NOISE, **OPTIONS))
        patience = replace(QUICKLY, join=0.3, deadline=patient(3.0))
        with pytest.raises(GALError, match="lab has spent its privacy budget for some of these rows"):
            network.learn("next", patience=patience)
        assert 51.0 < lab.ledger.spent(SUBJECT, DELTA) <= 65.0
        network.wait_until_joined(network.invite("plain", secure_aggregation="sums", **OPTIONS))
        with pytest.raises(GALError, match="'plain' would have no noise: open a task with noise on sums"):
            network.learn("plain", patience=patience)
        with pytest.raises(RefusedError, match="'plain' would have no noise") as refused:
            read_terms(network.root / "lab", network.root / "clinic-plain.invitation")
        assert refused.value.code == "no-noise"
        assert read_terms(network.root / "lab", network.root / "clinic-next.invitation")[1] == "clinic"


def test_terms_without_noise_are_as_they_were_and_noise_is_for_sums_only(tmp_path: Path) -> None:
    with running(Network(tmp_path, numbers(60, organizations=NAMES))) as network:
        terms = network.invite("risk", secure_aggregation="sums", **OPTIONS).terms
        assert b"noise" not in terms.canonical()
        noisy = network.invite("other", secure_aggregation="sums", **NOISE, **OPTIONS).terms
        assert noisy.digest != noisy.model_copy(update={"noise": None}).digest
        with pytest.raises(ValidationError, match="noise is for sums"):
            type(noisy)(**noisy.model_dump() | {"secure_aggregation": "none"})
