"""The section ``[policy]`` of node.toml, and the refusals that follow from it.

A refusal is a `RefusedError`: a code for programs, and a sentence for the label holder. The sentence names
the organization, the limit and the remedy, and never how many rows the organization knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field, model_validator

from gal.core.rows import Rows
from gal.errors import InvalidInputError, RefusedError
from gal.protocol.names import check_name

PeerName = Annotated[str, AfterValidator(lambda value: check_name(value, "an organization in accept"))]
Size = Annotated[ByteSize, Field(ge=1)]
"""Bytes: a number, or text such as "4GB"."""
Count = Annotated[int, Field(ge=1, strict=True)]


class Policy(BaseModel):
    """The section ``[policy]`` of node.toml: every limit has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accept: tuple[PeerName, ...] | None = None
    """Peers that may send requests; None: every label holder whose invitation was joined; empty: none."""
    max_rounds: Count = 50
    max_rows: Count = 10_000_000
    min_rows: Count = 20
    """Fewest rows of a fit: smaller groups of rows cannot be probed."""
    rounds_per_label_holder: Count = 10_000
    """Fits over all its tasks and versions, of rounds and cross-validation folds: each reveals a little."""
    fit_cpu_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 3600.0
    fit_memory: Size = ByteSize(4 * 10**9)
    """Bytes beyond what the process uses before the fit."""
    predictions_per_day: Annotated[int, Field(ge=0, strict=True)] = 1_000_000
    """Rows per label holder and day (UTC)."""
    small_predictions_per_day: Annotated[int, Field(ge=0, strict=True)] = 100_000
    """Predictions about fewer than ``min_rows`` known rows, per label holder and day; 0: only in bulk."""
    unknown_ids_per_day: Count = 100_000
    """Ids in predictions that this organization does not know, per label holder and day."""
    refused_begins_per_day: Count = 20
    """Session setups that fail here, per label holder and day, over all tasks."""
    interactions: Annotated[bool, Field(strict=True)] = False
    """Consent to interaction probes: they send sign bits of fitted values, which can reveal columns."""
    largest_message: Size = ByteSize(10**9)
    messages_per_day: Count = 250_000
    """Of one peer, besides replies that were requested; beyond that it is ignored until midnight UTC."""
    bytes_per_day: Size = ByteSize(100 * 10**9)
    refusals_per_day: Count = 5_000
    disk_per_peer: Size = ByteSize(50 * 10**9)

    @model_validator(mode="after")
    def _check_row_limits(self) -> Self:
        if self.min_rows > self.max_rows:
            raise InvalidInputError(
                f"min_rows = {self.min_rows} is more than max_rows = {self.max_rows}: every request would be "
                "refused."
            )
        return self


SHARE_BY_RESIDUAL = 0.1
"""Share of ``min_rows`` that a residual's squares must rest on: a rare class is in few rows."""
APART = 0.25
"""A fold with a smaller share of the rows that a residual rests on is checked by itself."""

REFUSALS: Mapping[str, tuple[str, str]] = {
    "peer": (
        "not-accepted",
        "{organization} does not accept requests of yours: ask its operator to add your name to 'accept' in "
        "the section [policy] of its node.toml.",
    ),
    "rounds": (
        "too-many-rounds",
        "{organization} fits at most {max_rounds} rounds of a task, and {found}, or ask its operator to "
        "raise 'max_rounds'.",
    ),
    "rows": (
        "too-many-rows",
        "{organization} learns on at most {max_rows} rows: send fewer rows, or ask its operator to raise "
        "'max_rows'.",
    ),
    "rows to predict": (
        "too-many-rows",
        "{organization} predicts at most {max_rows} rows in one request: send fewer",
    ),
    # How many rows there were is not in it: that can depend on which rows the organization knows.
    "few rows": (
        "too-few-rows",
        "{organization} fits no model on fewer than {min_rows} rows that both of you know: take more rows, "
        "check that row_id names the same kind of id at both, written in the same way, or ask its operator "
        "to lower 'min_rows'.",
    ),
    "residual": (
        "too-few-rows",
        "round {round}: the residual is almost zero for nearly all rows, and {organization} fits no model on "
        "hardly any row. Is a label an outlier? Correct it, take a loss such as huber, or ask its operator "
        "to lower 'min_rows'.",
    ),
    "fits": (
        "rounds-spent",
        "{organization} accepts {rounds_per_label_holder} fits for one label holder, rounds and "
        "cross-validation folds of all tasks and versions together, and these are spent: ask its operator to "
        "raise 'rounds_per_label_holder'.",
    ),
    "invited probes": (
        "no-interactions",
        "the invitation includes interaction probes, and {organization} does not consent to them "
        "(policy.interactions = false in its node.toml): they can reveal its columns to other organizations. "
        "Invite it to a task without interactions, or ask its operator to set policy.interactions = true.",
    ),
    "probes": (
        "no-interactions",
        "{organization} fits no interaction probes, and its sign bits are in none (policy.interactions = "
        "false in its node.toml): leave it out of them, or ask its operator to set policy.interactions = "
        "true.",
    ),
    "own probes": (
        "no-interactions",
        "the task asks for interaction probes, and {organization}, the label holder, does not consent to "
        "them (policy.interactions = false in its own node.toml): they can reveal its own columns to the "
        "other organizations. Nothing was sent. Open a task without interactions, or set policy.interactions "
        "= true.",
    ),
    "predictions": (
        "budget-spent",
        "{organization} predicts at most {predictions_per_day} rows a day for one label holder; {left} are "
        "left today and {n_rows} were requested: request fewer, wait until midnight UTC, or ask its operator "
        "to raise 'predictions_per_day'.",
    ),
    "small predictions": (
        "too-few-rows",
        "{organization} predicts at most {small_predictions_per_day} times a day about fewer than {min_rows} "
        "rows that both of you know: request more rows at once, or ask its operator to raise "
        "'small_predictions_per_day'.",
    ),
    "unknown ids": (
        "budget-spent",
        "your requests named too many ids that {organization} does not know: it predicts nothing more for "
        "you until midnight UTC. Name only ids that it can know, or ask its operator to raise "
        "'unknown_ids_per_day'.",
    ),
    "setups": (
        "budget-spent",
        "{organization} has refused {refused_begins_per_day} session setups of yours today: try again after "
        "midnight UTC, or ask its operator to raise 'refused_begins_per_day'.",
    ),
    "disk": (
        "disk-quota",
        "{organization} keeps no more than {most} for one label holder: ask its operator to forget old "
        "tasks, or to raise 'disk_per_peer'.",
    ),
    "psi": (
        "alignment",
        "{organization} accepts only rows that a private set intersection has found: run one first",
    ),
}
"""By what went beyond the policy: the code and the sentence of the refusal."""


