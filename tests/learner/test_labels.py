"""One rule says whether labels are classes, and every way into GAL follows it: a
rehearsal rehearses the task that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gal
from gal.cli.app import app
from gal.errors import InvalidLabelsError, InvalidOptionError
from gal.evaluate import simulate
from gal.evaluate.metrics import metric_for
from gal.evaluate.rehearsal import rehearse
from gal.learner.labels import MOST_CLASSES, are_classes, class_labels, read_labels
from gal.learner.options import Options

ROWS = 66


def turns(values: list[Any]) -> list[Any]:
    """As many labels as there are rows, each value in its turn."""
    return [values[row % len(values)] for row in range(ROWS)]


CASES: dict[str, tuple[Any, bool]] = {
    "text": (turns(["no", "yes"]), True),
    "text of many values": (turns([f"town {place}" for place in range(12)]), True),
    "booleans": (turns([False, True]), True),
    "integers 0 and 1": (turns([0, 1]), True),
    "floats 0 and 1": (turns([0.0, 1.0]), True),
    "floats -1 and 1": (turns([-1.0, 1.0]), True),
    "small integers": (np.array(turns([1, 2, 3]), dtype=np.uint8), True),
    "ten integers": (turns(list(range(MOST_CLASSES))), True),
    "ten whole floats": (turns([float(one) for one in range(MOST_CLASSES)]), True),
    "eleven integers": (turns(list(range(MOST_CLASSES + 1))), False),
    "integers 0 to 11": (turns(list(range(12))), False),
    "amounts": (turns([1500, 2300, 990] * 2 + list(range(30))), False),
    "two fractions": (turns([0.5, 1.5]), False),
    "fractions": (np.random.default_rng(0).normal(size=ROWS), False),
}
KEPT_IN_A_FRAME: dict[str, tuple[Any, bool]] = {
    "nullable integers 0 and 1": (pd.array(turns([0, 1]), dtype="Int64"), True),
    "nullable integers 0 to 11": (pd.array(turns(list(range(12))), dtype="Int64"), False),
    "categories": (pd.Categorical(turns(["a", "b", "c"])), True),
    "objects that are whole numbers": (np.array(turns([0, 1]), dtype=object), True),
    "objects that are many numbers": (np.array(turns(list(range(12))), dtype=object), False),
    "decimals": (np.array(turns([Decimal("0.5"), Decimal("1.5")]), dtype=object), False),
}
TABLE = [pytest.param(y, classes, id=name) for name, (y, classes) in (CASES | KEPT_IN_A_FRAME).items()]
DISAGREED = ["text", "floats 0 and 1", "integers 0 to 11", "two fractions", *KEPT_IN_A_FRAME]
TELLING = [one for one in TABLE if one.id in DISAGREED]
"""The cases on which ways into GAL once disagreed, for those that take their time."""
IN_FILES = [pytest.param(y, classes, id=name) for name, (y, classes) in CASES.items()]


def columns() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(1).normal(size=(ROWS, 4)), columns=list("abcd"))


@pytest.mark.parametrize(("y", "classes"), TABLE)
def test_the_rule_itself(y: Any, classes: bool) -> None:
    assert are_classes(y) == classes
    assert (read_labels(y, "auto", Options()).classes is not None) == classes


@pytest.mark.parametrize(("y", "classes"), TABLE)
def test_gal_learn_follows_it(y: Any, classes: bool) -> None:
    members = [gal.Organization("bank", columns()[["a", "b"]]), gal.Organization("shop", columns()[["c"]])]
    learned = {}
    for kind in ("auto", "classification" if classes else "regression"):
        learned[kind] = gal.learn(y, members, kind=kind, rounds=1, validation=gal.Validation(folds=0))
    assert len({one.initial_train_loss for one in learned.values()}) == 1
    if classes:  # a log loss is for classes only
        gal.learn(y, members, loss="log_loss", rounds=1, validation=gal.Validation(folds=0))
    else:
        with pytest.raises(InvalidOptionError, match="log_loss"):
            gal.learn(y, members, loss="log_loss", rounds=1, validation=gal.Validation(folds=0))


@pytest.mark.parametrize(("y", "classes"), TABLE)
def test_metrics_follow_it(y: Any, classes: bool) -> None:
    assert metric_for("auto", np.asarray(y)).classes == classes


@pytest.mark.parametrize(("y", "classes"), TELLING)
@pytest.mark.usefixtures("few_trees")
def test_gal_simulate_follows_it(y: Any, classes: bool) -> None:
    table = columns().assign(y=y)
    metric = simulate(table, "y", {"bank": ["a"], "shop": ["b"]}, folds=2, rounds=1).metric
    assert (metric in {"auc", "accuracy"}) == classes


@pytest.mark.parametrize(("y", "classes"), TELLING)
@pytest.mark.usefixtures("weak_attackers", "few_penalties")
def test_rehearsals_of_privacy_follow_it(y: Any, classes: bool) -> None:
    (found,) = rehearse(columns(), y, rounds=1, validation=gal.Validation(folds=0))
    assert (found.metric == "accuracy") == classes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A label holder's node whose labels are rewritten for every case;
    ``home(y, *words)`` invites the lab.
    """
    pytest.importorskip("grpc", reason="the extra node is not installed")
    root = tmp_path_factory.mktemp("labels")
    table = columns().assign(id=range(ROWS), y=range(ROWS))
    table.to_csv(root / "rows.csv", index=False)
    rows = ["--data", root / "rows.csv", "--row-id", "id"]
    run("init", "clinic", "--home", root / "clinic", *rows, "--label", "y", "--listen", "127.0.0.1:7443")
    run("init", "lab", "--home", root / "lab", *rows)
    run("cards", "add", root / "lab" / "lab.card", "--home", root / "clinic")

    def invite(y: Any, task: str, *words: Any, code: int = 0) -> Any:
        table.assign(y=y).to_csv(root / "rows.csv", index=False)
        out = ["--out", root / f"{task}.invitation", "--home", root / "clinic"]
        return run("invite", task, "lab", *out, *words, code=code)

    return invite


