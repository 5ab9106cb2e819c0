"""A user's own rows, data sets and methods in ``gal bench``: read, run, and refused where they do not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import InvalidInputError
from gal_bench.brought import brought_datasets, brought_methods
from gal_bench.cache import Cache
from gal_bench.cells import Cell
from gal_bench.data.own_sets import find_own_sets, read_own_set
from gal_bench.specs import read_own_tables, read_tables

ORGANIZATIONS = """
[organizations]
clinic = ["age", "sex", "bp"]
lab = ["s1", "s2", "s3", "s4", "s5", "s6"]
"""
FEW = ("--seeds", "1", "--jobs", "1", "--json")


def bench(*words: str) -> Any:
    return CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["bench", *words])


def figures(*words: str) -> list[dict[str, Any]]:
    done = bench(*words, *FEW)
    assert done.exit_code == 0, f"{done.exception}\n{done.output}"
    [facts] = json.loads(done.stdout)
    return list(facts["figures"])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """120 patients with an id, and what is said of them."""
    table = load_diabetes(as_frame=True).frame.head(120)
    table.insert(0, "patient", [f"p{i}" for i in range(len(table))])
    table.to_csv(tmp_path / "patients.csv", index=False)
    path = tmp_path / "progression.toml"
    path.write_text('file = "patients.csv"\ntarget = "target"\nignore = ["patient"]\n')
    return path


def test_an_own_data_set_in_a_table_of_ours(own: Path, tmp_path: Path) -> None:
    few = '["patient", "s1", "s2", "s3", "s4", "s5", "s6"]'  # four columns are left: four organizations
    own.write_text(own.read_text().replace('["patient"]', few))
    words = ("rates", "--dataset", str(own), "--results", str(tmp_path / "results"))
    found = figures(*words)
    assert {(one["data set"], one["protocol"]) for one in found} == {("progression", "per seed")}
    assert len(found) == 3  # the rows of the table
    assert (tmp_path / "results/rates-progression-1-seeds.csv").exists()


def test_what_is_read(own: Path) -> None:
    plain = read_own_set(own)
    assert (plain.X.shape, plain.classes, plain.partition) == ((120, 10), False, None)
    own.write_text(own.read_text() + 'labels = "numbers"\nname = "Named"\n' + ORGANIZATIONS)
    named = read_own_set(own)
    assert named.name == "Named"
    assert list(named.partition or {}) == ["clinic", "lab"]
    assert "bmi" not in named.X  # nobody holds it


def test_classes_are_codes(tmp_path: Path) -> None:
    wine = load_wine(as_frame=True)
    frame = wine.frame.assign(target=np.array(["a", "b", "c"])[wine.target])
    frame.to_csv(tmp_path / "wine.csv", index=False)
    (tmp_path / "mine.toml").write_text('file = "wine.csv"\ntarget = "target"\n')
    found = read_own_set(tmp_path / "mine.toml")
    assert (found.classes, found.class_names) == (True, ("a", "b", "c"))
    np.testing.assert_array_equal(found.y, wine.target)


def test_other_content_is_run_again(own: Path, tmp_path: Path) -> None:
    cell = Cell("progression", 4, "per seed", 0)
    before = Cache(tmp_path, find_own_sets([str(own)], None)[1].digests).path(cell)
    assert Cache(tmp_path, find_own_sets([str(own)], None)[1].digests).path(cell) == before
    table = own.with_name("patients.csv")
    table.write_text(table.read_text().replace("p7,", "p7,9", 1))
    assert Cache(tmp_path, find_own_sets([str(own)], None)[1].digests).path(cell) != before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("file = 3", "file: Input should be a valid string"),
        ('file = "patients.csv"', "needs at least file and target"),
        ('file = "none.csv"\ntarget = "target"', "there is no file"),
        ('file = "patients.csv"\ntarget = "goal"', "no column 'goal'; it has patient, age"),
        ('file = "patients.csv"\ntarget = "target"\nlabels = "numbers"\nname = "Wine"', "is one of ours"),
        ('file = "patients.csv"\ntarget = "patient"\nlabels = "numbers"', "holds no numbers"),
        (
            'file = "patients.csv"\ntarget = "target"\n[organizations]\na = ["age"]\nb = ["age"]',
            "two holders",
        ),
        ('file = "patients.csv"\ntarget = "target"\n[organizations]\na = ["target"]', "nobody's column"),
        ("file = ", "is not a TOML file"),
    ],
)
def test_files_that_do_not_fit(content: str, said: str, own: Path) -> None:
    own.write_text(content)
    with pytest.raises(InvalidInputError, match=said):
        read_own_set(own)


def test_a_table_by_name_needs_organizations(own: Path, tmp_path: Path) -> None:
    refused = bench("scale", "--dataset", str(own), "--results", str(tmp_path / "r"))
    assert "needs [organizations]" in str(refused.exception)


PAGE = Path(__file__).parents[2] / "docs/how-to-bench.md"
OWN = re.compile(r"<!-- own: (?P<path>[^ ]+) -->\n```toml\n(?P<text>.*?)```", re.DOTALL)
OUTPUT = re.compile(r"<!-- own output -->\n```\n(?P<text>.*?)```", re.DOTALL)


def test_the_worked_example_prints_what_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for found in OWN.finditer(text):
        Path(found["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(found["path"]).write_text(found["text"])
    load_diabetes(as_frame=True).frame.to_csv("patients.csv")
    done = bench("mine", "--rows", "rows", "--dataset", "progression.toml", "--jobs", "1")
    assert done.exit_code == 0, f"{done.exception}\n{done.output}"
    said = OUTPUT.search(text)
    assert said is not None
    figures_said = re.findall(r"\d+\.\d \(\d+\.\d\)", said["text"])
    assert len(figures_said) == 3
    assert all(figure in done.stdout for figure in figures_said), done.stdout


# --- rows

MINE = (
    'order = 99\ntitle = "Mine"\npaper = ""\nsets = ["Iris"]\norganizations = [2]\nprotocols = ["per seed"]\n'
)


def test_rows_for_a_table_of_ours_and_a_table_of_ones_own(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    (rows / "rates").mkdir(parents=True)
    (rows / "rates/equal.toml").write_text('order = 9\nlabel = "equal"\n[options]\nweights = "uniform"\n')
    (rows / "mine").mkdir()
    (rows / "mine/table.toml").write_text(MINE)
    (rows / "mine/gal.toml").write_text('order = 1\nlabel = "GAL"\n')
    words = ("--rows", str(rows), "--results", str(tmp_path / "results"))
    assert [one["row"] for one in figures("mine", *words)] == ["GAL"]
    tables = read_own_tables(rows, read_tables())
    assert tables["rates"].rows[-1].label == "equal"
    assert tables["rates"].part == "rows"  # its files are not those of our table
    assert list(read_own_tables(rows / "mine", {})) == ["mine"]


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("rates/searched.toml", 'order = 1\nlabel = "x"\n', "has rows searched already"),
        ("rates/x.toml", 'order = 1\nlabel = "x"\n[options]\nrond = 3\n', "no option .* 'rond'"),
        ("rates/x.toml", 'order = 1\nlabel = "x"\nmethod = "mine"\n', "no method 'mine'"),
        ("rates/table.toml", "order = 1\n", "one of our tables"),
        ("other/x.toml", 'order = 1\nlabel = "x"\n', "no table other"),
        ("x.txt", "", "holds no tables"),
    ],
)
def test_rows_that_do_not_fit(path: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(content)
    with pytest.raises(InvalidInputError, match=said):
        read_own_tables(tmp_path, read_tables())


# --- entry points

PACKAGE = """
import numpy as np
import pandas as pd
from gal.evaluate.baselines import METHODS
from gal_bench.data.datasets import Dataset

