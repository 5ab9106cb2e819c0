"""What an organization's answers would tell of its own columns, tried at home before it says yes to a task.

The label holder is played twice. Honest, it sends residuals of a label that hangs on all columns a little.
Curious, it knows the columns of some rows, and sends them as the residuals of these rows: a model that
learns them there says them of everybody else.

Where it gets the sum of several organizations' answers, both are tried on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.requests import FitRequest, Terms
from gal.core.rows import all_rows
from gal.engine.organization import Organization
from gal.errors import InvalidInputError
from gal.privacy.leakage.reconstruction import (
    Explained,
    columns_as_numbers,
    columns_from_answers,
    explained_columns,
)
from gal.threads import at_most

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
FEWEST_KNOWN = 10
"""Rows whose columns it knows; from fewer nobody learns to read the others."""
USUALLY_KNOWN = 50
"""Rows whose columns it is taken to know, where there are as many."""
MOST_ROWS = 500
"""Of a table are tried: with more of them answers tell a little more, and it takes longer."""
LONGEST = 20
"""Fits that are tried, at most: rounds of a task, and as many for each part of its cross-validation."""


@dataclass(frozen=True)
class ToldColumn:
    """How much of one column the answers of a task tell: R2 on rows that it does not know."""

    column: str
    honest: Explained
    """With the residuals of an ordinary label."""
    curious: Explained
    """With residuals that were chosen to tell it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"column": self.column, "honest": vars(self.honest), "curious": vars(self.curious)}


@dataclass(frozen=True)
class ToldByAnswers:
    """All columns, and what was tried."""

    columns: tuple[ToldColumn, ...]
    n_rows: int
    n_known: int
    rounds: int
    outputs: int
    added_to: int = 0
    """So many others' answers, in the sum that it gets; 0: it gets the answer itself."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self) | {"columns": [one.to_json() for one in self.columns]}


@at_most(1)
def own_columns_explained(
    organization: Organization,
    rounds: int,
    outputs: int,
    *,
    n_known: int = 50,
    fewest_weighted: int = 0,
    as_sent: Callable[[NDArray[Any]], NDArray[Any]] = lambda values: values,
    beside: Sequence[Organization] = (),
    seed: int = 0,
) -> ToldByAnswers:
    """Try both label holders on the view of this organization, in so many rounds of so many outputs.

    It knows ``n_known`` rows. Rows may be weighed away where the equivalent of ``fewest_weighted`` stays.
    ``as_sent`` makes of fitted values what would leave: rounded, or with noise. Their sum with the answers of
    those ``beside`` it, who know the same rows, is all that it gets of them.
    """
    n, rng = int(organization.view.shape[0]), np.random.default_rng(seed)
    if not FEWEST_KNOWN <= n_known <= n - FEWEST_KNOWN:
        raise InvalidInputError(
            f"of {n} rows between {FEWEST_KNOWN} and {n - FEWEST_KNOWN} can be known to the label holder, "
            f"got {n_known}"
        )
    known = np.zeros(n, dtype=np.bool_)
    known[rng.choice(n, n_known, replace=False)] = True
    numbers = columns_as_numbers(organization.view)[0]
    together = (organization, *beside)
    honest = _answers(together, _ordinary(numbers, outputs, rng), rounds, None, as_sent)
    weight = known.astype(np.float64) if n_known >= fewest_weighted else None
    curious = _answers(together, _chosen(numbers, known, outputs), rounds, weight, as_sent)
    views, nothing = {organization.name: organization.view}, np.empty((n, 0))
    read, reread = (
        columns_from_answers({organization.name: said}, views, nothing, known, rng)
        for said in (honest, curious)
    )
    taken = [
        explained_columns(organization.view, guess, known, rng)
        for guess in _taken_at_their_word(curious.reshape(n, -1), numbers, known)
    ]
    columns = [
        ToldColumn(
            one.column, one.with_messages, max(other.with_messages, *direct, key=lambda each: each.value)
        )
        for one, other, *direct in zip(read, reread, *taken, strict=True)
    ]
    return ToldByAnswers(tuple(columns), n, n_known, rounds, outputs, len(beside))


def pretended(organization: Organization, count: int, seed: int = 0) -> list[Organization]:
    """So many others as they could stand beside an organization in a sum: with its model and its columns,
    each of them shuffled. What they say hides what it says, and tells nothing of any row.
    """
    rng = np.random.default_rng([seed, count])
    return [
        Organization(f"pretended {place}", _shuffled(organization.view, rng), organization.model)
        for place in range(1, count + 1)
    ]


def _shuffled(view: Any, rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(view).reset_index(drop=True)
    columns = {
        name: column.iloc[rng.permutation(len(table))].reset_index(drop=True)
        for name, column in table.items()
    }
    return pd.DataFrame(columns)


def _taken_at_their_word(said: Floats, numbers: Floats, known: Mask) -> Iterator[Floats]:
    """The columns (n, D) as the answers (n, TK) to what was chosen have them: each is the mean of those about
    it, stretched to its spread in known rows; either as these are, or as the others.
    """
    d = numbers.shape[1]
    about = [said[:, np.arange(said.shape[1]) % d == j] for j in range(d)]
    answer = np.stack([one.mean(axis=1) if one.shape[1] else np.zeros(len(said)) for one in about], axis=1)
    centred = answer - answer[~known].mean(axis=0)
    mean, spread = numbers[known].mean(axis=0), numbers[known].std(axis=0)
    for rows in (known, ~known):
        yield mean + centred * spread / np.maximum(answer[rows].std(axis=0), 1e-12)


Residuals = Iterator[Callable[[Floats], Floats]]
"""Of each round: the residual (n, K), from the sum of the answers so far."""


def _ordinary(numbers: Floats, outputs: int, rng: np.random.Generator) -> Residuals:
    """What is left of labels that hang on all columns a little, and on chance as much."""
    label = numbers @ rng.normal(size=(numbers.shape[1], outputs))
    label = (label - label.mean(axis=0)) / np.maximum(label.std(axis=0), 1e-12)
    label += rng.normal(size=label.shape)
    while True:
        yield lambda answered: label - answered


def _chosen(numbers: Floats, known: Mask, outputs: int) -> Residuals:
    """One column after another, as far as it is known; 0 elsewhere."""
    columns = np.where(known[:, None], numbers - numbers[known].mean(axis=0), 0.0)
    start = 0
    while True:
        taken = columns[:, np.arange(start, start + outputs) % columns.shape[1]]
        yield lambda _, taken=taken: taken  # type: ignore[misc]
        start += outputs


def _answers(
    together: Sequence[Organization],
    residuals: Residuals,
    rounds: int,
    weight: Floats | None,
    as_sent: Callable[[NDArray[Any]], NDArray[Any]],
) -> Floats:
    """Answers (n, T, K) to so many rounds: of the first of these, or the mean of all."""
    n, said = int(together[0].view.shape[0]), list[Floats]()
    total = np.zeros(())
    for round, residual_after in zip(range(1, rounds + 1), residuals, strict=False):
        residual = residual_after(total)
        scale = float(np.abs(residual).max()) or 1.0
        terms = Terms(all_rows(n), residual.shape[1], rounds, seed=0)
        names = tuple(one.name for one in together)
        request = FitRequest(round, (residual / scale).astype(np.float32), names, weight)
        fitted, *others = (np.asarray(one.fit(request, terms), dtype=np.float64) for one in together)
        said.append((as_sent(fitted) + sum(others)) / len(together))
        total = total + scale * said[-1]
    for one in together:
        one.models.clear()
    return np.stack(said, axis=1)
