"""Files as people have them: read alike for ``gal simulate`` and on a node, or refused with the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from gal.cli.tables import read_frame
from gal.errors import GALError, InvalidInputError
from gal.node.admin.doctor import columns_found
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.source.data import read_source, view_of_table
from gal.node.worker.open_versions import model_for, store_columns


def node_of(folder: Path, name: str, more: str = "") -> NodeConfiguration:
    text = f'name = "lab"\n[data]\nsource = "{name}"\nrow_id = "id"\n{more}'
    (folder / "node.toml").write_text(text, encoding="utf-8")
    return read_configuration(folder)


FILES = {
    "a mark": ("rows.csv", "id,größe\n1,2\n2,3\n".encode("utf-8-sig"), {"größe": [2.0, 3.0]}),
    "tabs": ("rows.tsv", b"id\ta\n1\t1.5\n2\t2.5\n", {"a": [1.5, 2.5]}),
    "bars": ("rows.txt", b"id|a\n1|1.5\n2|2.5\n", {"a": [1.5, 2.5]}),
    "of Windows": (
        "rows.csv",
        "id;preis €\n1;5 €\n2;7,5 €\n".encode("cp1252"),
        {"preis €": ["5 €", "7,5 €"]},
    ),
    "latin-1": ("rows.csv", "id;ort\n1;Köln\n2;Bonn\n".encode("latin-1"), {"ort": ["Köln", "Bonn"]}),
    "packed": ("rows.csv.gz", gzip.compress(b"id,a\n1,x\n2,y\n"), {"a": ["x", "y"]}),
    "packed, of Windows": (
        "rows.csv.gz",
        gzip.compress("id;a;b\n1;1,5;€\n2;2,5;y\n".encode("cp1252")),
        {"a": [1.5, 2.5], "b": ["€", "y"]},
    ),
    "postal codes": ("rows.csv", b"id,plz\n1,01067\n2,80331\n", {"plz": ["01067", "80331"]}),
    "commas that may be of thousands": ("rows.csv", b"id;a\n1;1,234\n2;2,345\n", {"a": ["1,234", "2,345"]}),
    "separators in quotes": ("rows.csv", b'"id";"a, b"\n1;"x;y"\n2;z\n', {"a, b": ["x;y", "z"]}),
    "lines in quotes": ("rows.csv", b'id,a\n1,"x\ny"\n2,z\n', {"a": ["x\ny", "z"]}),
    "a separator at the end of lines": ("rows.csv", b"id,a\n1,x,\n2,y,\n", {"a": ["x", "y"]}),
    "one letter of Windows, at the end": (
        "rows.csv",
        "id,a\n1,ü\n2,€".encode() + b"\n3,\xe4",
        {"a": ["Ã¼", "â‚¬", "ä"]},
    ),
    "empty lines": ("rows.csv", b"id,a\n1,x\n\n2,y\n\n", {"a": ["x", "y"]}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_the_same_here_and_on_a_node(name: str, tmp_path: Path) -> None:
    file, content, expected = FILES[name]
    (tmp_path / file).write_bytes(content)
    assert read_frame(tmp_path / file).drop(columns="id").to_dict("list") == expected
    found = read_source(node_of(tmp_path, file)).columns.to_pydict()
    assert {key: [str(one) for one in values] for key, values in found.items()} == {
        key: [str(one) for one in values] for key, values in expected.items()
    }


WRONG = {
    "too many values": ("rows.csv", b"id,a\n1,2\n3,4,5\n", "line 3: 3 values", "Line: 3"),
    "too few values": ("rows.csv", b"id,a,b\n1,2,3\n4,5\n", "line 3: 2 values", "Line: 3"),
    "too few values, far below": (
        "rows.csv",
        b"id,a,b\n" + b"".join(b"%d,2,3\n" % row for row in range(5000)) + b"5000,2\n",
        "line 5002: 2 values",
        "Line: 5002",
    ),
    "an open quote": ("rows.csv", b'id,a\n1,x\n2,"y\n3,z\n', "line 3: a double quote opens", "Line: 3"),
    "an open quote that swallows values": (
        "rows.csv",
        b'id,a,b\n1,x,y\n2,"y,z\n3,z,z\n',
        "line 3 to 4, which a double quote joins: 2 values; line 1 has 3 names",
        "Line: 3",
    ),
    "a title": ("rows.csv", b"Report\nid,a\n1,2\n", "line 2: .* lines above the names", "Line: 2"),
    "a line for Excel": (
        "rows.csv",
        b"sep=;\nid;a;b\n1;2;3\n",
        "line 2: .* above the names",
        "Correct the file",
    ),
    "a zip": ("rows.zip", b"PK\x03\x04", "is a zip archive: unpack it", "source must end in"),
    "a name twice": (
        "rows.csv",
        b"id,a,b,a\n1,2,3,4\n",
        "column 'a' is there twice",
        "column 'a' is there twice",
    ),
    "a broken gzip": (
        "rows.csv.gz",
        gzip.compress(b"id,a\n" + b"1,2\n" * 5000)[:50],
        "no whole file of gzip",
        "no whole file of gzip",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_wrong_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    file, content, here, there = WRONG[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InvalidInputError, match=here):
        read_frame(tmp_path / file)
    with pytest.raises(GALError, match=there):
        read_source(node_of(tmp_path, file))


def messy(n: int = 900) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    income, when = (
        rng.lognormal(10, 0.5, n),
        pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), unit="D"),
    )
    table = pd.DataFrame(
        {
            "id": range(n),
            "income": [f"${one:,.2f}" for one in income],
            "when": when.strftime("%d.%m.%Y"),
            "iso": when.strftime("%Y-%m-%d"),
            "ward": rng.choice(["10", "20", "30"], n),
        }
    )
    y = 2 * (np.log(income) - 10) + 3.0 * (when.day_of_week == 6) + rng.normal(0, 0.3, n)
    return table, np.asarray(y)


@pytest.mark.parametrize("columns", [["income", "when", "ward"], ["iso"]], ids=["a frame", "an array"])
def test_a_nodes_default_model_reads_the_columns_of_its_source(tmp_path: Path, columns: list[str]) -> None:
    table, y = messy()
    table[["id", *columns]].to_csv(tmp_path / "rows.csv", index=False)
    said = 'columns = { ward = "category" }\n' if "ward" in columns else ""
    configuration = node_of(tmp_path, "rows.csv", said)
    found = read_source(configuration)
    assert found.dates == {"when", "iso"} & set(columns)
    view = view_of_table(found)
    store_columns(tmp_path, tuple(found.kinds), found.dates)
    model = model_for(configuration, view, tmp_path)
    model.fit(view[:600], y[:600])
    assert r2_score(y[600:], model.predict(view[600:])) > (0.6 if "income" in columns else 0.2)
    if "ward" in columns:
        assert model.encoder_.is_category_[model.encoder_.origins_.index(2)]
        lines = list(columns_found(configuration, found, 100))
        assert lines[0].startswith("income: number ($")
        assert "when: date (2020-01-01, 2020-01-02, 2020-01-03): days + weekday + month" in lines
        assert any(line.startswith("ward: as declared, category (") for line in lines)


def test_kinds_of_columns_for_a_model_that_reads_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GALError, match=r'data\.columns is for the model "tabular"'):
        node_of(tmp_path, "rows.csv", 'columns = { a = "date" }\n[model]\nuse = "ridge"\n')