def only_the_first(*, organizations, **options):
    return METHODS["alone"](organizations=organizations, **options)

def coins(data_dir):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 4)), columns=list("abcd"))
    return Dataset("Coins", X, (X["a"] + X["b"] > 0).to_numpy().astype(np.int64), True, ("0", "1"))

def broken(data_dir):
    return 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a method and data sets, as pip leaves it."""
    place = tmp_path / "site"
    said = place / "brought_by_a_test-1.0.dist-info"
    said.mkdir(parents=True)
    (place / "brought_by_a_test.py").write_text(PACKAGE)
    (said / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-by-a-test\nVersion: 1.0\n")
    (said / "entry_points.txt").write_text(
        "[gal_bench.methods]\nfirst = brought_by_a_test:only_the_first\ngal = brought_by_a_test:broken\n"
        "[gal_bench.datasets]\nCoins = brought_by_a_test:coins\nBroken = brought_by_a_test:broken\n"
        "Absent = brought_by_a_test:absent\n"
    )
    monkeypatch.syspath_prepend(str(place))
    return said


def test_methods_and_data_sets_by_entry_points(package: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows/mine"
    rows.mkdir(parents=True)
    (rows / "table.toml").write_text(MINE)
    (rows / "gal.toml").write_text('order = 1\nlabel = "GAL"\n')
    (rows / "first.toml").write_text('order = 9\nlabel = "first"\nmethod = "first"\n')
    words = ("--rows", str(rows.parent), "--results", str(tmp_path / "results"))
    found = figures("mine", "--dataset", "Coins", *words)
    assert {one["data set"] for one in found} == {"Coins"}
    assert [one["row"] for one in found] == ["GAL", "first"]
    assert set(brought_methods()) == {"first"}  # ours stay what they are
    before = Cache(tmp_path).path(Cell("Wine", 2, "per seed", 0, method="first"))
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-by-a-test\nVersion: 1.1\n")
    assert Cache(tmp_path).path(Cell("Wine", 2, "per seed", 0, method="first")) != before


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("name", "said"), [("Broken", "returned int"), ("Absent", "cannot be loaded")])
def test_entry_points_that_do_not_fit(name: str, said: str) -> None:
    assert name in brought_datasets()
    with pytest.raises(InvalidInputError, match=said):
        find_own_sets([name], None)
