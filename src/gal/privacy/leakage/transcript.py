"""The messages of a task: the only thing that attacks may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest, Request
from gal.core.rows import Rows
from gal.errors import InvalidInputError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Positions = NDArray[np.intp]
_Key = tuple[int, int | None]
"""Round, and part of the cross-validation; None in the task itself."""


@dataclass(frozen=True)
class SentRows:
    """All messages about the rows of which something was sent, side by side; n
    rows, T rounds, P folds, K outputs.
    """

    rows: Positions
    """Their positions among all rows of the task, (n,)."""
    residual: Floats
    """(n, T, 1 + P, K): first the task itself, then its cross-validation; NaN
    where nothing was sent of a row.
    """
    replies: Mapping[str, Floats]
    """Each other organization's replies in the task itself: (n, T, K), NaN without one."""
    more_replies: Mapping[str, Floats] = field(default_factory=dict)
    """As ``replies``, in its cross-validation, one learning after another, and after the rounds, to random
    targets and interaction probes: (n, all of them, K); none without.
    """
    signs: Mapping[str, Floats] = field(default_factory=dict)
    """What each organization reads off its interaction probes: (n, probes), NaN where there was none."""

    @property
    def n_messages(self) -> int:
        """Residuals about a row, the most that any row had."""
        there = ~np.isnan(self.residual).any(axis=3)
        return int(there.sum(axis=(1, 2)).max())

    def take(self, places: Positions) -> SentRows:
        """Only these of the rows."""
        return replace(
            self,
            rows=self.rows[places],
            residual=self.residual[places],
            replies={name: values[places] for name, values in self.replies.items()},
            more_replies={name: values[places] for name, values in self.more_replies.items()},
            signs={name: values[places] for name, values in self.signs.items()},
        )


class Transcript:
    """Collects messages: pass it as ``on_message``.

    >>> transcript = Transcript()
    >>> # GALClassifier(folds, on_message=transcript).fit(X, y)
    >>> # transcript.sent(model.task_rows_, model.label_holder_)

    A first round begins it anew, so that one object can be used for one fit after another.
    """

    def __init__(self) -> None:
        self._trip = 0
        self._trips: dict[_Key, int] = {}
        """In which round trip each residual was sent."""
        self.messages: dict[_Key, FitRequest] = {}
        """Residuals as they were sent: of the fit rows in order."""
        self.replies: dict[_Key, dict[str, Floats32]] = {}
        self.probes: dict[str, list[Floats32]] = {}
        """By organization: residuals times sign bits, of the fit rows of the sample that probes are about."""
        self.further_replies: dict[int, dict[str, Floats32]] = {}
        """By further round: to random targets and interaction probes, of that sample."""

    def __call__(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]) -> None:
        """Note one round trip: requests, and replies."""
        self._trip += 1
        for request, received in zip(requests, replies, strict=True):
            if not isinstance(request, FitRequest) or request.track != "assisted":
                continue  # without label information, or for the label holder alone
            shape = request.residual.shape[1:]
            # Other shapes and types count as no reply, as in learning.
            usable = {
                name: one
                for name, one in received.items()
                if isinstance(one, np.ndarray) and one.shape[1:] == shape and one.dtype.kind == "f"
            }
            if request.target != "residual":
                self.further_replies.setdefault(request.round, {}).update(usable)
                for name in request.organizations if request.target == "probe" else ():
                    self.probes.setdefault(name, []).append(np.array(request.residual))
                continue
            key = request.round, request.fold
            if key == (1, None):
                self._begin()
            self.messages[key] = replace(request, residual=np.array(request.residual))
            self._trips[key], self.replies[key] = self._trip, usable

    def _begin(self) -> None:
        """A task's first round: only the fold that is trained before it, the sentinel, is of the same fit."""
        last = max((trip for (_, fold), trip in self._trips.items() if fold is None), default=0)
        for key in [key for key, trip in self._trips.items() if trip <= last]:
            del self._trips[key], self.messages[key], self.replies[key]
        self.probes, self.further_replies = {}, {}

    def sent(self, roles: Rows, label_holder: str | None = None) -> SentRows:
        """What others than the label holder received, by row; ``roles`` are the task's
        (``model.task_rows_``).
        """
        received = {
            key: message
            for key, message in self.messages.items()
            if any(name != label_holder for name in message.organizations)
        }
        if not received:
            raise InvalidInputError("nothing was sent to other organizations: there is no message to attack")
        first, rounds = next(iter(received.values())), range(1, 1 + max(round for round, _ in received))
        residual = np.full((roles.n, len(rounds), 1 + roles.n_cv_folds, first.residual.shape[1]), np.nan)
        for (round, fold), message in received.items():
            fit = roles.fit if fold is None else roles.without(fold).fit
            if len(fit) != len(message.residual):
                raise InvalidInputError(
                    f"the message of round {round} has {len(message.residual)} rows, the task's row roles "
                    f"say {len(fit)}: these are roles of another task"
                )
            residual[fit, round - 1, 0 if fold is None else fold + 1] = message.residual
        covered = np.flatnonzero(~np.isnan(residual).all(axis=(1, 2, 3)))
        parts = sorted({fold for _, fold in self.replies if fold is not None})
        task = [self.replies.get((t, None), {}) for t in rounds]
        more: list[Mapping[str, Any]] = [self.replies.get((t, fold), {}) for fold in parts for t in rounds]
        for t in sorted(self.further_replies):  # about the sample that probes are about, NaN elsewhere
            sampled = self.further_replies[t]
            whole = {name: np.full((roles.n, one.shape[1]), np.nan) for name, one in sampled.items()}
            for name, one in sampled.items():
                whole[name][roles.sample] = one
            more.append(whole)
        return SentRows(
            rows=covered,
            residual=residual[covered],
            replies=_by_organization(task, label_holder, residual[:, 0, 0], covered),
            more_replies=_by_organization(more, label_holder, residual[:, 0, 0], covered),
            signs={name: one[covered] for name, one in self._signs(roles, residual[:, -1, 0]).items()},
        )

    def _signs(self, roles: Rows, plain: Floats) -> dict[str, Floats]:
        """Signs of all rows, by organization: a probe times the last plain residual (n, K)."""
        if not self.probes:
            return {}
        probed = roles.sample[roles.of_probes.fit]
        there = ~np.isnan(plain[probed]).any(axis=1)
        rows, found = probed[there], dict[str, Floats]()
        for name, vectors in self.probes.items():
            found[name] = np.full((roles.n, len(vectors)), np.nan)
            products = [np.einsum("ij,ij->i", one[there], plain[rows]) for one in vectors]
            found[name][rows] = np.where(np.stack(products, axis=1) >= 0, 1.0, -1.0)
        return found


def _by_organization(
    replies: Sequence[Mapping[str, Any]], label_holder: str | None, like: Floats, places: Positions
) -> dict[str, Floats]:
    """Fitted values of these places by organization: (places, replies, K), NaN where there are none."""
    names = sorted({name for one in replies for name in one} - {label_holder})
    nothing, found = np.full(like.shape, np.nan), dict[str, Floats]()
    for name in names:
        given = [one.get(name, nothing) for one in replies]
        usable = [one if len(one) == len(like) else nothing for one in given]
        found[name] = np.stack([one[places] for one in usable], axis=1).astype(np.float64)
    return found
