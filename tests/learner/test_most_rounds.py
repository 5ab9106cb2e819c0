"""The default limit of rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gal.core.task import Task
from gal.learner.labels import read_labels
from gal.learner.options import MOST_ROUNDS, ROUNDS, Options
from gal.learner.task_making import LARGE, SMALL, make_task
from gal.privacy.mechanisms.paper import PaperLaplace
from gal.privacy.protection import PaperRelease, public_options
from gal.secure_aggregation.asking import summed_options
from gal.secure_aggregation.terms import Sums


def task_of(classes: int, n: int = LARGE - 1, *, options: Any = None, **facts: Any) -> Task:
    chosen = Options(**(options or {}))
    y = np.arange(n) % classes if classes else np.linspace(0.0, 1.0, n)
    labels = read_labels(y, "classification" if classes else "regression", chosen)
    return make_task(labels, ["bank", "shop"], chosen, label_holder="bank", **facts)


@pytest.mark.parametrize(("classes", "n"), [(3, LARGE - 1), (2, SMALL), (0, SMALL)])
def test_a_cross_validation_may_take_more_rounds(classes: int, n: int) -> None:
    task = task_of(classes, n)
    assert task.rounds == MOST_ROUNDS
    assert task.alone is not None
    assert task.alone.rounds == MOST_ROUNDS
    assert task.terms.rounds == MOST_ROUNDS  # partners are told the most there can be


@pytest.mark.parametrize(
    ("classes", "n", "options", "facts"),
    [
        (3, LARGE, {}, {}),
        (2, LARGE, {}, {}),
        (0, LARGE, {}, {}),
        (3, SMALL - 1, {}, {}),
        (3, LARGE - 1, {"cross_validation": 0}, {}),
        (2, SMALL, {}, {"private": True}),
        (3, SMALL, {"preset": "paper"}, {}),
        (3, SMALL, {"patience": None}, {}),
        (3, SMALL, {}, {"tables": False}),
        (3, SMALL, {}, {"release": PaperRelease(PaperLaplace(), 0)}),
    ],
)
def test_all_others_have_ten(classes: int, n: int, options: Any, facts: Any) -> None:
    task = task_of(classes, n, options=options, **facts)
    assert task.rounds == ROUNDS


def test_noise_and_sums_are_paid_for_by_round() -> None:
    assert public_options(Options()).rounds == ROUNDS
    assert summed_options(Sums(), Options(), "bank", dict.fromkeys("abc", _Stays())).rounds == ROUNDS


class _Stays:
    stateful = False
