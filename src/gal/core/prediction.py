"""Adding up: from the organizations' answers to outputs, by round and by organization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from gal.core.missing import features
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
def stacked_output(
    ensemble: Ensemble, answers: LocalPredictions, output: Floats, initial: Floats | None = None
) -> Floats:
    """The output (n, K) of the whole model; ``output`` is F^T.

    The stacker and interaction probes move rows that all have predicted. In other rows, the model of the
    replies that are there takes their place; without kept replies, the mean stands in for a missing one.
    """
    if answers.degraded.any():
        output = _without_missing(ensemble, answers, output, initial)
    if (ensemble.stacker is None and ensemble.probes is None) or answers.degraded.all():
        return output
    used, closed = answers_by_round(ensemble, answers), output
    if ensemble.stacker is not None:
        closed = ensemble.stacker.output(output, used)
    if ensemble.probes is not None:
        parts = added_by_name(ensemble.coefficients, used)
        closed = ensemble.probes.output(closed, output, parts, probe_answers(ensemble, answers))
    return np.where(answers.degraded[:, None], output, closed)


def missing_patterns(
    gaps: Mapping[str, NDArray[np.bool_]],
) -> list[tuple[tuple[str, ...], NDArray[np.intp]]]:
    """Groups of organizations that did not predict some rows, and these rows; ``gaps``: by organization."""
    names = sorted(gaps)
    if not names:
        return []
    table = np.column_stack([gaps[name] for name in names])
    rows = np.flatnonzero(table.any(axis=1))
    patterns, which = np.unique(table[rows], axis=0, return_inverse=True)
    return [
        (tuple(name for name, gone in zip(names, pattern, strict=True) if gone), rows[which.ravel() == index])
        for index, pattern in enumerate(patterns)
    ]


def _without_missing(
    ensemble: Ensemble, answers: LocalPredictions, output: Floats, initial: Floats | None
) -> Floats:
    """The same output where all have predicted; elsewhere that of the replies that are there."""
    kept = ensemble.kept_replies
    if kept is None:
        return output
    found, first = output.copy(), first_output(ensemble, len(output), initial)
    by_round = answers_by_round(ensemble, answers)
    for missing, rows in missing_patterns(answers.gaps):
        if (model := kept.without(missing)) is not None:
            replies = [{name: one[rows] for name, one in done.items()} for done in by_round]
            found[rows] = model.output(first[rows], features(ensemble.coefficients, replies))
    return found


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
