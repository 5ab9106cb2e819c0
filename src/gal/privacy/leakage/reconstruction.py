"""The other side: what the label holder can learn of an assistant's columns from its fitted values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gal.models.tabular import TableEncoder, as_table

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RESAMPLES = 300
FOLDS = 5


@dataclass(frozen=True)
class Explained:
    """R2 on rows whose columns are not known, with a bootstrap interval of 95 %; 1
    is all of a column, 0 nothing.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Reconstruction:
    """One column of one organization, guessed at the label holder's side."""

    organization: str
    column: str
    with_answers: Explained
    """From the organization's answers about the row, and what the label holder has herself."""
    without: Explained
    """From her own columns and labels alone."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "organization": self.organization,
            "column": self.column,
            "with": vars(self.with_answers),
            "without": vars(self.without),
        }


def reconstruct(
    answers: Mapping[str, Floats],
    views: Mapping[str, Any],
    own: Floats,
    known: Mask,
    rng: np.random.Generator,
) -> list[Reconstruction]:
    """How well each column of ``views`` follows from the ``answers`` (n, T, K),
    where ``known`` rows teach it.

    ``own`` (n, d) is what the label holder has anyway: her columns and labels as numbers. A straight and a
    curved ridge are tried; cross-validation on the known rows chooses for each column.
    """
    found = []
    for name, view in views.items():
        if name not in answers:
            continue
        said = np.nan_to_num(answers[name].reshape(len(own), -1))
        columns, places, labels = _as_numbers(view)
        with_them = _guessed(np.hstack([own, said]), columns, known)
        without = _guessed(own, columns, known)
        resamples = rng.integers(0, int((~known).sum()), (RESAMPLES, int((~known).sum())))
        for column, place in zip(labels, places, strict=True):
            truth = columns[~known][:, place]
            scores = [_explained(truth, made[~known][:, place], resamples) for made in (with_them, without)]
            found.append(Reconstruction(name, column, *scores))
    return found


def numbers_of(table: Any) -> Floats:
    """A table of any columns as standardised numbers and one-hot categories, without missing values."""
    encoder = TableEncoder().fit(as_table(table))
    return encoder.wide(encoder.codes(as_table(table)))


def _as_numbers(view: Any) -> tuple[Floats, list[slice], list[str]]:
    """Columns as numbers (categories one-hot), where each of the view's columns is in
    them, and what they are called.
    """
    encoder = TableEncoder().fit(as_table(view))
    codes = encoder.codes(as_table(view))
    blocks, places, start = [], [], 0
    for j, categories in enumerate(encoder.categories_):
        column = codes[:, [j]]
        block = (column == np.arange(len(categories))).astype(np.float64) if categories else _filled(column)
        blocks.append(block)
        places.append(slice(start, start + block.shape[1]))
        start += block.shape[1]
    names = [str(name) for name in getattr(view, "columns", range(len(places)))]
    return np.hstack(blocks), places, names


def _filled(column: Floats) -> Floats:
    known = ~np.isnan(column)
    mean = float(column[known].mean()) if known.any() else 0.0
    spread = float(column[known].std()) if known.any() else 0.0
    return np.where(known, (column - mean) / (spread or 1.0), 0.0)


def _guessed(inputs: Floats, columns: Floats, known: Mask) -> Floats:
    """All columns from the inputs, each by what is best where it is known: a straight
    or a curved ridge, or its mean.
    """
    target = columns[known]
    made = [np.tile(target.mean(axis=0), (len(columns), 1))]
    errors = [np.square(target - target.mean(axis=0)).sum(axis=0)]
    folds = KFold(min(FOLDS, int(known.sum())), shuffle=True, random_state=0)
    alphas = np.logspace(-3, 4, 15)
    straight = make_pipeline(StandardScaler(), RidgeCV(alphas, alpha_per_target=target.shape[1] > 1))
    curved = make_pipeline(StandardScaler(), KernelRidge(alpha=0.1, kernel="rbf"))
    for model in (straight, curved) if inputs.shape[1] else ():
        left_out = cross_val_predict(model, inputs[known], target, cv=folds).reshape(target.shape)
        errors.append(np.square(left_out - target).sum(axis=0))
        made.append(np.asarray(model.fit(inputs[known], target).predict(inputs)).reshape(columns.shape))
    best = np.argmin(errors, axis=0)
    return np.stack(made)[best, :, np.arange(columns.shape[1])].T


def _explained(truth: Floats, made: Floats, resamples: NDArray[np.integer[Any]]) -> Explained:
    wrong = np.square(truth - made).sum(axis=1)
    spread = np.square(truth - truth.mean(axis=0)).sum(axis=1)
    if not spread.sum() > 0:
        return Explained(0.0, 0.0, 0.0)  # a constant column: there is nothing to reveal
    drawn = 1 - wrong[resamples].sum(axis=1) / np.maximum(spread[resamples].sum(axis=1), 1e-12)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Explained(float(1 - wrong.sum() / spread.sum()), float(low), float(high))
