"""Tables and rows as files: ours have the paper's figures, wrong ones are refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gal.errors import InvalidInputError
from gal_bench.specs import Printed, read_own_tables, read_tables

TABLES = read_tables()


def test_the_papers_figures_are_those_of_the_reference(reference: Path) -> None:
    """Typed once, in the rows: checked against the list that came with the measurements."""
    text = (reference / "RESULTS.md").read_text(encoding="utf-8")
    rows = {row.name: row for row in TABLES["uci"].rows}
    names = {
        "Late": "late-average",
        "Joint": "joint",
        "Alone": "alone",
        "AL-fix": "al",
        "GAL-Linear": "gal-linear",
        "GAL-GB": "gal-gb",
        "GAL-SVM": "gal-svm",
        "GAL-GB-SVM": "gal-gb-svm",
    }
    checked, organizations = 0, ""
    for line in text.splitlines():
        if line.startswith("## M="):
            organizations = line.removeprefix("## M=").strip()
        elif line.startswith("## "):
            organizations = ""
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if organizations and len(cells) > 3 and cells[1] in names:
            printed = rows[names[cells[1]]].printed(cells[0], int(organizations))
            assert printed == Printed.parse(cells[2]), line
            checked += 1
    assert checked == 8 * 20


# --- rows and tables of one's own

COLUMNS = {
    "order": 9,
    "title": "t",
    "paper": "",
    "sets": ["Wine"],
    "organizations": [2],
    "protocols": ["per seed"],
}
DEEP = {**COLUMNS, "deep": True, "sets": ["MNIST"], "protocols": ["official"]}
ROW = {"order": 1, "label": "x"}


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in content.items()))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"method": "gla"}, "no method .* 'gla'"),
        ({"models": ["Forest"]}, "no local model .* 'Forest'"),
        ({"fast": True}, "fast"),
        ({"paper.8.Wine": "high"}, "42.7"),
        ({"method": "intermediate"}, "no method of tabular tables"),
        ({"models": ["Network"]}, "no local model of tabular tables"),
        ({"seeds": 0}, "seeds"),
        ({"sets": ["Nowhere"]}, r"no data set of tabular tables \(row 'row'\) 'Nowhere'; there are"),
        ({"choose_among": ["y"]}, "no row to choose among 'y'"),
        ({"privacy": "noise"}, "no privacy mechanism 'noise'"),
        ({"privacy": "noisy-labels"}, "needs epsilon"),
        ({"privacy": "noisy-labels", "epsilon": 1, "delta": 1e-5}, "has no delta"),
        ({"privacy": "paper-laplace", "method": "alone"}, "for method gal"),
        ({"leak": True, "method": "joint"}, "for method gal"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    write(tmp_path / "mine/table.toml", COLUMNS)
    write(tmp_path / "mine/row.toml", ROW | row)
    with pytest.raises(InvalidInputError, match=rf"mine/.*toml.*{said}"):
        read_own_tables(tmp_path, {})


@pytest.mark.parametrize(
    ("table", "row", "said"),
    [
        ({}, {"models": ["Linear"]}, "no local model of deep tables"),
        ({}, {"method": "late_sum"}, "no method of deep tables"),
        ({}, {"leak": True}, "in tabular tables"),
        ({"sets": ["Wine"]}, {}, "no deep data set 'Wine'"),
        ({"protocols": ["per seed"]}, {}, "no protocol 'per seed'; there are: official"),
        ({"glance": ["y"]}, {}, "'y'"),
    ],
)
def test_a_wrong_deep_table_is_refused(
    table: dict[str, Any], row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write(tmp_path / "mine/table.toml", DEEP | table)
    write(tmp_path / "mine/row.toml", ROW | {"models": ["Network"]} | row)
    with pytest.raises(InvalidInputError, match=said):
        read_own_tables(tmp_path, {})


def test_rows_for_a_table_of_ours_and_a_table_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path / "rates/equal.toml", {"order": 9, "label": "equal", "options.weights": "uniform"})
    write(tmp_path / "mine/table.toml", COLUMNS)
    write(tmp_path / "mine/gal.toml", ROW)
    tables = read_own_tables(tmp_path, TABLES)
    assert list(tables) == [*TABLES, "mine"]
    assert tables["rates"].rows[-1].label == "equal"
    assert tables["rates"].part == tmp_path.name  # its files are not those of our table
    assert [row.name for row in tables["mine"].rows] == ["gal"]


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("rates/searched.toml", 'order = 1\nlabel = "x"\n', "same name"),
        ("rates/x.toml", 'order = 1\nlabel = "x"\n[options]\nrond = 3\n', "no option .* 'rond'"),
        ("rates/x.toml", "order = [", "not a TOML file"),
        ("rates/table.toml", "order = 1\n", "one of our tables"),
        ("other/x.toml", 'order = 1\nlabel = "x"\n', "no table other"),
        ("x.txt", "", "holds no tables"),
    ],
)
def test_rows_that_do_not_fit(path: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(content)
    with pytest.raises(InvalidInputError, match=said):
        read_own_tables(tmp_path, TABLES)
