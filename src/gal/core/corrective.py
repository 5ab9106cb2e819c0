"""Fully corrective learning: refit the coefficients of all past rounds at once, without traffic.

The label holder has kept every reply, so she can minimise her loss over all coefficients
``w_m^t * eta^t >= 0`` together. This fits better and overfits more easily, so a refit counts only
where rows that did not take part in it agree: the validation rows, or a cross-validation over the
search rows where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gal.core.line_search import mean_loss
from gal.core.losses import Loss
from gal.core.passes import blocks

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]
Coefficients = tuple[Mapping[str, float], ...]

CROSS_VALIDATION = 5


def refit(
    loss: Loss,
    y: Floats,
    initial: Floats,
    fitted: Sequence[Mapping[str, Floats32]],
    coefficients: Coefficients,
    *,
    search: Rows,
    validation: Rows,
    sample_weight: Floats | None = None,
) -> Coefficients | None:
    """Better coefficients for ``initial + sum of coefficient * fitted``; None where they are not."""
    keys = [(t, name) for t, replies in enumerate(fitted) for name in replies]
    columns = [fitted[t][name] for t, name in keys]
    start = np.array([coefficients[t].get(name, 0.0) for t, name in keys])
    if sample_weight is not None:  # a part of the cross-validation must not weigh nothing
        search = search[sample_weight[search] > 0]

    def solve(rows: Rows) -> Floats:
        return _minimise(loss, y, initial, columns, start, rows, sample_weight)

    def score(values: Floats, rows: Rows) -> float:
        output = _output(initial, columns, values, rows)
        return mean_loss(loss, y[rows], output, None if sample_weight is None else sample_weight[rows])

    if len(validation):
        better = solve(search)
        accepted = score(better, validation) < score(start, validation)
    else:
        accepted = _cross_validates(solve, score, start, search)
        better = solve(search) if accepted else start
    if not accepted:
        return None
    result: list[dict[str, float]] = [{} for _ in fitted]
    for (t, name), value in zip(keys, better, strict=True):
        if value != 0:
            result[t][name] = float(value)
    return tuple(result)


def _cross_validates(
    solve: Callable[[Rows], Floats], score: Callable[[Floats, Rows], float], start: Floats, search: Rows
) -> bool:
    parts = np.arange(len(search)) % CROSS_VALIDATION
    if len(search) < 2 * CROSS_VALIDATION:
        return False
    gain = []
    for part in range(CROSS_VALIDATION):
        left_out = search[parts == part]
        values = solve(search[parts != part])
        gain.append(score(start, left_out) - score(values, left_out))
    return bool(np.mean(gain) > 0)


def _minimise(
    loss: Loss,
    y: Floats,
    initial: Floats,
    columns: Sequence[Floats32],
    start: Floats,
    rows: Rows,
    sample_weight: Floats | None,
) -> Floats:
    labels = y[rows]
    weight = None if sample_weight is None else sample_weight[rows]
    mass = float(len(rows)) if weight is None else float(weight.sum())
    base = initial if len(initial) == 1 else initial[rows]
    picked = [column[rows] for column in columns]
    sizes = np.array(
        [float(np.sqrt(np.mean(np.square(column, dtype=np.float64)))) or 1.0 for column in picked]
    )

    def objective(scaled: Floats) -> tuple[float, Floats]:
        values = scaled / sizes
        total, slope = 0.0, np.zeros(len(values))
        for block in blocks(len(rows), picked[0].shape[1]):
            part = np.array([column[block] for column in picked], dtype=np.float64)
            output = (base if len(base) == 1 else base[block]) + np.tensordot(values, part, axes=1)
            row_weight = np.ones(len(output)) if weight is None else weight[block]
            total += float(loss.value(labels[block], output) @ row_weight)
            pull = loss.pseudo_residual(labels[block], output) * row_weight[:, None]
            slope -= np.tensordot(part, pull, axes=2)
        return total / mass, slope / mass / sizes

    # Its stopping rules are absolute: measure the loss in units of its size at the start, and do
    # not stop by the slope, whose size depends on the unit of the labels.
    unit = abs(objective(np.maximum(start * sizes, 0.0))[0]) or 1.0

    def in_units(scaled: Floats) -> tuple[float, Floats]:
        value, slope = objective(scaled)
        return value / unit, slope / unit

    found = minimize(
        in_units,
        start * sizes,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        options={"maxiter": 200, "ftol": 1e-12, "gtol": 0.0},
    )
    return np.asarray(found.x / sizes)


def _output(initial: Floats, columns: Sequence[Floats32], values: Floats, rows: Rows) -> Floats:
    base = initial if len(initial) == 1 else initial[rows]
    output = np.broadcast_to(base, (len(rows), columns[0].shape[1])).copy()
    for value, column in zip(values, columns, strict=True):
        output += value * column[rows]
    return output
