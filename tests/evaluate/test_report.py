"""Reports: the same facts as for machines, harmless whatever names say, readable as tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from gal.core.contributions import Contribution, Contributions
from gal.core.outcome import Decision, Ended, TaskOutcome
from gal.core.state import plain
from gal.errors import InvalidInputError, InvalidOptionError
from gal.evaluate import Simulation, report, simulate
from gal.evaluate.metrics import quality_of
from gal.evaluate.reporting.facts import PRIVACY, bytes_in_words, number
from gal.evaluate.reporting.learned import baseline_reason, facts_of_version, versions_cells
from gal.evaluate.reporting.writing import page_of
from gal.node.store.audit import Total
from report_pages import ReadPage, check_harmless

pytestmark = pytest.mark.usefixtures("few_trees")

BAD = "<script>alert('&\"x')</script>"
PARTS = {f"bank {BAD}": ["a"], "telecom": ["b"], "shop": ["c", BAD]}
LABELS = {"r2": None, "auc": ["no", f"yes {BAD}"], "accuracy": ["low", "middle", f"high {BAD}"]}


def table(metric: str, n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 5)), columns=["a", "b", "c", BAD, f"unused {BAD}"])
    y = frame["a"] + 2 * frame["b"] + 0.3 * rng.normal(size=n)
    names = LABELS[metric]
    if names is None:
        return frame.assign(**{f"y {BAD}": y})
    cuts = np.quantile(y, np.arange(1, len(names)) / len(names))
    return frame.assign(**{f"y {BAD}": np.array(names)[np.digitize(y, cuts)]})


@pytest.fixture(scope="module", params=list(LABELS))
def found(request: pytest.FixtureRequest) -> Simulation:
    return simulate(table(request.param), f"y {BAD}", PARTS, folds=2, rounds=2, local_models=Ridge())


def read(found: Any, folder: Path, *rows: Any) -> ReadPage:
    path = report(found, folder / "report.html", *rows)
    assert path.stat().st_size < 2_000_000
    return ReadPage(path.read_text(encoding="utf-8"))


def test_a_report_has_what_was_found(found: Simulation, tmp_path: Path) -> None:
    page = read(found, tmp_path)
    for one in (found.alone, found.assisted, found.pooled, found.gain):
        for value in (one.value, one.low, one.high):
            assert number(value) in page.words
    assert found.contributions is not None
    for name, part in found.contributions.by_organization.items():
        assert f"{name} {number(part.value)} {number(part.low)} to {number(part.high)}" in page.words
    assert page.text.count('class="bar"') > 6
    assert found.traffic is not None
    assert bytes_in_words(found.traffic.received) in page.words


def test_a_report_says_everything_in_order(found: Simulation, tmp_path: Path) -> None:
    page = read(found, tmp_path)
    wanted = [
        *("to predict", "95 % confidence:", "Scores", "pooled (tuned", "Contributions"),
        *("By organization:", "Loss by round", "validation rows"),
        *("Predicted against true", "What would leave each organization", "of residuals"),
        *("fitted values", PRIVACY, "can know every training label", "Columns of the table"),
        *("How it was computed", "seed", "scikit-learn"),
    ]
    places = [page.words.find(words) for words in wanted]
    assert -1 not in places
    assert places == sorted(places)
    kinds = {
        "auc": "truly yes",
        "accuracy": "of the predicted class",
        "r2": "middle 80 % of them",
    }
    assert kinds[found.metric] in page.words


def test_names_do_no_harm_and_nothing_is_loaded(found: Simulation, tmp_path: Path) -> None:
    page = read(found, tmp_path)
    check_harmless(page)
    assert BAD in page.words  # it is said, and not obeyed
    assert f"not used : unused {BAD}" in page.words
    assert page.count("script") == 0


def test_what_stands_in_the_way_is_said(found: Simulation, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidOptionError, match=r"cannot be written to .*name another file"):
        report(found, tmp_path / "folder.html")


def test_what_cannot_be_written_is_said_first(found: Simulation, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"must end in \.html"):
        report(found, tmp_path / "report.pdf")
    with pytest.raises(InvalidOptionError, match="there is no folder"):
        report(found, tmp_path / "nowhere" / "report.html")
    with pytest.raises(InvalidInputError, match="not about a Ridge"):
        report(Ridge(), tmp_path / "report.html")


VERSION: dict[str, Any] = {
    **{"task": BAD, "version": 2, "label_holder": "clinic", "loss": "log_loss", "rounds": 2},
    **{"rounds_learned": 3, "initial_train_loss": 0.7, "train_loss": 0.4, "track": "assisted"},
    **{"initial_validation_loss": 0.69, "alone_validation_loss": 0.6, "assisted_validation_loss": 0.45},
    "learning": {"train": [0.7, 0.5, 0.4, 0.39], "validation": [0.69, 0.5, 0.45, 0.46], "used": 2},
    "known_rows": {"lab": 90},
    "privacy": {"mechanism": "none", "words": "No privacy mechanism: as they are."},
    **{"missed": {"lab": [3]}, "classes": ["no", BAD]},
}
GAIN = Contribution(0.15, 0.1, 0.2, "helped")
FOUND = Contributions({"lab": GAIN}, own=0.09, gain=GAIN, rows="validation", n_rows=90)


def test_a_version_says_what_left() -> None:
    moved = [
        Total("lab", "task", "out", "fit", 3, 12_345),
        Total("lab", "task", "in", "fitted", 3, 23_456),
        Total("lab", "task", "in", "hello", 1, 99),
    ]
    facts = VERSION | {"contributions": plain(FOUND)}
    versions = versions_cells(
        2, {1: {"status": "begun", "n_rows": 80}, 2: {"status": "finished", "n_rows": 90}}
    )
    page = ReadPage(page_of(facts_of_version(facts, moved=moved, versions=versions), "now"))
    check_harmless(page)
    for words in (
        "Yes: assistance lowers the log loss by 0.150",
        "(95 % confidence: 0.100 to 0.200), from 0.600 alone",
        *(
            "What left each organization",
            "12.3 kB",
            "23.5 kB",
            "lab missed round 3",
            "uses 2 of 3 rounds",
        ),
        *("2 (active)", "interrupted or learning"),
    ):
        assert words in page.words
    assert "99 bytes" not in page.words
    assert "lab missed rounds 1, 3." in facts_of_version(VERSION | {"missed": {"lab": [1, 3]}}).more


def test_groups_of_numbers_and_of_equal_predictions() -> None:
    truth = np.arange(100.0)
    [one] = quality_of(truth, np.full(100, 7.0), None).groups
    assert (one.predicted, one.true, one.low, one.high, one.rows) == (7.0, 49.5, 9.9, 89.1, 100)
    groups = quality_of(truth, truth, None).groups
    assert [group.true for group in groups] == [group.predicted for group in groups]
    rare = np.where(np.arange(100) < 3, 1.0, 2.0)  # groups of three rows would tell of each
    assert [group.rows for group in quality_of(truth, rare, None).groups] == [100]
    assert len(quality_of(truth[:5], truth[:5], None).groups) == 1


def test_why_a_label_holder_stays_alone_names_memorizers() -> None:
    outcome = TaskOutcome(Ended.ROUNDS, 3, decision=Decision.MEMORIZATION, memorizers=("lab",))
    assert baseline_reason({"outcome": plain(outcome)}).startswith("lab repeats residuals")
    worse = replace(outcome, decision=Decision.WORSE_ON_SENTINEL, memorizers=())
    assert "sentinel fold" in baseline_reason({"outcome": plain(worse)})
    for facts in ({}, {"outcome": plain(replace(worse, decision=Decision.NO_BETTER))}):
        assert baseline_reason(facts).startswith(
            "on rows that were not fitted, the label holder alone was better"
        )
