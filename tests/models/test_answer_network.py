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
    same = [{"left": np.ones((50, 2), dtype=np.float32)}]
    assert AnswerNetwork.fit(same, np.arange(50) % 3, 3, None, seed=0) is None


def variances(answers: Any) -> dict[str, Any]:
    """Of what a network sees of each organization."""
    network = AnswerNetwork.fit(answers, np.arange(300) % 3, 3, None, seed=0)
    assert network is not None
    return {one.organization: one(answers).var(axis=0, dtype=np.float64) for one in network.inputs}


def drawn(**widths: float) -> Any:
    """Answers of normal numbers, of each organization with its own spread."""
    rng = np.random.default_rng(0)
    return [{name: (by * rng.normal(size=(300, 4))).astype(np.float32) for name, by in widths.items()}]


def test_who_found_more_is_heard_louder_by_the_root_of_it() -> None:
    seen = variances(drawn(much=9.0, some=1.0, little=0.1))
    assert seen["much"].mean() / seen["some"].mean() == pytest.approx(9, rel=0.3)
    assert seen["some"].mean() / seen["little"].mean() == pytest.approx(10, rel=0.3)
    assert np.concatenate(list(seen.values())).mean() == pytest.approx(1, rel=0.01)


def test_huge_answers_drown_nobody() -> None:
    seen = variances(drawn(huge=1e15, some=1.0, other=1.0))
    assert seen["some"].mean() > 0.05
    assert len(seen["some"]) == 4


def test_the_widest_directions_of_all_are_seen_and_some_of_everybody(monkeypatch: Any) -> None:
    monkeypatch.setattr(answer_network, "DIRECTIONS", 6)
    seen = variances(drawn(much=9.0, some=1.0))
    assert {name: len(widths) for name, widths in seen.items()} == {"much": 4, "some": 2}
    many = [{f"m{at}": one["much"] for at in range(40)} for one in drawn(much=1.0)]
    assert {len(widths) for widths in variances(many).values()} == {1}


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


def test_directions_of_one_organization_come_widest_first() -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))).astype(np.float32)
    widest, variance = Widest.of([{"left": values}], "left")
    seen = values @ widest.along
    assert np.cov(seen.T) == pytest.approx(np.diag(variance), rel=0.01, abs=0.01)
    assert list(variance) == sorted(variance, reverse=True)


def test_numbers_are_learned_in_their_own_size() -> None:
    """Products of what two organizations say, and as many again of another size."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2)).astype(np.float32)
    y = np.column_stack([X[:, 0] * X[:, 1], 1e4 * X.sum(axis=1) + 3e5])
    answers = [{"left": X[:, :1], "right": X[:, 1:]}]
    some, rest = slice(0, 3000), slice(3000, None)
    network = AnswerNetwork.fit_numbers(
        [{name: values[some] for name, values in answers[0].items()}], y[some], None, seed=0
    )
    assert network is not None
    said = network.output([{name: values[rest] for name, values in answers[0].items()}])
    missed = np.square(said - y[rest]).mean(axis=0) / y[rest].var(axis=0)
    assert (missed < 0.2).all()


def test_numbers_of_rows_that_count_nothing_are_not_learned() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 1)).astype(np.float32)
    weight = np.where(X[:, 0] > 0, 1.0, 0.0)
    y = np.where(weight[:, None] > 0, X, 100.0)
    network = AnswerNetwork.fit_numbers([{"left": X}], y.astype(np.float64), weight, seed=0)
    assert network is not None
    said = network.output([{"left": X}])[:, 0]
    assert np.abs(said - X[:, 0])[weight > 0].mean() < 3


def test_answers_beyond_the_rounds_are_of_one_width() -> None:
    """How large an answer to a random target is says nothing of what was found."""
    rng = np.random.default_rng(0)
    said = {name: rng.normal(size=(400, 1)).astype(np.float32) for name in ("left", "right")}
    sizes = []
    for size in (1.0, 1e-3, 1e6):
        beyond = {name: size * values[::-1] for name, values in said.items()}
        network = AnswerNetwork.fit([said, beyond], np.arange(400) % 2, 2, None, seed=0, further=1)
        assert network is not None
        sizes.append(np.concatenate([one([said, beyond]).var(axis=0) for one in network.inputs]))
        assert network.weights[0].shape == (4, answer_network.HIDDEN_OF_TWO)
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=1e-3)
    np.testing.assert_allclose(sizes[2], sizes[0], rtol=1e-3)
    assert sizes[0][1] / sizes[0][0] == pytest.approx(answer_network.FURTHER**2, rel=0.2)
    silent = [said, {"left": np.ones((400, 1), dtype=np.float32)}]
    assert AnswerNetwork.fit(silent, np.arange(400) % 2, 2, None, seed=0, further=1) is not None


def test_an_offset_and_a_number_that_is_always_the_same_cost_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 1)).astype(np.float32)
    y = np.column_stack([X[:, 0].astype(np.float64) + 1e9, np.full(3000, 7.0)])
    network = AnswerNetwork.fit_numbers([{"left": X}], y, None, seed=0)
    assert network is not None
    said = network.output([{"left": X}])
    assert np.square(said[:, 0] - y[:, 0]).mean() < 0.1
    assert said[:, 1] == pytest.approx(7.0, abs=0.1)


def test_a_row_that_counts_nothing_is_not_there_whatever_it_says() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1)).astype(np.float32)
    y, weight, said = X.astype(np.float64), np.ones(2000), []
    weight[5] = 0.0
    for label, answer in ((0.0, 0.0), (1e6, 1e30)):
        y[5], X[5] = label, answer
        network = AnswerNetwork.fit_numbers([{"left": X}], y, weight, seed=0)
        assert network is not None
        said.append(network.output([{"left": X[:5]}]))
    np.testing.assert_array_equal(said[0], said[1])
    assert AnswerNetwork.fit_numbers([{"left": X}], y, np.zeros(2000), seed=0) is None
    classes = (X[:, 0] > 0).astype(np.intp)
    assert AnswerNetwork.fit([{"left": X}], classes, 2, np.zeros(2000), seed=0) is None


def test_every_direction_is_cut_by_its_own_width() -> None:
    """None of many rows of a wide direction among narrow ones, and far ones."""
    rng = np.random.default_rng(0)
    wide = (np.r_[30.0, np.ones(30)] * rng.normal(size=(3000, 31))).astype(np.float32)
    network = AnswerNetwork.fit([{"left": wide}], np.arange(3000) % 3, 3, None, seed=0)
    assert network is not None
    (one,) = network.inputs
    assert one.furthest is not None
    seen = one([{"left": wide}])
    assert (np.abs(seen) < one.furthest * 0.999).all()
    far = one([{"left": 1e6 * wide[:5]}])
    assert (np.abs(far) <= one.furthest * 1.001).all()
