"""Adding up: from the organizations' answers to outputs, by round and by organization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gal.core.contributing.coalitions import OwnModels
from gal.core.interactions.crossed_answers import Answered, CrossedModel
from gal.core.replies import Answers
from gal.core.state import Ensemble
from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


def first_output(ensemble: Ensemble, n_rows: int, initial: Floats | None) -> Floats:
    """F^0 of these rows, shape (n, K)."""
    constant = np.asarray(ensemble.initial, dtype=np.float64) if ensemble.initial is not None else initial
    return np.broadcast_to(np.asarray(constant), (n_rows, ensemble.n_outputs)).astype(np.float64)


def staged_outputs(ensemble: Ensemble, answers: Answers, initial: Floats | None = None) -> Iterator[Floats]:
    """F^1, F^2, ... F^T of the rows answered, with the coefficients of the final model."""
    output = first_output(ensemble, len(answers.degraded), initial)
    for index, counts in enumerate(ensemble.coefficients):
        output = output.copy()
        for name in sorted(counts):
            output += counts[name] * answers.values[name][index].astype(np.float64)
        yield output


def final_output(ensemble: Ensemble, answers: Answers, initial: Floats | None = None) -> Floats:
    """F^T, shape (n, K)."""
    output = first_output(ensemble, len(answers.degraded), initial)
    for index, counts in enumerate(ensemble.coefficients):
        for name in sorted(counts):
            output += counts[name] * answers.values[name][index].astype(np.float64)
    return output


@at_most(1)
def closed_output(ensemble: Ensemble, answers: Answers, output: Floats) -> Floats:
    """F^T as far as the closing model and crossed residuals move it, shape (n, K); ``output`` is F^T.

    Rows with a missing answer stay where the rounds put them: the mean that stands
    in says nothing about the row.
    """
    if (ensemble.closing is None and ensemble.crossing is None) or answers.degraded.all():
        return output
    used = [
        {name: answers.values[name][index] for name in counts}
        for index, counts in enumerate(ensemble.coefficients)
    ]
    closed = output if ensemble.closing is None else ensemble.closing.output(output, used)
    if ensemble.crossing is not None:
        parts, said = _crossed_answers(ensemble, ensemble.crossing, answers)
        closed = ensemble.crossing.output(closed, output, parts, said, used)
    return np.where(answers.degraded[:, None], output, closed)


def _crossed_answers(
    ensemble: Ensemble, crossing: CrossedModel, answers: Answers
) -> tuple[dict[str, Floats], dict[Answered, Floats32]]:
    """What each organization added to F^T, and the answers to crossed residuals that are needed."""
    place = {round: index for index, round in enumerate(ensemble.asked_rounds)}
    needed = crossing.crossings.answered
    said = {(round, name): answers.values[name][place[round]] for round, name in needed}
    counted = {name for counts in ensemble.coefficients for name in counts}
    parts = outputs_by_organization(ensemble, answers)
    return {name: parts[name] for name in counted}, said


def own_models(ensemble: Ensemble, answers: Answers) -> OwnModels:
    """The label holder's own models, with what they need of these answers beside the rounds'."""
    crossing = ensemble.crossing
    said = {} if crossing is None else _crossed_answers(ensemble, crossing, answers)[1]
    return OwnModels(ensemble.closing, crossing, said)


def answers_by_round(ensemble: Ensemble, answers: Answers) -> list[dict[str, Floats32]]:
    """By round that is used: all answers, for a private refit; crossed ones come as one round more."""
    rounds = [
        {name: values[index] for name, values in answers.values.items()} for index in range(ensemble.n_rounds)
    ]
    if ensemble.crossing is None:
        return rounds
    parts, said = _crossed_answers(ensemble, ensemble.crossing, answers)
    return [*rounds, ensemble.crossing.crossings.products(parts, said)]


def outputs_by_organization(ensemble: Ensemble, answers: Answers) -> dict[str, Floats]:
    """What each organization adds to F^T, shape (n, K): with F^0 they sum to the output exactly."""
    shape = (len(answers.degraded), ensemble.n_outputs)
    parts = {name: np.zeros(shape) for name in ensemble.organizations}
    for index, counts in enumerate(ensemble.coefficients):
        for name, count in counts.items():
            parts[name] += count * answers.values[name][index].astype(np.float64)
    return parts