def run(*words: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words])
    error = result.exception
    assert (0 if error is None or result.exit_code == 0 else 2) == code, (result.output, error)
    return error


@pytest.mark.parametrize(("y", "classes"), IN_FILES)
def test_gal_invite_follows_it(
    home: Callable[..., Any], y: Any, classes: bool, request: pytest.FixtureRequest
) -> None:
    task = "t" + str(abs(hash(request.node.callspec.id)) % 10**6)
    error = home(y, task, "-o", "loss=log_loss", code=0 if classes else 2)  # a log loss is for classes only
    assert classes or isinstance(error, InvalidOptionError)


@pytest.mark.parametrize(("y", "classes"), IN_FILES)
def test_gal_leakage_follows_it(y: Any, classes: bool, tmp_path: Path) -> None:
    columns().assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    wrong = "laplace-labels" if classes else "randomised-response"
    error = run(
        *("leakage", tmp_path / "rows.csv", "--target", "y", "--privacy", wrong, "--epsilon", 1), code=2
    )
    assert isinstance(error, InvalidOptionError)
    assert f"these labels are {'classes' if classes else 'numbers'}" in str(error)


def test_who_says_the_kind_is_followed() -> None:
    whole = np.array(turns([0.0, 1.0]))
    assert read_labels(whole, "regression", Options()).classes is None
    assert read_labels(whole, "auto", Options(loss="absolute_error")).classes is None
    assert np.array_equal(read_labels(whole, "auto", Options()).classes, [0, 1])  # type: ignore[arg-type]
    many = read_labels(list(range(12)), "classification", Options())
    assert many.classes is not None
    assert many.loss.n_outputs == 12
    with pytest.raises(
        InvalidOptionError, match="kind must be auto, classification or regression, got 'sorts'"
    ):
        read_labels(whole, "sorts", Options())


def test_missing_labels_do_not_hide_what_the_others_are() -> None:
    assert are_classes([0.0, 1.0, np.nan])
    assert are_classes([True, None, False])
    assert not are_classes([0.5, np.nan, 1.0])
    assert not are_classes(np.array([None, 0.5, 2], dtype=object))
    with pytest.raises(InvalidLabelsError, match="1 of 3 labels are missing"):
        read_labels([0.0, 1.0, np.nan], "auto", Options())


@pytest.mark.parametrize("y", [[np.inf, 0.0, 1.0], [1e300, 2e300], [2.0**54, 0.0], [[0, 1], [1, 0]]])
def test_what_is_no_class(y: Any) -> None:
    assert not are_classes(y)


def test_large_whole_numbers_that_are_said_to_be_classes_stay_apart() -> None:
    ids = np.array([2**60, 2**60 + 1] * 3, dtype=object)
    labels = read_labels(ids, "classification", Options())
    assert labels.classes is not None
    assert len(labels.classes) == 2
    assert len(class_labels(ids, Options()).classes) == 2  # type: ignore[arg-type]
