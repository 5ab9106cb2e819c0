"""Learning and predicting with secure aggregation in one process.

It computes the same keys, shares, masks and openings as separate organizations would. So it shows what secure
aggregation costs and changes, and keeps nothing secret from the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import LocalPredictions, accept_predicted
from gal.core.requests import FitRequest, PredictRequest, Request
from gal.core.state import ByName, Ensemble, Progress, Round
from gal.core.task import Task
from gal.errors import InvalidInputError, InvalidOptionError, InvalidReplyError, LocalModelError, RefusedError
from gal.learner.assisted_model import AssistedModel, Unasked, mean_added
from gal.learner.drivers import Driver, Traffic, ask, ask_to_predict, open_driver
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.secure_aggregation.asking import RequestMode, summed_options
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.masking import added_rounds, fit_unit, prediction_unit, sha256_of
from gal.secure_aggregation.member import GroupMember
from gal.secure_aggregation.messages import (
    Group,
    KeysRequest,
    MaskedRequest,
    OpeningRequest,
    SharesRequest,
    SumReply,
    SumRequest,
    fit_content,
    plain_bytes,
)
from gal.secure_aggregation.record import MemoryRecord
from gal.secure_aggregation.terms import SUM, Sums
from gal.transport.identity import make_identity

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Values = Mapping[str, NDArray[np.floating]]


def simulated_secret(name: str) -> bytes:
    """The secret from which an organization of this process rounds: constant, so that results repeat."""
    return f"of {name} in one process".encode()


@dataclass
class LocalGroup:
    """A group whose members are all in this process."""

    group: Group
    members: Mapping[str, GroupMember]
    number: int = 0
    lost: frozenset[str] = frozenset()
    """Members that have dropped out."""
    refused: dict[str, str] = field(default_factory=dict)
    """Members whose values could not be written on the ring, and why: they sent nothing."""

    @staticmethod
    def of(names: Sequence[str], sums: Sums) -> LocalGroup:
        """A group of organizations with keys of their own, made for it."""
        identities = {name: make_identity(f"member-{place}") for place, name in enumerate(names)}
        named = {name: replace(one, name=name) for name, one in identities.items()}
        prints = {name: one.fingerprint for name, one in named.items()}
        group = Group("the label holder", prints, sums.drop_outs, sums.noise)
        known = set(prints.values())
        members = {
            name: GroupMember(one, group, known, MemoryRecord(), secret=simulated_secret(name))
            for name, one in named.items()
        }
        return LocalGroup(group, members)

    def add_up(
        self, values: Values, content: str, unit: float, rows: Sequence[str] = ()
    ) -> tuple[Floats, tuple[str, ...]]:
        """The sum of these members' values, and the members in it; the others have dropped out."""
        self.number += 1
        present = [name for name in self.members if name not in self.lost]
        shape = next(iter(values.values())).shape if values else (0,)
        trips = Collector(self.group, self.number).run(present, content, shape, unit)

        def reply(name: str, request: SumRequest) -> SumReply | None:
            member = self.members[name]
            match request:
                case KeysRequest(number):
                    return member.offer(number)
                case SharesRequest(number, offers):
                    return member.share(number, offers)
                case OpeningRequest(number, there, _):
                    return member.open(number, there)
                case MaskedRequest(ask, boxes) if name in values:
                    try:
                        own = values[name]
                        return member.answer(ask, boxes, own, content=content, unit=unit, rows=rows)
                    except InvalidReplyError as error:
                        self.refused[name] = str(error)
            return None

        try:
            requests = next(trips)
            while True:
                made = {name: reply(name, request) for name, request in requests.items()}
                requests = trips.send({name: one for name, one in made.items() if one is not None})
        except StopIteration as end:
            total, there = end.value
        for name in present:
            self.members[name].forget(self.number)
        self.lost = frozenset(set(self.members) - set(there))
        return total, there


