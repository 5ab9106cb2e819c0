"""The leak meter: attacks what was really sent, and counts how often it is right.

Canaries are rows whose labels are drawn by chance, so that whatever tells them was in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import Loss, classification_loss
from gal.core.rows import Rows
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.privacy.leakage.attacks import ATTACKS
from gal.privacy.leakage.reconstruction import (
    FEWEST,
    Reconstruction,
    columns_from_replies,
    columns_from_residuals,
    numbers_of,
)
from gal.privacy.leakage.report import AttackResult, LeakReport, Share
from gal.privacy.leakage.transcript import SentRows, Transcript
from gal.privacy.mechanisms.contract import statement
from gal.threads import at_most

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]

MOST_TAUGHT = 2000
"""Rows from which the label holder learns to reconstruct columns."""

MOST_READING = 500
"""Rows from which an organization learns to read residuals."""

ATTACKERS = 8
"""Organizations at most, those with most columns, that try to read columns from residuals."""


class Canaries(NamedTuple):
    """Labels with canaries among them."""

    labels: NDArray[Any]
    """As given, but those of the canaries are drawn uniformly; shape (n,) or (n, K)."""
    mask: NDArray[np.bool_]
    """True at the canaries, (n,)."""


def plant_canaries(
    y: Any,
    rng: np.random.Generator,
    *,
    fraction: float = 0.1,
    count: int | None = None,
    classes: Any = None,
    lower: float | None = None,
    upper: float | None = None,
) -> Canaries:
    """Draw the labels of some rows uniformly from the public ``classes``, or from the
    bounds ``lower`` and ``upper``.

    A canary's label has nothing to do with its features, so no attacker can know it but from a message.
    Numbers are drawn from the two bounds only, which makes of them a guess between two. Canaries are a
    ``fraction`` of the rows, or ``count`` of them.

    >>> labels, mask = plant_canaries(["no"] * 10, np.random.default_rng(1), count=4, classes=["no", "yes"])
    >>> int(mask.sum()), int((labels == "yes").sum())
    (4, 2)
    """
    given = np.asarray(y)
    wanted = round(fraction * len(given)) if count is None else count
    if not 1 <= wanted <= len(given):
        raise InvalidOptionError(
            f"{wanted} canaries among {len(given)} rows: plant at least one, and no more than rows"
        )
    values = np.array([lower, upper], dtype=np.float64) if classes is None else np.asarray(classes)
    if len(np.unique(values[values == values])) < 2 or (classes is None and not values[0] < values[1]):
        raise InvalidOptionError(
            "canaries need at least two public classes, or for numbers the public bounds lower < upper, got "
            f"{values.tolist()!r:.200}"
        )
    if classes is None and given.dtype.kind not in "iuf":
        raise InvalidInputError("bounds are for labels that are numbers: pass the public classes of these")
    mask = np.zeros(len(given), dtype=np.bool_)
    mask[rng.choice(len(given), size=wanted, replace=False)] = True
    labels = given.astype(np.result_type(given, values) if given.dtype.kind != "O" else object)
    drawn = values[rng.integers(0, len(values), wanted)]
    labels[mask] = drawn if given.ndim == 1 else drawn[:, None]
    return Canaries(labels, mask)


@dataclass(frozen=True)
class Truth:
    """The true labels of the rows that something was sent of."""

    labels: Floats
    """As a loss wants them, (n, width)."""
    codes: Codes
    """What attacks guess, (n,): class codes; of numbers 1 above the mean (of several outputs: theirs)."""
    classes: int
    canary: Mask
    numbers: bool


@at_most(1)
def measure_leakage(
    transcript: Transcript,
    y: Any,
    *,
    roles: Rows,
    label_holder: str | None = None,
    privacy: Any = None,
    classes: Any = None,
    canaries: Any = None,
    views: Mapping[str, Any] | None = None,
    own_view: Any = None,
    known: float = 0.1,
    sum_name: str | None = None,
    most_rows: int = 20_000,
    seed: int = 0,
) -> LeakReport:
    """Attack the labels of a task, and all organizations' columns.

    transcript: what was sent.
    y: the label holder's true labels of all rows, (n,) or, for numbers, (n, K); the canaries' drawn ones.
    roles: the task's row roles, such as ``model.task_rows_``.
    label_holder: its own organization's name; what only it received was not sent.
    privacy: the mechanism, or None. classes: the public classes; None for numbers.
    canaries: mask (n,) of rows whose labels were drawn by ``plant_canaries``.
    views, own_view: the others' columns by name, and the label holder's; None: they are not attacked.
    known: the share of rows whose columns (and labels) the attackers on columns know.
    sum_name: of replies that came as one sum.
    most_rows: of more rows a sample is attacked, with all canaries in it that it can hold.
    """
    rng, guarantee = np.random.default_rng(seed), statement(privacy)
    own = {} if own_view is None else {label_holder or "the label holder": own_view}
    sent, n = transcript.sent(roles, label_holder), len(np.asarray(y))
    planted = np.zeros(n, dtype=np.bool_) if canaries is None else np.asarray(canaries)
    if n <= int(sent.rows.max()) or planted.dtype != np.bool_ or planted.shape != (n,):
        raise InvalidInputError(
            f"{n} labels and canaries of {planted.dtype} of shape {planted.shape}, for at least "
            f"{sent.rows.max() + 1} rows: pass labels of all rows, and a mask of canaries that is as long"
        )
    if len(sent.rows) > most_rows:
        order = rng.permutation(len(sent.rows))
        first = planted[sent.rows[order]]
        sent = sent.take(np.sort(np.concatenate([order[first][: most_rows // 2], order[~first]])[:most_rows]))
    truth = _read_labels(y, classes, planted, sent)
    if not 0 <= known < 1:
        raise InvalidOptionError(f"known must be a share from 0 to below 1, got {known!r}")
    taught = np.zeros(len(sent.rows), dtype=np.bool_)
    taught[rng.choice(len(taught), round(known * len(taught)), replace=False)] = True
    outputs = sent.residual.shape[3]
    loss: Loss | None = None
    if not truth.numbers:
        loss = classification_loss("log_loss", truth.classes, one_output=outputs == 1)
        loss = loss if privacy is None else privacy.public_loss(loss)
    shown = views if views and int(taught.sum()) >= FEWEST else {}
    return LeakReport(
        mechanism=guarantee.words,
        cost=guarantee.cost,
        classes=truth.classes,
        numbers=truth.numbers,
        rows=len(sent.rows),
        planted=int(truth.canary.sum()),
        known=int(taught.sum()),
        rounds=sent.residual.shape[1],
        messages=sent.n_messages,
        attacks=tuple(attack_canaries(sent.residual[truth.canary], truth.codes[truth.canary])),
        reconstructions=tuple(_from_replies(sent, shown, own_view, truth.labels, taught, rng, sum_name)),
        received=tuple(_from_residuals(sent, own, shown, taught, rng, loss)),
        summed=sum_name is not None,
        secure=guarantee.secure,
    )


def attack_canaries(residual: Floats, truth: Codes) -> list[AttackResult]:
    """Every attack on the messages (n, T, 1 + P, K) about canaries; ``truth`` (n,) are their codes."""
    return [
        AttackResult(one.name, one.sentence, Share(int((one.guess(residual) == truth).sum()), len(truth)))
        for one in ATTACKS
    ]


def _read_labels(y: Any, classes: Any, canaries: Mask, sent: SentRows) -> Truth:
    given, canary = np.asarray(y)[sent.rows], canaries[sent.rows]
    if classes is not None:
        known = sorted(np.asarray(classes).tolist())
        place = {one: index for index, one in enumerate(known)}
        try:
            codes = np.array([place[one] for one in given.tolist()], dtype=np.intp)
        except KeyError as error:
            raise InvalidLabelsError(
                f"label {error.args[0]!r} is none of the classes {known!r:.200}"
            ) from error
        return Truth(codes.astype(np.float64)[:, None], codes, len(known), canary, numbers=False)
    if given.dtype.kind not in "iufb":
        raise InvalidLabelsError("labels that are no numbers have classes: pass the public ones as classes=")
    labels = given.reshape(len(given), -1).astype(np.float64)
    mean = labels.mean(axis=1)
    return Truth(labels, np.asarray(mean > mean.mean(), dtype=np.intp), 2, canary, numbers=True)


def _from_replies(
    sent: SentRows,
    views: Mapping[str, Any],
    own_view: Any,
    labels: Floats,
    known_rows: Mask,
    rng: np.random.Generator,
    sum_name: str | None,
) -> list[Reconstruction]:
    """What the label holder finds of each view, in its fitted values or in the sum of all."""
    if not views:
        return []
    own = labels if own_view is None else np.hstack([numbers_of(own_view)[sent.rows], labels])
    # A kernel between all of more rows takes gigabytes.
    rows = np.setdiff1d(np.arange(len(own)), rng.permutation(np.flatnonzero(known_rows))[MOST_TAUGHT:])
    here = {name: _take(view, sent.rows[rows]) for name, view in views.items()}

    def of_each(replies: Mapping[str, Floats]) -> dict[str, Floats]:
        if sum_name is not None:
            return dict.fromkeys(here, replies[sum_name][rows]) if sum_name in replies else {}
        return {name: values[rows] for name, values in replies.items()}

    more = of_each(sent.more_replies)
    return columns_from_replies(of_each(sent.replies), here, own[rows], known_rows[rows], rng, more=more)


def _from_residuals(
    sent: SentRows,
    own: Mapping[str, Any],
    views: Mapping[str, Any],
    known_rows: Mask,
    rng: np.random.Generator,
    loss: Loss | None,
) -> list[Reconstruction]:
    """What each organization finds in what it received: of the label holder's columns and the others'."""
    rounds = ~np.isnan(sent.residual[:, :, 0]).all(axis=(0, 2))  # the label holder may have begun alone
    residual = sent.residual[:, rounds]
    there = ~np.isnan(residual[:, :, 0]).any(axis=(1, 2))
    if not own or not views or int(known_rows[there].sum()) < FEWEST or bool(known_rows[there].all()):
        return []
    rows = np.flatnonzero(there)
    rows = np.setdiff1d(rows, rng.permutation(rows[known_rows[rows]])[MOST_READING:])
    here = {name: _take(view, sent.rows[rows]) for name, view in (dict(own) | dict(views)).items()}
    found = []
    ranked = sorted(views, key=lambda one: (-here[one].shape[1], one))
    for name in dict.fromkeys([*ranked[:ATTACKERS], *(one for one in ranked if one in sent.signs)]):
        found += columns_from_residuals(
            residual[rows],
            numbers_of(here[name]),
            {other: view for other, view in here.items() if other != name},
            known_rows[rows],
            rng,
            by=name,
            loss=loss,
            signs=sent.signs[name][rows] if name in sent.signs else None,
        )
    return found


def _take(view: Any, rows: NDArray[np.intp]) -> Any:
    return view.iloc[rows] if hasattr(view, "iloc") else np.asarray(view)[rows]
