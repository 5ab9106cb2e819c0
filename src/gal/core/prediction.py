"""Adding up: from the organizations' answers to outputs, by round and by organization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gal.core.passes import added_by_name, added_to
from gal.core.probes.kept_probes import ReplyKey
from gal.core.replies import LocalPredictions
from gal.core.state import Ensemble
from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


def first_output(ensemble: Ensemble, n_rows: int, initial: Floats | None) -> Floats:
    """F^0 of these rows, shape (n, K)."""
    constant = np.asarray(ensemble.initial, dtype=np.float64) if ensemble.initial is not None else initial
    return np.broadcast_to(np.asarray(constant), (n_rows, ensemble.n_outputs)).astype(np.float64)


def staged_outputs(
    ensemble: Ensemble, answers: LocalPredictions, initial: Floats | None = None
) -> Iterator[Floats]:
    """F^1, F^2, ... F^T of the rows answered, with the coefficients of the final model."""
    output = first_output(ensemble, len(answers.degraded), initial)
    for counts, values in zip(ensemble.coefficients, answers_by_round(ensemble, answers), strict=True):
        output = added_to(output, [counts], [values])
        yield output


def final_output(ensemble: Ensemble, answers: LocalPredictions, initial: Floats | None = None) -> Floats:
    """F^T, shape (n, K)."""
    first = first_output(ensemble, len(answers.degraded), initial)
    return added_to(first, ensemble.coefficients, answers_by_round(ensemble, answers))


@at_most(1)
def stacked_output(ensemble: Ensemble, answers: LocalPredictions, output: Floats) -> Floats:
    """F^T as far as the stacker and interaction probes move it, shape (n, K); ``output`` is F^T.

    Rows with a missing answer stay where the rounds put them: the mean that stands
    in says nothing about the row.
    """
    if (ensemble.stacker is None and ensemble.probes is None) or answers.degraded.all():
        return output
    used, closed = answers_by_round(ensemble, answers), output
    if ensemble.stacker is not None:
        closed = ensemble.stacker.output(output, used)
    if ensemble.probes is not None:
        parts = added_by_name(ensemble.coefficients, used)
        closed = ensemble.probes.output(closed, output, parts, probe_answers(ensemble, answers))
    return np.where(answers.degraded[:, None], output, closed)


def probe_answers(ensemble: Ensemble, answers: LocalPredictions) -> dict[ReplyKey, Floats32]:
    """The replies to interaction probes that are needed."""
    place = {round: index for index, round in enumerate(ensemble.requested_rounds)}
    needed = [] if ensemble.probes is None else ensemble.probes.needed
    return {(round, name): answers.values[name][place[round]] for round, name in needed}


def answers_by_round(ensemble: Ensemble, answers: LocalPredictions) -> list[dict[str, Floats32]]:
    """By round that is used: all answers."""
    return [
        {name: values[index] for name, values in answers.values.items()} for index in range(ensemble.n_rounds)
    ]
