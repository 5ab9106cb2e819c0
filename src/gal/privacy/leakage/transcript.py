"""What was really sent and answered: the only thing that attacks may look at.

A ``Transcript`` is passed to whatever learns, as ``on_message``; its ``note`` as ``on_round`` adds the
outputs F^t and scales, which nobody else sees, for attackers that are given more than they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest, Request
from gal.core.rows import Rows
from gal.core.state import Progress
from gal.errors import InvalidInputError, InvalidOptionError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Positions = NDArray[np.intp]


@dataclass(frozen=True)
class SentResidual:
    """One residual as it was sent."""

    round: int
    part: int | None
    """The part of the cross-validation that it leaves out; None in the task itself."""
    residual: Floats32
    """Shape (rows, K): of the fit rows in order, or of those that are kept."""
    organizations: tuple[str, ...]
    """Who was asked; also the label holder's own organization."""
    sample_weight: Floats | None = None


@dataclass(frozen=True)
class SentRows:
    """All messages about the rows of which something was sent, side by side; n
    rows, T rounds, P parts, K outputs.
    """

    rows: Positions
    """Their positions among all rows of the task, (n,)."""
    residual: Floats
    """(n, T, 1 + P, K): first the task itself, then its cross-validation; NaN
    where nothing was sent of a row.
    """
    answers: Mapping[str, Floats]
    """What each other organization answered in the task itself: (n, T, K), NaN where it did not."""
    before: Floats | None = None
    """F^{t-1} of the task itself, (n, T, K); None where nobody noted it."""
    scales: Floats | None = None
    """What each round's residual was divided by, (T,)."""
    sample_weight: Floats | None = None
    """(n,), where it was shared."""
    part_answers: Mapping[str, Floats] = field(default_factory=dict)
    """As ``answers``, in its cross-validation, one learning after another: (n, P * T, K); none without."""
    further_answers: Mapping[str, Floats] = field(default_factory=dict)
    """As ``answers``, after the rounds: to random targets and interaction probes,
    (n, all of them, K); none without.
    """

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
            answers={name: values[places] for name, values in self.answers.items()},
            part_answers={name: values[places] for name, values in self.part_answers.items()},
            further_answers={name: values[places] for name, values in self.further_answers.items()},
            before=None if self.before is None else self.before[places],
            sample_weight=None if self.sample_weight is None else self.sample_weight[places],
        )


