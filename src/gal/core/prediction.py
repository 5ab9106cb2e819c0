"""Adding up: from the organizations' answers to outputs, by round and by organization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gal.core.probes.kept_probes import Probes, ReplyKey
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
    """F^T as far as the stacker and interaction probes move it, shape (n, K); ``output`` is F^T.

    Rows with a missing answer stay where the rounds put them: the mean that stands
    in says nothing about the row.
    """
    if (ensemble.closing is None and ensemble.probes is None) or answers.degraded.all():
        return output
    used = [
        {name: answers.values[name][index] for name in counts}
        for index, counts in enumerate(ensemble.coefficients)
    ]
    closed = output if ensemble.closing is None else ensemble.closing.output(output, used)
    if ensemble.probes is not None:
        closed = ensemble.probes.output(closed, output, *_probed(ensemble, ensemble.probes, answers))
    return np.where(answers.degraded[:, None], output, closed)


def _probed(
    ensemble: Ensemble, probes: Probes, answers: Answers
) -> tuple[dict[str, Floats], dict[ReplyKey, Floats32]]:
    """What each organization added to F^T, and the replies to probes that are needed."""
    place = {round: index for index, round in enumerate(ensemble.asked_rounds)}
    said = {(round, name): answers.values[name][place[round]] for round, name in probes.needed}
    counted = {name for counts in ensemble.coefficients for name in counts}
    parts = outputs_by_organization(ensemble, answers)
    return {name: parts[name] for name in counted}, said


def probe_answers(ensemble: Ensemble, answers: Answers) -> dict[ReplyKey, Floats32]:
    """The replies to interaction probes that are needed."""
    return {} if ensemble.probes is None else _probed(ensemble, ensemble.probes, answers)[1]


def answers_by_round(ensemble: Ensemble, answers: Answers) -> list[dict[str, Floats32]]:
    """By round that is used: all answers, for a private refit."""
    return [
        {name: values[index] for name, values in answers.values.items()} for index in range(ensemble.n_rounds)
    ]


def outputs_by_organization(ensemble: Ensemble, answers: Answers) -> dict[str, Floats]:
    """What each organization adds to F^T, shape (n, K): with F^0 they sum to the output exactly."""
    shape = (len(answers.degraded), ensemble.n_outputs)
    parts = {name: np.zeros(shape) for name in ensemble.organizations}
    for index, counts in enumerate(ensemble.coefficients):
        for name, count in counts.items():
            parts[name] += count * answers.values[name][index].astype(np.float64)
    return parts