@dataclass(frozen=True)
class PolicyLimits:
    """One organization's policy: its checks pass silently, or raise the refusal."""

    organization: str
    policy: Policy

    def refusal(self, reason: str, **facts: Any) -> RefusedError:
        """The error for one of the reasons in `REFUSALS`."""
        code, sentence = REFUSALS[reason]
        known = self.policy.model_dump() | {"organization": self.organization} | facts
        return RefusedError(code, sentence.format_map(known))

    def check_peer(self, peer: str) -> None:
        """Whether this peer (its petname here) may send any request."""
        if self.policy.accept is not None and peer not in self.policy.accept:
            raise self.refusal("peer")

    def check_invitation(self, peer: str, rounds: int, probes: int) -> None:
        """Whether an invitation of this peer to so many rounds and interaction probes can be joined."""
        self.check_peer(peer)
        if probes:
            self.check_consent("invited probes")
        if rounds > self.policy.max_rounds:
            found = f"the invitation asks for {rounds}: invite it again with fewer rounds"
            raise self.refusal("rounds", found=found)

    def check_consent(self, reason: str) -> None:
        """Whether interaction probes are allowed, and the random targets before them."""
        if not self.policy.interactions:
            raise self.refusal(reason)

    def check_begin(self, n_rows: int) -> None:
        """Whether a version on so many aligned rows may begin."""
        self.check_named(n_rows)
        if n_rows < self.policy.min_rows:
            raise self.refusal("few rows")

    def check_named(self, n_rows: int) -> None:
        """Whether so many rows may be named in a session setup, known or not."""
        if n_rows > self.policy.max_rows:
            raise self.refusal("rows")

    def check_fit(self, n_rows: int, round: int) -> None:
        """Whether a fit on so many rows in this round (1, 2, ...) is allowed."""
        if round > self.policy.max_rounds:
            raise self.refusal("rounds", found=f"this is round {round}: end learning here")
        if n_rows < self.policy.min_rows:
            raise self.refusal("few rows")

    def check_effective(self, residual: NDArray[Any], weight: NDArray[Any] | None, round: int) -> None:
        """Whether a fit of this residual with these weights rests on enough rows."""
        self.check_fit(len(residual) if weight is None else int(effective_rows(weight) + 1e-6), round)
        fewest = min(effective_sample_sizes(residual, weight), default=np.inf)
        self._check_residual(fewest, round)

    def check_folds(
        self, rows: Rows, residual: NDArray[Any], weight: NDArray[Any] | None, round: int
    ) -> None:
        """The check of ``check_fit`` for the model of each fold, which may contain all rows of the residual.

        The rows of a rare class are few, and fewer in a fold by chance: such a fold is not refused.
        """
        if rows.folds is None:
            return
        whole = effective_sample_sizes(residual, weight)
        for fold in range(rows.n_folds):
            taken = rows.folds != fold
            counts = None if weight is None else weight[taken]
            self.check_fit(int(taken.sum()) if counts is None else int(effective_rows(counts) + 1e-6), round)
            for few, all_of_it in zip(effective_sample_sizes(residual[taken], counts), whole, strict=True):
                if few < APART * all_of_it:
                    self._check_residual(few, round)

    def _check_residual(self, n_rows: float, round: int) -> None:
        if n_rows / SHARE_BY_RESIDUAL < self.policy.min_rows:
            raise self.refusal("residual", round=round)


def is_finite(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite: mostly the sum of their squares is, which settles it."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(flat @ flat)) or bool(np.isfinite(flat).all())


def effective_rows(mass: NDArray[Any]) -> float:
    """The effective number of rows, (sum m)^2 / sum m^2; 0 where there is no mass.

    >>> effective_rows(np.ones(8)), round(effective_rows(np.array([1.0, 1e-6, 1e-6])), 3)
    (8.0, 1.0)
    """
    largest = float(mass.max(initial=0.0))
    if largest <= 0:
        return 0.0
    shares = mass.astype(np.float64) / largest
    return float(shares.sum()) ** 2 / float(shares @ shares)


def effective_sample_sizes(residual: NDArray[Any], weight: NDArray[Any] | None) -> list[float]:
    """By output: the number of rows that a residual's squares rest on; infinite for zeros."""
    found = []
    for column in residual.T:
        squares = column.astype(np.float64)
        squares /= max(float(np.abs(squares).max(initial=0.0)), np.finfo(np.float64).tiny)
        squares *= squares
        if weight is not None:
            squares *= weight / max(float(weight.max(initial=0.0)), np.finfo(np.float64).tiny)
        found.append(effective_rows(squares) or np.inf)
    return found