class Transcript:
    """Collects messages: pass it as ``on_message``, and its ``note`` as ``on_round``.

    >>> transcript = Transcript()
    >>> # GALClassifier(parts, on_message=transcript, on_round=transcript.note).fit(X, y)
    >>> # transcript.sent(model.task_rows_, model.label_holder_)

    ``rows`` keeps these rows only, of a task with ``roles``: a sample does where there are millions. A first
    round begins the transcript anew, so that one object can be used for one fit after another.
    """

    def __init__(self, *, roles: Rows | None = None, rows: Any = None) -> None:
        if rows is not None and roles is None:
            raise InvalidOptionError(
                "to keep a sample of rows the transcript needs the task's row roles: pass roles="
            )
        self.roles = roles
        self.kept: Positions | None = None if rows is None else np.unique(np.asarray(rows, dtype=np.intp))
        self._begin()

    def _begin(self) -> None:
        self.messages: dict[tuple[int, int | None], SentResidual] = {}
        self.answers: dict[int, dict[str, Floats32]] = {}
        self.part_answers: dict[tuple[int, int], dict[str, Floats32]] = {}
        """By part and round."""
        self.outputs: list[Floats] = []
        self.scales: list[float] = []
        self.probes: dict[str, list[Floats32]] = {}
        """By organization: residuals times sign bits, of the fit rows of the sample that probes are about."""
        self.further_answers: dict[int, dict[str, Floats32]] = {}
        """By further round: to random targets and interaction probes, of that sample."""

    def __call__(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]) -> None:
        """Note one round trip: what was asked of organizations, and what came back."""
        for request, answers in zip(requests, replies, strict=True):
            if not isinstance(request, FitRequest) or request.track != "assisted":
                continue  # nothing about the labels is in it, or nobody else is asked
            usable = {name: one for name, one in answers.items() if self._usable(one, request)}
            if request.target != "residual":
                self.further_answers.setdefault(request.round, {}).update(usable)
                for name in request.organizations if request.target == "probe" else ():
                    self.probes.setdefault(name, []).append(np.array(request.residual))
                continue
            said = {name: self._rows_of(one) for name, one in usable.items()}
            if request.round == 1 and request.part is None:
                self._begin()
            self._keep(request)
            if request.part is None:
                self.answers[request.round] = said
            else:
                self.part_answers[request.part, request.round] = said

    def note(self, progress: Progress) -> None:
        """Note F^t and the scale of a finished round; for ``on_round``."""
        output = self._rows_of(np.asarray(progress.output, dtype=np.float64))
        if len(progress.rounds) == 1:
            step = sum(
                count * self.answers[1][name].astype(np.float64)
                for name, count in progress.coefficients[0].items()
                if name in self.answers.get(1, {})
            )
            self.outputs = [np.asarray(output - step)]  # F^0
            self.scales = []
        self.outputs.append(np.array(output))
        self.scales.append(float(progress.rounds[-1].scale))

    def _keep(self, request: FitRequest) -> None:
        residual, weight = request.residual, request.sample_weight
        if self.kept is not None and self.roles is not None:
            fit = _fit_rows(self.roles, request.part)
            places = np.flatnonzero(np.isin(fit, self.kept))
            residual = residual[places]
            weight = None if weight is None else weight[places]
        key = (request.round, request.part)
        self.messages[key] = SentResidual(*key, np.array(residual), request.organizations, weight)

    def _usable(self, values: Any, request: FitRequest) -> bool:
        """Whether these are fitted values of all rows; what is not counts as no
        answer, as it does in learning.
        """
        outputs = request.residual.shape[1]
        if not isinstance(values, np.ndarray) or values.shape[1:] != (outputs,) or values.dtype.kind != "f":
            return False
        rows = self.roles if self.roles is None or request.target == "residual" else self.roles.of_probes
        return rows is None or len(values) == rows.n

    def _rows_of(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.kept is None else values[self.kept]

    def sent(self, roles: Rows | None = None, label_holder: str | None = None) -> SentRows:
        """What others than the label holder received, by row; ``roles`` are the
        task's (``model.task_rows_``).
        """
        roles = self.roles if roles is None else roles
        if roles is None:
            raise InvalidOptionError(
                "whose rows the messages are about is not known: pass the task's row roles"
            )
        heard = {
            key: message
            for key, message in self.messages.items()
            if any(name != label_holder for name in message.organizations)
        }
        if not heard:
            raise InvalidInputError("nothing was sent to other organizations: there is no message to attack")
        return _side_by_side(self, heard, roles, label_holder)


def _side_by_side(
    transcript: Transcript,
    heard: Mapping[tuple[int, int | None], SentResidual],
    roles: Rows,
    label_holder: str | None,
) -> SentRows:
    first = next(iter(heard.values()))
    rounds, outputs = max(round for round, _ in heard), first.residual.shape[1]
    kept = np.arange(roles.n) if transcript.kept is None else transcript.kept
    everything = np.full((len(kept), rounds, 1 + roles.n_parts, outputs), np.nan)
    weight = None if first.sample_weight is None else np.full(len(kept), np.nan)
    for (round, part), message in heard.items():
        fit = _fit_rows(roles, part)
        fit = fit if transcript.kept is None else fit[np.isin(fit, kept)]
        if len(fit) != len(message.residual):
            raise InvalidInputError(
                f"the message of round {round} has {len(message.residual)} rows, the task's row roles say "
                f"{len(fit)}: "
                "these are roles of another task"
            )
        places = np.searchsorted(kept, fit)
        everything[places, round - 1, 0 if part is None else part + 1] = message.residual
        if weight is not None and message.sample_weight is not None:
            weight[places] = message.sample_weight
    heard_of = np.flatnonzero(~np.isnan(everything).all(axis=(1, 2, 3)))
    noted = len(transcript.scales) >= rounds
    before = transcript.outputs[:rounds]
    return SentRows(
        rows=kept[heard_of],
        residual=everything[heard_of],
        answers=_answers(transcript.answers, (len(kept), rounds, outputs), heard_of, label_holder),
        part_answers=_part_answers(transcript, (len(kept), rounds, outputs), heard_of, label_holder),
        further_answers=_further_answers(transcript, roles, kept[heard_of], outputs, label_holder),
        before=np.stack([output[heard_of] for output in before], axis=1) if noted else None,
        scales=np.array(transcript.scales[:rounds]) if noted else None,
        sample_weight=None if weight is None else weight[heard_of],
    )


def _part_answers(
    transcript: Transcript, shape: tuple[int, int, int], places: Positions, label_holder: str | None
) -> dict[str, Floats]:
    """By organization, the parts side by side."""
    n, rounds, outputs = shape
    parts = 1 + max((part for part, _ in transcript.part_answers), default=-1)
    by_place = {part * rounds + t: said for (part, t), said in transcript.part_answers.items() if t <= rounds}
    return _answers(by_place, (n, parts * rounds, outputs), places, label_holder)


def _further_answers(
    transcript: Transcript, roles: Rows, kept: Positions, outputs: int, label_holder: str | None
) -> dict[str, Floats]:
    """By organization, one further round after another, of these rows of the task; NaN of those that probes
    are not about.
    """
    rounds = sorted(transcript.further_answers)
    by_place = {at + 1: transcript.further_answers[round] for at, round in enumerate(rounds)}
    shape, places = (len(roles.sample), len(rounds), outputs), np.flatnonzero(np.isin(kept, roles.sample))
    among = np.searchsorted(roles.sample, kept[places])
    found: dict[str, Floats] = {}
    for name, values in _answers(by_place, shape, among, label_holder).items():
        found[name] = np.full((len(kept), *values.shape[1:]), np.nan)
        found[name][places] = values
    return found


def _answers(
    by_round: Mapping[int, Mapping[str, Floats32]],
    shape: tuple[int, int, int],
    places: Positions,
    label_holder: str | None,
) -> dict[str, Floats]:
    """By organization, of these places among all (rows, rounds, outputs)."""
    n, rounds, outputs = shape
    names = sorted({name for answers in by_round.values() for name in answers} - {label_holder})
    found = {name: np.full((len(places), rounds, outputs), np.nan) for name in names}
    for t, answers in by_round.items():
        for name, values in answers.items():
            if name in found and t <= rounds and len(values) == n:
                found[name][:, t - 1] = values[places]
    return found


def _fit_rows(roles: Rows, part: int | None) -> Positions:
    return roles.fit if part is None else roles.without(part).fit
