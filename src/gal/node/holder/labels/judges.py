"""Which rows judge a new version: none of which a residual has left before, as far as there are others.

Roles are drawn for places among the rows. So rows change places: one that was sent and would judge takes that
of another, of the same class, which was not sent and would be fitted. With the rows of the version before
none has to: the same places are drawn again. In a cross-validation nobody changes places: the part that is
learned first has to be like the others, and new rows may not be like old ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gal.core.rows import Rows
from gal.node.holder.labels.labelled_tasks import LabelledRows

Bools = NDArray[np.bool_]


def with_unsent_judges(
    rows: LabelledRows, roles: Rows, sent: Bools, groups: NDArray[np.intp] | None, seed: int
) -> tuple[LabelledRows, int]:
    """The same rows, some at other places; and how many judge that were sent all the same.

    ``groups`` are class codes: with them, which places judge depends on the class of each. Validation rows
    come first where too few were not sent.
    """
    order, rng = np.arange(roles.n), np.random.default_rng([seed, roles.n])
    judging = np.flatnonzero(~roles.is_fit)
    first = np.isin(judging, roles.validation)
    judging = np.concatenate([judging[first], judging[~first]])
    codes = np.zeros(roles.n, dtype=np.intp) if groups is None else groups
    for code in np.unique(codes[judging[sent[judging]]]):
        wrong = judging[sent[judging] & (codes[judging] == code)]
        free = rng.permutation(np.flatnonzero(roles.is_fit & ~sent & (codes == code)))[: len(wrong)]
        wrong = wrong[: len(free)]
        order[wrong], order[free] = free, wrong
    moved = LabelledRows(rows.ids.take(order), rows.y[order], rows.n_without)
    return moved, int(sent[order][roles.judging].sum())
