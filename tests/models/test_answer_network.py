"""The network of the closing model: what answers say together, the same bits alone and among others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gal.models import answer_network
from gal.models.answer_network import AnswerNetwork, Widest

N = 1500


def rings(n: int = N, seed: int = 0) -> tuple[Any, Any]:
    """Three rings around the middle: one column is with each organization, and neither tells a class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    y = np.digitize(np.square(X).sum(axis=1), [0.8, 2.2])
    answers = [
        {"left": np.hstack([X[:, :1], 2 * X[:, :1]]), "right": np.hstack([X[:, 1:], X[:, 1:] + 3])},
        {"left": 5 * X[:, :1] - 1},
    ]
    return answers, y


def fitted(weight: Any = None) -> AnswerNetwork:
    answers, y = rings()
    network = AnswerNetwork.fit(answers, y, 3, weight, seed=0)
    assert network is not None
    return network


def test_it_hears_what_answers_say_together() -> None:
    answers, y = rings(seed=1)
    output = fitted().output(answers)
    assert (output.argmax(axis=1) == y).mean() > 0.85
    assert output.sum(axis=1) == pytest.approx(np.zeros(N), abs=1e-4)


def test_only_directions_in_which_answers_differ_are_seen() -> None:
    network = fitted()
    assert [one.along.shape for one in network.inputs] == [(3, 1), (2, 1)]
    answers, _ = rings()
    for one in network.inputs:
        assert one(answers).std() == pytest.approx(1, rel=1e-3)
    same = [{"left": np.ones((50, 2), dtype=np.float32)}]
    assert AnswerNetwork.fit(same, np.arange(50) % 3, 3, None, seed=0) is None


def test_many_organizations_share_the_directions() -> None:
    rng = np.random.default_rng(0)
    answers = [{f"m{at}": rng.normal(size=(300, 4)).astype(np.float32) for at in range(40)}]
    network = AnswerNetwork.fit(answers, np.arange(300) % 3, 3, None, seed=0)
    assert network is not None
    assert {one.along.shape[1] for one in network.inputs} == {answer_network.MOST_DIRECTIONS // 40}


def test_a_row_alone_has_the_bits_that_it_has_among_others() -> None:
    answers, _ = rings()
    network = fitted()
    together = network.output(answers)
    for row in (0, 7, 300, N - 1):
        alone = [{name: values[row : row + 1] for name, values in said.items()} for said in answers]
        assert network.output(alone).tobytes() == together[row : row + 1].tobytes()


def test_cores_and_another_start_change_no_bit() -> None:
    outputs = []
    for cores in (1, 2):
        with threadpool_limits(cores, "blas"):
            outputs.append(fitted().output(rings()[0]).tobytes())
    assert outputs[0] == outputs[1]


def test_rows_that_count_nothing_are_not_learned_from() -> None:
    answers, y = rings()
    weight = np.where(answers[0]["left"][:, 0] > 0, 1.0, 0.0)
    turned = np.where(weight > 0, y, (y + 1) % 3)
    network = AnswerNetwork.fit(answers, turned, 3, weight, seed=0)
    assert network is not None
    right = network.output(answers).argmax(axis=1) == y
    assert right[weight > 0].mean() > 0.85


def test_absurd_answers_give_numbers() -> None:
    answers, _ = rings(5)
    answers[0]["left"][0] = np.finfo(np.float32).max
    assert np.isfinite(fitted().output(answers)).all()


def test_whitened_answers_of_one_organization() -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))).astype(np.float32)
    seen = Widest.of([{"left": values}], "left", 3)([{"left": values}])
    assert np.cov(seen.T) == pytest.approx(np.eye(3), abs=0.01)
