"""Tables and rows as files have the paper's figures, and name what there is."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

from gal import GALRegressor
from gal.assembling import grouped
from gal_bench.baselines import METHODS
from gal_bench.cells import DEEP_METHODS, DEEP_MODELS, DEEP_SETS, OFFICIAL
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.runs.local_models import MODELS
from gal_bench.specs import Printed, read_tables

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


def test_tables_and_rows_name_what_there_is() -> None:
    options = set(signature(GALRegressor).parameters)
    for table in TABLES.values():
        names = {row.name for row in table.rows}
        assert len(names) == len(table.rows)
        assert {*table.glance} <= names
        assert {*table.sets} <= {*(DEEP_SETS if table.deep else DATASETS)}
        assert {*table.protocols} <= {OFFICIAL} if table.deep else {*PROTOCOLS}
        for row in table.rows:
            assert {*row.sets} <= {*table.sets}, row
            assert {*row.choose_among} <= names, row
            assert row.method in (DEEP_METHODS if table.deep else METHODS), row
            assert {*row.models} <= {*(DEEP_MODELS if table.deep else MODELS)}, row
            assert table.deep or row.method != "gal" or {*grouped(row.options)} <= options, row
            assert not (row.leak or row.privacy) or (row.method == "gal" and not table.deep), row