class Summing(RequestMode):
    """Requests the sum of the fitted values of all but the label holder's own organization."""

    def __init__(
        self, sums: Sums, organizations: Mapping[str, Organization], holder: str, traffic: Traffic | None
    ) -> None:
        super().__init__([holder, SUM], None)  # counted here, since the driver sees one organization only
        self._sums, self._holder, self._counted = sums, holder, traffic
        self.members = {name: one for name, one in organizations.items() if name != holder}
        self._group = LocalGroup.of(sorted(self.members), sums)
        self._left_out: dict[int, dict[str, str]] = {}
        self._units: dict[int, float] = {}

    def options(self, options: Options, *, private: bool = False) -> Options:
        """Equal weights, and nothing that needs single fitted values."""
        return summed_options(self._sums, options, self._holder, self.members, private=private)

    def __call__(
        self,
        task: Task,
        organizations: Mapping[str, Organization],
        driver: Driver,
        requests: Sequence[Request],
    ) -> list[Mapping[str, Any]]:
        """One round trip; the label holder's own fitted values are not in the sum."""
        spread = [replace(request, organizations=self._receivers(request)) for request in requests]
        replies = ask(task, organizations, driver, spread)
        found = [
            self._added(request, received) if SUM in request.organizations else received
            for request, received in zip(requests, replies, strict=True)
        ]
        if self._counted is not None:
            self._counted.trips += any(SUM in request.organizations for request in requests)
        return found

    def _receivers(self, request: Request) -> tuple[str, ...]:
        if SUM not in request.organizations:
            return request.organizations
        others = set(self.members) - self._group.lost
        return tuple(sorted((set(request.organizations) - {SUM}) | others))

    def _added(self, request: Request, replies: Mapping[str, Any]) -> dict[str, Any]:
        assert isinstance(request, FitRequest)  # no model is stateful
        values = {name: one for name, one in replies.items() if name in self.members and _is_numbers(one)}
        failed = {name: str(replies.get(name, "dropped out")) for name in set(self.members) - set(values)}
        unit = fit_unit(request)
        try:
            total, there = self._group.add_up(values, fit_content(request), unit)
        except RefusedError as error:
            wrong = sorted((failed | self._group.refused).items())
            raise LocalModelError(
                f"the sum cannot be opened: {error}. What went wrong: "
                f"{'; '.join(f'{name}: {reason}' for name, reason in wrong)}. "
                "With secure_aggregation=Sums(drop_outs=1) one organization may drop out, for good"
            ) from error
        if self._counted is not None:  # masked values are as long as float32; keys and shares are not counted
            masked = [values[name].astype(np.float32) for name in there]
            self._counted.count(request, len(self.members), masked)
        if request.fold is None:
            gone = set(self.members) - set(there)
            self._left_out[request.round] = {name: failed.get(name, "dropped out") for name in gone}
            self._units[request.round] = unit
        own = {name: one for name, one in replies.items() if name not in self.members}
        return own | {SUM: total / len(self.members)}

    def resumes(self, progress: Progress) -> None:
        """Resume with the dropped members and the units of the rounds until then."""
        self._units = dict(enumerate(progress.summed_units, start=1))
        self._left_out = {done.round: dict(done.left_out) for done in progress.rounds}
        last = max(self._left_out, default=0)
        self._group.lost = frozenset(self.members) & set(self._left_out.get(last, {}))

    def noted(self, progress: Progress) -> Progress:
        """A finished round, with dropped members, and units (1.0 where nothing was added up)."""
        units = tuple(self._units.get(done.round, 1.0) for done in progress.rounds)
        return replace(progress, rounds=_with_lost(progress.rounds, self._left_out), summed_units=units)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        """The same with the members of the sum, the dropped ones and the noise."""
        made = concluded(ensemble, sorted(self.members), self._left_out, self._units)
        return replace(made, summed_noise=self._sums.noise)


def concluded(
    ensemble: Ensemble,
    members: Sequence[str],
    left_out: Mapping[int, Mapping[str, str]],
    units: Mapping[int, float],
) -> Ensemble:
    """The ensemble with the members of its sums and, by round, the dropped ones and the units."""
    rounds = ensemble.rounds
    if ensemble.track == "assisted":
        rounds = _with_lost(rounds, left_out)
    used = tuple(units.get(done.round, 1.0) for done in rounds)
    return replace(ensemble, rounds=rounds, summed=tuple(members), summed_units=used, kept_replies=None)


def _with_lost(rounds: Sequence[Round], left_out: Mapping[int, Mapping[str, str]]) -> tuple[Round, ...]:
    """Rounds with the members that dropped out, and why."""
    return tuple(
        replace(done, left_out=ByName({**done.left_out, **left_out.get(done.round, {})})) for done in rounds
    )


def _is_numbers(reply: Any) -> bool:
    return isinstance(reply, np.ndarray) and bool(np.isfinite(reply).all())


def added_up(ensemble: Ensemble) -> Ensemble:
    """The same model as one round, for which each organization has added up its own rounds."""
    names = ensemble.requested()
    means = {name: tuple(mean_added(ensemble, name)) for name in names}
    rounds = tuple(replace(done, mean_fitted=ByName(means)) for done in ensemble.rounds[:1])
    return replace(ensemble, coefficients=(ByName(dict.fromkeys(names, 1.0)),), rounds=rounds)


