"""Prediction over nodes: files with and without own columns, and everybody who may not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from gal.cli.learning import _sentences
from gal.core.missing import expected_loss
from gal.errors import GALError, InvalidInputError
from gal.node.label_holder import predicting as batches
from small_network import LABEL, ROW_ID, Network, numbers, running, view_by_hand

OPTIONS: dict[str, Any] = {"rounds": 2, "cross_validation": 0, "validation_fraction": 0.0}


def tables() -> dict[str, pd.DataFrame]:
    """Numbers, and a column of text that looks like numbers but for one value."""
    made = numbers(80)
    codes = np.array(["7", "08", "x"])[np.arange(80) % 3]
    made["clinic"].insert(1, "code", codes)
    made["clinic"][LABEL] += np.where(codes == "08", 3.0, 0.0)
    return made


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    models = {"clinic": 'use = "tabular"'}
    more = {"ward": "[policy]\npredictions_per_day = 5000\n"}
    with running(Network(tmp_path_factory.mktemp("net"), tables(), models=models, more=more)) as made:
        made.invite("risk", **OPTIONS)
        made.learn("risk")
        yield made


@pytest.fixture(scope="module")
def expected(network: Network) -> dict[int, float]:
    """Predictions in process, by id."""
    ensemble, members = network.in_process(**OPTIONS)
    return dict(
        zip(network.tables["clinic"][ROW_ID], gal.predict(ensemble, members).output[:, 0], strict=True)
    )


def predict(network: Network, path: Path, table: pd.DataFrame, **how: Any) -> dict[str, Any]:
    table.to_csv(path / "new.csv", index=False)
    return network.holder.predict_file("risk", path / "new.csv", **{"join": 20.0} | how)


def by_id(found: dict[str, Any]) -> dict[Any, Any]:
    return {row["id"]: row["prediction"] for row in found["rows"]}


def test_ids_only(network: Network, tmp_path: Path, expected: dict[int, float]) -> None:
    ids = network.tables["clinic"][[ROW_ID]].sample(frac=0.5, random_state=1)
    found = predict(network, tmp_path, ids)
    assert by_id(found) == {one: expected[one] for one in ids[ROW_ID]}
    assert (found["degraded"], found["missing"], found["unknown"]) == (0, {}, {})


class SentIds:
    """Notes the ids that leave for others in predictions."""

    def __init__(self, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[list[int]] = []
        post = network.nodes["clinic"].assistants.post_together

        def noting(requests: Mapping[str, Any], *more: Any) -> Any:
            for encoded in requests.values():
                if encoded.message.kind == "predict":
                    self.sent.append(encoded.message.arrays["integers"].tolist())
            return post(requests, *more)

        monkeypatch.setattr(network.nodes["clinic"].assistants, "post_together", noting)


def test_the_order_of_the_file_stays_here(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[int, float]
) -> None:
    """Cases before controls would tell who is which; ids leave in their own order,
    results come in that of the file.
    """
    seen = SentIds(network, monkeypatch)
    table = network.tables["clinic"].sort_values(LABEL, ascending=False)
    found = predict(network, tmp_path, table.drop(columns=[LABEL]))
    assert [row["id"] for row in found["rows"]] == table[ROW_ID].tolist()
    assert by_id(found) == {one: expected[one] for one in table[ROW_ID]}
    assert len(seen.sent) == 2
    assert all(ids == sorted(ids) for ids in seen.sent)
    assert seen.sent[0] != table[ROW_ID].tolist()


def test_the_file_wins_over_the_source(network: Network, tmp_path: Path, expected: dict[int, float]) -> None:
    table = network.tables["clinic"].drop(columns=[LABEL]).iloc[:10].assign(clinic_a=5.0)
    found = by_id(predict(network, tmp_path, table))
    assert all(found[one] != expected[one] for one in table[ROW_ID])


@pytest.mark.parametrize("code", ["7", "08", None, "new"])
def test_text_stays_text(network: Network, tmp_path: Path, code: str | None) -> None:
    """A column of one value that looks like a number, or of none, is the text that it was in learning."""
    rows = network.tables["clinic"].iloc[:6].assign(code=code)
    found = by_id(predict(network, tmp_path, rows.drop(columns=[LABEL])))
    ensemble, members = network.in_process(**OPTIONS)
    order = rows[ROW_ID]
    views = {one.name: view_by_hand(network.tables[one.name].set_index(ROW_ID).loc[order]) for one in members}
    rows = rows.assign(code=rows["code"].astype(object))
    views["clinic"] = view_by_hand(rows.drop(columns=[ROW_ID]))
    assert [found[one] for one in order] == gal.predict(ensemble, members, views).output[:, 0].tolist()


def test_some_own_columns_are_not_enough(network: Network, tmp_path: Path) -> None:
    table = network.tables["clinic"][[ROW_ID, "clinic_a", "code"]]
    with pytest.raises(InvalidInputError, match=r"lacks clinic_b: give all of them, or none"):
        predict(network, tmp_path, table)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame({ROW_ID: [1000, 1001, 1000]}), "1000"),
        (pd.DataFrame({ROW_ID: [1000, None, 1002]}), "1 row has no id"),
        (pd.DataFrame({ROW_ID: [1000.5, 1001.0]}), "whole"),
        (pd.DataFrame({"patient": [1000]}), "no column 'id'"),
        (pd.DataFrame({ROW_ID: []}), "no rows"),
        (pd.DataFrame({ROW_ID: [1000], "ID": [3]}), "upper and lower case"),
    ],
    ids=["twice", "missing", "not whole", "no ids", "no rows", "two columns"],
)
def test_files_that_cannot_be_used(network: Network, tmp_path: Path, table: pd.DataFrame, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        predict(network, tmp_path, table)


def test_many_rows_are_asked_for_in_lots_and_written_in_order(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = network.tables["clinic"].sort_values(LABEL)[[ROW_ID]]
    printed = predict(network, tmp_path, table)
    seen = SentIds(network, monkeypatch)
    monkeypatch.setattr(batches, "BATCH", 30)
    found = predict(network, tmp_path, table, out=tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == printed["csv"]
    assert found == {key: printed[key] for key in found if key != "written"} | {"written": found["written"]}
    sent = seen.sent[::2]  # both others receive the same
    assert [len(ids) for ids in sent] == [30, 30, 20]
    assert all(ids == sorted(ids) for ids in sent)
    assert sorted(one for ids in sent for one in ids) == sorted(table[ROW_ID])
    in_order = table[ROW_ID].tolist()
    assert set(sent[0]) != set(in_order[:30]), "a lot says where in the file its rows are"
    assert set(sent[0]) != set(sorted(in_order)[:30])


def test_who_predicts_no_more_today_is_named_and_the_others_go_on(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH", 30)
    ward = network.nodes["ward"]
    day = ward.service._clock().date().isoformat()
    limit = ward.configuration.policy.predictions_per_day
    before = ward.state.spend_predictions("clinic", day, 0, limit)
    ward.state.spend_predictions("clinic", day, limit - before - 45, limit)
    ids, out = network.tables["clinic"][[ROW_ID]], tmp_path / "out.csv"
    found = predict(network, tmp_path, ids, out=out)
    assert (found["n_rows"], found["degraded"]) == (80, 50)
    assert found["missing"]["ward"].startswith("refused (budget-spent)")
    assert found["missing"]["ward"].endswith("for 50 of the rows")
    assert pd.read_csv(out)["degraded"].sum() == 50
    assert ward.state.use_credit("clinic", day, limit - before - 45)  # for the tests that follow


def test_rows_that_no_organization_knows(network: Network, tmp_path: Path) -> None:
    found = predict(network, tmp_path, pd.DataFrame({ROW_ID: [1, 2, 1005]}))
    assert found["unknown"] == {"clinic": 2, "lab": 2, "ward": 2}
    assert [row["degraded"] for row in found["rows"]] == [True, True, False]
    first, second, known = (row["prediction"] for row in found["rows"])
    assert first == second != known
    assert np.isfinite([first, known]).all()


def test_a_file_that_cannot_be_written_leaves_nothing(network: Network, tmp_path: Path) -> None:
    network.tables["clinic"][[ROW_ID]].to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(GALError, match="gone"):
        network.holder.predict_file("risk", tmp_path / "new.csv", tmp_path / "gone" / "out.csv")


def test_one_that_is_not_connected_is_named(network: Network, tmp_path: Path) -> None:
    ids = network.tables["clinic"][[ROW_ID]]
    network.stop("lab")
    try:
        found = predict(network, tmp_path, ids, join=0.0)
        assert "is not connected" in found["missing"]["lab"]
        assert found["degraded"] == len(ids)
    finally:
        network.start("lab")
    network.wait_until_joined(network.nodes["clinic"].state.find_task("risk"))
    assert "lab" not in predict(network, tmp_path, ids)["missing"]


VALIDATED: dict[str, Any] = {"rounds": 2, "cross_validation": 4}


def test_without_an_organization_nodes_predict_as_one_process(tmp_path: Path) -> None:
    """The label holder's kept replies give the model of the other replies, over nodes to the same bits."""
    with running(Network(tmp_path / "net", numbers(80, linear=True))) as network:
        network.invite("risk", **VALIDATED)
        network.learn("risk")
        ensemble, members = network.in_process(**VALIDATED)
        table, kept = network.tables["clinic"], ensemble.kept_replies
        assert kept is not None
        ids = table[[ROW_ID]]
        views = {one.name: one.view for one in members}
        whole = gal.predict(ensemble, members, views).output[:, 0]
        without = {name: view for name, view in views.items() if name != "lab"}
        expected = gal.predict(ensemble, members, without).output[:, 0]
        assert list(by_id(predict(network, tmp_path, ids)).values()) == whole.tolist()
        network.stop("lab")
        found = predict(network, tmp_path, ids, join=0.0)
        assert list(by_id(found).values()) == expected.tolist() != whole.tolist()
        [cost] = found["expected_losses"]
        assert (cost["missing"], cost["rows"], cost["loss"]) == (["lab"], 80, "squared_error")
        assert (cost["expected"], cost["instead_of"]) == (expected_loss(kept, ["lab"]), kept.full_loss)
        numbers_of = f"{cost['expected']:.3g} instead of {cost['instead_of']:.3g}"
        said = "\n".join(_sentences(found))
        assert f"Without lab (80 rows): expected squared error {numbers_of}." in said
        assert "is not connected: the other replies predict." in said
        forgotten = gal.predict(replace(ensemble, kept_replies=None), members, without).output[:, 0]
        assert not np.array_equal(forgotten, expected)
