"""How many rounds a task has at most, where nobody says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gal
from gal.core.stopping import Stopping
from gal.core.task import Task
from gal.engine import task_making
from gal.engine.labels import read_labels
from gal.engine.options import MOST_ROUNDS, ROUNDS, Options
from gal.engine.organization import Organization
from gal.engine.task_making import LARGE, LARGER, SMALL, make_task
from gal.privacy.mechanisms.paper import PaperLaplace
from gal.privacy.protection import PaperRelease, public_options
from gal.secrecy.summed_options import summed_options
from gal.secrecy.terms import Sums


def task_of(classes: int, n: int = LARGER, *, options: Any = None, **facts: Any) -> Task:
    chosen = Options(**(options or {}))
    y = np.arange(n) % classes if classes else np.linspace(0.0, 1.0, n)
    labels = read_labels(y, "classification" if classes else "regression", chosen)
    return make_task(labels, ["bank", "shop"], chosen, label_holder="bank", **facts)


@pytest.mark.parametrize(("classes", "n"), [(3, LARGER), (3, LARGE - 1), (2, SMALL), (0, SMALL)])
def test_where_rows_that_were_not_fitted_judge_learning_goes_on(classes: int, n: int) -> None:
    task = task_of(classes, n)
    assert (task.rounds, task.stopping.usual) == (MOST_ROUNDS, ROUNDS)
    assert task.alone is not None
    assert (task.alone.rounds, task.alone.stopping.usual) == (MOST_ROUNDS, ROUNDS)
    assert task.terms.rounds == MOST_ROUNDS  # partners are told the most there can be


@pytest.mark.parametrize(
    ("classes", "n", "options", "facts"),
    [
        (3, LARGER - 1, {}, {}),
        (2, LARGER, {}, {}),
        (0, LARGER, {}, {}),
        (3, SMALL - 1, {}, {}),
        (3, LARGE - 1, {"cross_validation": 0}, {}),
        (2, SMALL, {}, {"private": True}),
        (3, LARGER, {"preset": "paper"}, {}),
        (3, LARGER, {"patience": None}, {}),
        (3, LARGER, {"validation_fraction": 0.0}, {}),
        (3, LARGER, {}, {"moving": ["shop"]}),
        (3, LARGER, {}, {"tables": False}),
        (3, LARGER, {}, {"private": True}),
        (3, LARGER, {}, {"release": PaperRelease(PaperLaplace(), 0)}),
    ],
)
def test_all_others_have_the_papers(classes: int, n: int, options: Any, facts: Any) -> None:
    task = task_of(classes, n, options=options, **facts)
    assert (task.rounds, task.stopping.usual) == (ROUNDS, None)


@pytest.mark.parametrize(
    ("options", "facts", "soon"),
    [
        ({}, {}, True),
        ({"preset": "paper"}, {}, False),
        ({}, {"moving": ["shop"]}, False),
        ({}, {"tables": False}, False),
        ({}, {"private": True}, False),
    ],
)
def test_tables_end_soon(options: Any, facts: Any, soon: bool) -> None:
    """Networks move, or see no tables: whether they lose by it was not measured."""
    assert task_of(2, options=options, **facts).stopping.soon == soon


def test_the_label_holder_alone_is_not_learned_to_its_end_where_she_lacks_much() -> None:
    """The same predictions, from fewer fits of hers; what she reaches alone is known nearly as well."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 4))
    y = 0.1 * X[:, 0] + 3 * X[:, 2] * (1 + np.abs(X[:, 3])) + rng.normal(size=len(X))
    learned = {}
    for soon in (True, False):
        own = Organization("bank", X[:, :2])
        with pytest.MonkeyPatch.context() as patched:
            rules = Stopping(None, None, None, soon=soon)
            patched.setattr(task_making, "_stopping", lambda *_, rules=rules, **__: rules)
            model = gal.learn(y, [own, Organization("shop", X[:, 2:])], rounds=8, seed=0)
        alone = [number for track, number in own.models if track == "alone"]
        learned[soon] = len(alone), model.alone_validation_loss, model.coefficients
    assert learned[True][0] < learned[False][0]
    assert learned[True][1] == pytest.approx(learned[False][1], rel=0.01)
    assert learned[True][2] == learned[False][2]


@pytest.mark.parametrize("rounds", [7, 30])
def test_what_is_given_holds(rounds: int) -> None:
    task = task_of(3, options={"rounds": rounds})
    assert (task.rounds, task.stopping.usual) == (rounds, None)


def test_noise_and_sums_are_paid_for_by_round() -> None:
    assert public_options(Options()).rounds == ROUNDS
    assert summed_options(Sums(), Options(), "bank", dict.fromkeys("abc", _Stays())).rounds == ROUNDS


class _Stays:
    moves = False
