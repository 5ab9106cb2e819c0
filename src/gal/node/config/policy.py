"""What this organization allows others to ask of it: the section ``[policy]`` of node.toml, and its checks.

A check that fails raises `RefusedError` with a code (one word, for programs) and a sentence for the eyes of
the label holder: it names the organization, the limit and what to do, and gives nothing else away. The
number of rows that an organization knows, for example, is never in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field, model_validator

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
    """Peers who may ask; None: everybody whose invitation was joined; empty: nobody."""
    max_rounds: Count = 50
    max_rows: Count = 10_000_000
    min_rows: Count = 20
    """Fewest rows that it fits: fewer would let a label holder probe small groups."""
    rounds_per_label_holder: Count = 10_000
    """Fits answered in all, over all its tasks and versions, of rounds and of parts of cross-validations: an
    answer tells a little of the columns."""
    fit_cpu_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 3600.0
    fit_memory: Size = ByteSize(4 * 10**9)
    """Bytes beyond what the process uses before the fit."""
    predictions_per_day: Annotated[int, Field(ge=0, strict=True)] = 1_000_000
    """Rows per label holder and day (UTC)."""
    small_predictions_per_day: Annotated[int, Field(ge=0, strict=True)] = 100_000
    """Predictions about fewer than ``min_rows`` known rows, per label holder and day; 0: only in bulk."""
    unknown_ids_per_day: Count = 100_000
    """Ids that this organization does not know, in predictions, per label holder and day."""
    refused_begins_per_day: Count = 20
    """Beginnings that fail here, per label holder and day, over all tasks."""
    interactions: Annotated[bool, Field(strict=True)] = False
    """Whether this organization consents to interaction probes: it fits them, and signs of its answers travel
    in those of others, which can reveal its columns to them."""
    largest_message: Size = ByteSize(10**9)
    """Bytes."""
    messages_per_day: Count = 250_000
    """Of one peer, besides answers that were asked for; then it is not heard until midnight UTC."""
    bytes_per_day: Size = ByteSize(100 * 10**9)
    refusals_per_day: Count = 5_000
    """Messages of one peer that are refused."""
    disk_per_peer: Size = ByteSize(50 * 10**9)
    """Bytes on the disk for all tasks of one label holder."""

    @model_validator(mode="after")
    def _some_number_of_rows_is_allowed(self) -> Self:
        if self.min_rows > self.max_rows:
            raise InvalidInputError(
                f"min_rows = {self.min_rows} is more than max_rows = {self.max_rows}: no number of rows "
                "would do."
            )
        return self


@dataclass(frozen=True)
class PolicyLimits:
    """The checks of one organization's policy; each passes silently or raises `RefusedError`."""

    organization: str
    policy: Policy

    def check_peer(self, peer: str) -> None:
        """Whether this peer (its petname here) may ask anything at all."""
        if self.policy.accept is not None and peer not in self.policy.accept:
            raise RefusedError(
                "not-accepted",
                f"{self.organization} does not work for you: ask its operator to add your name to 'accept' "
                "in the section [policy] of its node.toml.",
            )

    def check_invitation(self, peer: str, rounds: int, probes: int) -> None:
        """Whether an invitation of this peer to so many rounds and interaction probes can be joined."""
        self.check_peer(peer)
        if probes:
            self._check_consent(
                f"the invitation asks for interaction probes, and {self.organization} does not consent to "
                "them (policy.interactions = false in its node.toml): they can reveal its columns to other "
                "organizations. Invite it to a task without interactions, or ask its operator to set"
            )
        self._check_rounds(rounds, f"the invitation asks for {rounds}: invite it again with fewer rounds")

    def check_begin(self, n_rows: int) -> None:
        """Whether learning a version on ``n_rows`` aligned rows may begin."""
        self.check_named(n_rows)
        self._check_enough(n_rows)

    def check_named(self, n_rows: int) -> None:
        """Whether so many rows may be learned on, or named in a beginning, known or not."""
        if n_rows > self.policy.max_rows:
            raise RefusedError(
                "too-many-rows",
                f"{self.organization} learns on at most {self.policy.max_rows} rows: send fewer rows, or ask "
                "its operator to raise 'max_rows'.",
            )

    def check_fit(self, n_fit_rows: int, round: int) -> None:
        """Whether a fit on ``n_fit_rows`` rows in round ``round`` (1, 2, ...) is allowed."""
        self._check_rounds(round, f"this is round {round}: end learning here")
        self._check_enough(n_fit_rows)

    def check_rounds_left(self, answered: int) -> None:
        """Whether a label holder who had so many fits answered may have one more."""
        if answered >= self.policy.rounds_per_label_holder:
            raise RefusedError(
                "rounds-spent",
                f"{self.organization} answers {self.policy.rounds_per_label_holder} fits for one label "
                "holder, rounds and parts of cross-validations of all tasks and versions, and these are "
                "spent: ask its operator to raise 'rounds_per_label_holder'.",
            )

    def check_interactions(self) -> None:
        """Whether interaction probes, and the random targets before them, are fitted at all."""
        self._check_consent(
            f"{self.organization} fits no interaction probes, and its signs travel in none "
            "(policy.interactions = false in its node.toml): go on without it there, or ask its operator "
            "to set"
        )

    def check_own_interactions(self) -> None:
        """Whether the label holder itself consents to the interaction probes of its own task."""
        self._check_consent(
            f"the task asks for interaction probes, and {self.organization}, the label holder, does not "
            "consent to them (policy.interactions = false in its own node.toml): they can reveal its own "
            "columns to the other organizations. Nothing was sent. Open a task without interactions, or set"
        )

    def check_residual(self, n_rows: float, round: int) -> None:
        """Whether a residual that rests on (the equivalent of) so many rows may be fitted."""
        if n_rows < self.policy.min_rows:
            raise RefusedError(
                "too-few-rows",
                f"round {round}: the residual is almost zero for nearly all rows, and {self.organization} "
                "fits no model on hardly any row. Is a label an outlier? Correct it, take a loss such as "
                "huber, or ask its operator to lower 'min_rows'.",
            )

    def check_predict(self, n_rows: int, spent_today: int) -> None:
        """Whether so many more rows may be predicted for a label holder who had ``spent_today`` already."""
        left = max(self.policy.predictions_per_day - spent_today, 0)
        if n_rows > left:
            raise RefusedError(
                "budget-spent",
                f"{self.organization} predicts at most {self.policy.predictions_per_day} rows a day for one "
                f"label holder; {left} are left today and {n_rows} were asked: ask for fewer, wait until "
                "midnight UTC, or ask its operator to raise 'predictions_per_day'.",
            )

    def check_disk(self, used: int) -> None:
        """Whether more may be kept for a label holder for whom so many bytes are."""
        most = self.policy.disk_per_peer
        if used >= most:
            raise RefusedError(
                "disk-quota",
                f"{self.organization} keeps no more than {most.human_readable(decimal=True)} for one label "
                "holder: ask its operator to forget old tasks, or to raise 'disk_per_peer'.",
            )

    def too_small(self) -> RefusedError:
        """The answer to who asks for predictions of too few known rows too often."""
        return RefusedError(
            "too-few-rows",
            f"{self.organization} predicts at most {self.policy.small_predictions_per_day} times a day about "
            f"fewer than {self.policy.min_rows} rows that both of you know: ask about more rows at once, or "
            "ask its operator to raise 'small_predictions_per_day'.",
        )

    def too_many_unknown(self) -> RefusedError:
        """The answer to who asks about too many ids that are not known here."""
        return RefusedError(
            "budget-spent",
            f"you have asked {self.organization} about too many ids that it does not know: it predicts "
            "nothing more for you until midnight UTC. Ask only about ids that it can know, or ask its "
            "operator to raise 'unknown_ids_per_day'.",
        )

    def not_exchanged(self) -> RefusedError:
        """The answer to who names rows, with private set intersection, that were in no exchange."""
        said = "speaks only of rows that a private set intersection has found: do one first"
        return RefusedError("alignment", f"{self.organization} {said}")

    def too_many_begins(self) -> RefusedError:
        """The answer to who has tried to begin too often."""
        return RefusedError(
            "budget-spent",
            f"{self.organization} has refused {self.policy.refused_begins_per_day} beginnings of yours "
            "today: try again after midnight UTC, or ask its operator to raise 'refused_begins_per_day'.",
        )

    def _check_consent(self, said: str) -> None:
        if not self.policy.interactions:
            raise RefusedError("no-interactions", f"{said} policy.interactions = true.")

    def _check_rounds(self, asked: int, said: str) -> None:
        if asked > self.policy.max_rounds:
            raise RefusedError(
                "too-many-rounds",
                f"{self.organization} answers at most {self.policy.max_rounds} rounds of a task, and {said}, "
                "or ask its operator to raise 'max_rounds'.",
            )

    def _check_enough(self, n_rows: int) -> None:
        if n_rows < self.policy.min_rows:
            # How many rows there were is not said: it can depend on which rows this organization knows.
            raise RefusedError(
                "too-few-rows",
                f"{self.organization} fits no model on fewer than {self.policy.min_rows} rows that both of "
                "you know: take more rows, check that row_id names the same kind of id at both, written in "
                "the same way, or ask its operator to lower 'min_rows'.",
            )