def accept_sum(
    ensemble: Ensemble, own: NDArray[Any] | None, total: Floats, present: Bools, n_members: int
) -> LocalPredictions:
    """The predictions of the model that ``added_up`` makes of this one.

    ``own``: predictions (rounds, n, K) of the label holder's own organization, NaN in unknown rows; ``total``
    (n, K): the sum of ``n_members`` in the ``present`` rows. The mean in learning stands in elsewhere.
    """
    among, added = len(ensemble.summed), added_up(ensemble)
    together = total / among + (among - n_members) * mean_added(ensemble, SUM) / among
    replies = {SUM: np.where(present[:, None], together, np.nan)}
    if own is not None and ensemble.label_holder is not None:
        part = own_rounds(ensemble, ensemble.label_holder, own)
        known = ~np.isnan(own).all(axis=(0, 2))
        replies[ensemble.label_holder] = np.where(known[:, None], part, np.nan)
    request = PredictRequest(added.requested_rounds, added.requested(), added.track)
    answers = accept_predicted(
        added, request, {name: part[None] for name, part in replies.items()}, len(present)
    )
    missing = {name: why for name, why in answers.missing.items() if name != SUM}
    return replace(answers, missing=missing, degraded=answers.degraded | (n_members < among))


def own_rounds(ensemble: Ensemble, name: str, values: NDArray[Any]) -> Floats:
    """An organization's predictions (rounds, n, K), added up with the coefficients; 0 in unknown rows."""
    counted = SUM if name in ensemble.summed else name
    return added_rounds([counts.get(counted, 0.0) for counts in ensemble.coefficients], values)


def predict_sums(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    driver: Driver,
    unknown: Mapping[str, Bools] | None = None,
) -> LocalPredictions:
    """The same with all organizations in one process.

    A row that a member does not know is in no sum: the mean in learning stands in.
    """
    unknown = unknown or {}
    lost = _lost(ensemble, views)
    names = tuple(sorted({*ensemble.summed, *ensemble.requested()} - {SUM, *lost}))
    request = PredictRequest(ensemble.requested_rounds, names, ensemble.track)
    predicted = ask_to_predict(ensemble, organizations, views, driver, request, unknown)
    failed = sorted(name for name, values in predicted.items() if not isinstance(values, np.ndarray))
    if failed:
        raise InvalidInputError(f"{failed[0]} could not predict: {predicted[failed[0]]}")
    together = {
        name: own_rounds(ensemble, name, predicted[name]) for name in ensemble.summed if name in predicted
    }
    there = np.ones(n_rows, dtype=np.bool_)
    for name in together:
        there &= ~unknown.get(name, np.zeros(n_rows, dtype=np.bool_))
    for part in together.values():  # if one member alone knows a row, the sum is its value
        part[~there] = 0.0
    total = _total(ensemble, Sums(len(lost), *ensemble.summed_noise), together, (n_rows, ensemble.n_outputs))
    return accept_sum(ensemble, predicted.get(ensemble.label_holder or ""), total, there, len(together))


def _total(ensemble: Ensemble, sums: Sums, together: Mapping[str, Floats], shape: tuple[int, ...]) -> Floats:
    rates = [counts.get(SUM, 0.0) for counts in ensemble.coefficients]
    group = LocalGroup.of(ensemble.summed, sums)
    units = ensemble.summed_units[: len(rates)] or [1.0] * len(rates)  # files of before have none
    unit = prediction_unit(rates, units)
    content = sha256_of(plain_bytes(["predict", rates, list(shape)]))
    values = np.stack([together[name] for name in sorted(together)], axis=1)
    rows = [sha256_of(one.tobytes()) for one in values]  # the same in every batch, as the ids of nodes are
    try:
        total, _ = group.add_up(together, content, unit, rows)
    except RefusedError as error:
        wrong = "".join(f". {name}: {reason}" for name, reason in sorted(group.refused.items()))
        raise InvalidInputError(f"the sum of the others cannot be opened: {error}{wrong}") from error
    return total


def _lost(ensemble: Ensemble, views: Mapping[str, Any]) -> set[str]:
    """Members that dropped out in learning; an error where another one is missing."""
    lost = {name for done in ensemble.rounds for name in done.left_out if name in ensemble.summed}
    unasked = sorted(set(ensemble.summed) - set(views) - lost)
    if unasked:
        raise InvalidInputError(
            f"{', '.join(unasked)} not there: with secure aggregation a prediction is one sum of all. "
            "A second sum without one of them would reveal its reply. Predict when all are there"
        )
    return lost


@dataclass(frozen=True)
class SummedModel(AssistedModel):
    """A model learned with secure aggregation; ``ensemble`` is ``added_up(learned)``."""

    learned: Ensemble = field(kw_only=True)

    def ask(self, table: Any, unasked: Unasked) -> LocalPredictions:
        """The predictions of the label holder's own organization, and the sum of all others."""
        names = [name for name in self.organizations if name not in unasked.organizations]
        views = {name: self.columns.view(table, name) for name in names}
        with open_driver(self.n_jobs) as run:
            return predict_sums(
                self.learned, self.organizations, views, int(table.shape[0]), run, unasked.rows
            )

    def staged(self, table: Any, answers: LocalPredictions) -> Iterator[Floats]:  # noqa: ARG002
        """Not known: each organization adds up its rounds first."""
        raise InvalidOptionError(
            "with secure aggregation each member adds up its own rounds first, so that there are no "
            "predictions after each round: use predict"
        )
