"""Invitations: the terms of a task, signed by the label holder, for operators to accept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gal.core.probes.kept_probes import MOST_PROBES, SEEDS
from gal.errors import IdentityError, InvalidInputError, InvalidOptionError, RefusedError, printable
from gal.protocol.messages import Digest, Name, Positive, TaskId
from gal.secure_aggregation import Sums
from gal.transport import CardFolder, Identity, verify

RESIDUALS_REVEAL = (
    "Residuals reveal columns of the label holder and of all organizations to every receiver. A receiver "
    "that knows 50 rows can work out all columns of linear models."
)
FITTED_VALUES_REVEAL = (
    "Fitted values of any model reveal columns to the label holder, most where it chooses the residuals. "
    "Secure aggregation hides the organization of a value, not the columns."
)
LARGEST = 1 << 20
SIGNED = b"gal invitation 1\0"


class Invited(BaseModel):
    """An invited organization."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    fingerprint: Digest


def _promisable(name: str) -> str:
    """The name of a known mechanism with a guarantee."""
    from gal.privacy.registry import promised_names  # here and below: most tasks promise nothing

    if name not in promised_names():
        raise ValueError(f"no such privacy mechanism of a task; there are: {', '.join(promised_names())}")
    return name


class PromisedPrivacy(BaseModel):
    """The label privacy of a task: its mechanism, and the cost of all outgoing messages together."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mechanism: Annotated[str, AfterValidator(_promisable)]
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    columns_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Column privacy: the cost of all residuals; None: there is none."""
    columns_delta: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.columns_epsilon is None) != (self.columns_delta is None):
            raise ValueError("columns_epsilon and columns_delta belong together")
        return self

    def about_columns(self) -> str:
        """The column privacy in plain words."""
        if self.columns_epsilon is None:
            return RESIDUALS_REVEAL
        return (
            "Every residual but the first has fresh noise for column privacy (epsilon "
            f"{self.columns_epsilon:g}, delta {self.columns_delta:g}, each version): it bounds what "
            "residuals reveal to the other organizations of your fitted values of a row."
        )

    def sentence(self) -> str:
        """The label privacy in plain words."""
        from gal.privacy.registry import kind_named

        cost = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")
        kind = kind_named(self.mechanism)
        return (
            f"the label holder protects its labels with {self.mechanism} ({cost}, once, for all rounds and "
            f"all organizations together): {kind.promise}. That bounds what the messages that you receive "
            "reveal of a single row's label"
        )


class SumNoise(BaseModel):
    """Distributed noise on secure aggregation: every organization adds its share."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    multiplier: Annotated[float, Field(gt=0, lt=1e4)]
    """Standard deviation of the noise on a sum / L2 sensitivity."""
    clip: Annotated[float, Field(ge=1e-2, le=1e3)] = 2.0
    """Public bound of fitted values, whose residuals have a root mean square of about 1."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """At which epsilon is stated."""

    def sentence(self, sums: int) -> str:
        """The guarantee of the noise in a learning with so many sums about a row."""
        from gal.privacy.accounting import Event, spent

        costs = [spent([Event("discrete-gaussian", self.multiplier, n)], self.delta) for n in (sums, 1)]
        return (
            f"Every organization clips its values at {self.clip:g} and adds its share of discrete Gaussian "
            f"noise. The {sums} sums about a row in one learning cost epsilon {costs[0]:.3g} at delta "
            f"{self.delta:g}, each prediction of a row {costs[1]:.3g}; your ledger adds them up. Noise of "
            "organizations that collude with the label holder does not count"
        )


class TaskTerms(BaseModel):
    """The facts of a task that an organization gets before it joins; all numbers are upper limits."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)
    format: Literal[1] = 1
    task: TaskId
    name: Name
    label_holder: Name
    fingerprint: Digest
    purpose: Annotated[str, Field(max_length=2000)] = ""
    organizations: Annotated[tuple[Invited, ...], Field(max_length=1000)]
    outputs: Positive
    """K: numbers of a residual per row."""
    rounds: Positive
    fitted: Literal["in-sample", "held-out", "out-of-fold"] = "in-sample"
    folds: Annotated[int, Field(ge=1, le=1000)] = 1
    cv_folds: Annotated[int, Field(ge=0, le=1000, alias="parts")] = 0
    """Cross-validation folds: so many more fits a round."""
    probes: Annotated[int, Field(ge=0, le=MOST_PROBES, alias="signs")] = 0
    """Interaction probes after the rounds."""
    alignment: Literal["plain", "hashed", "psi"] = "plain"
    privacy: Literal["none"] | PromisedPrivacy = "none"
    """Of the labels in residuals."""
    secure_aggregation: Annotated[Literal["none", "sums"], Field(alias="secrecy")] = "none"
    """Whether fitted values leave as they are, or by secure aggregation."""
    drop_outs: Annotated[int, Field(ge=0, le=1000)] = 0
    """With secure aggregation: organizations that may drop out, for good."""
    noise: SumNoise | None = None
    """With secure aggregation: the noise on sums."""
    made: str = ""

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        if self.noise is not None and self.secure_aggregation != "sums":
            raise ValueError("noise is for sums")
        if self.secure_aggregation == "sums":
            try:
                Sums(self.drop_outs).check(len({one.fingerprint for one in self.organizations}))
            except InvalidOptionError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def digest(self) -> str:
        """The terms' identity for both sides.

        The label holder's key and, without secure aggregation, the invited organizations may change later: no
        organization has to join anew.
        """
        later = {"fingerprint", "made"} | (set() if self.secure_aggregation == "sums" else {"organizations"})
        later |= set() if self.noise else {"noise"}  # terms without it read as before
        terms = self.model_dump(mode="json", exclude=later, by_alias=True)
        return "sha256:" + hashlib.sha256(_canonical(terms)).hexdigest()

    def canonical(self) -> bytes:
        """The terms as bytes, which are signed."""
        return _canonical(
            self.model_dump(mode="json", exclude=set() if self.noise else {"noise"}, by_alias=True)
        )

    def sentences(self) -> list[str]:
        """The terms in plain words, for the operator of an organization."""
        fits = 1 + self.cv_folds
        held = {
            "in-sample": "",
            "held-out": " Some rows are predicted, not fitted.",
            "out-of-fold": f" Each fit is done {self.folds} times, without one fold of the rows each time.",
        }[self.fitted]
        align = {
            "plain": "plain ids: the label holder sends you all its row ids, you reply which of them you "
            "know",
            "hashed": "keyed hashes: the label holder sends all its row ids as hashes with the secret that "
            "you share, you reply which of them you know",
            "psi": "private set intersection: the label holder learns which rows you share, you learn the "
            "same and how many it has",
        }[self.alignment]
        others = ", ".join(one.name for one in self.organizations)
        how = "as they are" if self.secure_aggregation == "none" else "under masks, as they are otherwise"
        promise = "none is promised."
        if self.privacy != "none":
            promise = f"{self.privacy.sentence()}."
        return [
            f"{self.label_holder} asks for help with the task {self.name!r}"
            + (f", in its words: {_quoted(self.purpose)}" if self.purpose else "."),
            f"Invited: {others}.",
            f"You would fit {_counted(self.outputs, 'number')} per row in at most "
            f"{_counted(self.rounds, 'round')}, {_counted(fits, 'fit')} a round, and "
            f"reply with fitted values; later with predictions.{held}",
            *self._probes(),
            f"Rows are matched by {align}.",
            f"Privacy of labels: {promise}",
            f"Privacy of columns: {self.residuals_reveal()} {FITTED_VALUES_REVEAL} Yours leave {how}, unless "
            "your own node.toml adds noise to them.",
            *self._aggregation(),
        ]

    def residuals_reveal(self) -> str:
        """What residuals reveal of columns, in one sentence or two."""
        return RESIDUALS_REVEAL if self.privacy == "none" else self.privacy.about_columns()

    def _probes(self) -> list[str]:
        if not self.probes:
            return []
        from gal.core.probes.kept_probes import PROBES_REVEAL

        return [
            f"After the rounds come interaction probes: you would fit {SEEDS} random targets, and up to "
            f"{self.probes} residuals times sign bits, in folds. The sign bits are those of the others' "
            "fitted values, and yours multiply what the others fit. Predictions may use these fits. "
            f"{PROBES_REVEAL} Every organization has to consent: policy.interactions = true in your "
            "node.toml (default: false)."
        ]

    def _aggregation(self) -> list[str]:
        if self.secure_aggregation == "none":
            return []
        lost = f"{self.drop_outs} of them may drop out, for good" if self.drop_outs else "none may drop out"
        noise = "Sums have no noise: few-valued columns can be read from them"
        if self.noise is not None:
            noise = self.noise.sentence(self.rounds * (1 + self.cv_folds))
        return [
            "Secure aggregation. The label holder gets the sum of the values of all "
            f"{len(self.organizations)} organizations, and of no single one; {lost}. The members never "
            "change: you would be in no other aggregation group of this label holder. If the label holder "
            "and all but two of the organizations collude, they know the sum of your values and one other's.",
            f"{noise}.",
            "The keys of the others protect you. Ask each of them, not the label holder, for its "
            "fingerprint: " + "; ".join(f"{one.name} {one.fingerprint}" for one in self.organizations),
        ]


def _quoted(words: str) -> str:
    """A peer's words on one line, without characters that a terminal would obey."""
    return '"' + printable(" ".join(words.split())).replace('"', "'") + '"'


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _canonical(facts: Any) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def write_invitation(terms: TaskTerms, identity: Identity, path: Path) -> None:
    """Write the terms with the label holder's signature."""
    signature = base64.b64encode(identity.sign(SIGNED + terms.canonical())).decode()
    content = {"terms": json.loads(terms.canonical()), "signature": signature}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_invitation(path: Path, cards: CardFolder, own_fingerprint: str) -> tuple[TaskTerms, str]:
    """The terms, and the label holder's petname; a forged invitation is refused."""
    terms, signature = _read(path)
    if terms.fingerprint == own_fingerprint:
        raise InvalidInputError(
            f"{str(path)!r} is an invitation of {terms.label_holder} itself: send it to the organizations "
            "that it invites, which join with their own nodes (--home)"
        )
    known = cards.by_fingerprint(terms.fingerprint)
    if known is None:
        raise IdentityError(
            f"{str(path)!r} comes from {terms.label_holder} ({terms.fingerprint}), whose card is not known "
            "here: ask for the card, check it with them, then gal cards add FILE"
        )
    peer, card = known
    if not verify(card.certificate, SIGNED + terms.canonical(), signature):
        raise IdentityError(f"{str(path)!r} is not signed by {peer}: it was altered or forged")
    if own_fingerprint not in {one.fingerprint for one in terms.organizations}:
        names = ", ".join(one.name for one in terms.organizations)
        raise RefusedError(
            "not-invited",
            f"{str(path)!r} does not invite this organization but {names}: {peer} may have your old card",
        )
    return terms, peer


def _read(path: Path) -> tuple[TaskTerms, bytes]:
    try:
        if path.stat().st_size > LARGEST:
            raise InvalidInputError(f"{str(path)!r} is too large to be an invitation")
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        signature = base64.b64decode(content["signature"], validate=True)
        return TaskTerms.model_validate(content["terms"]), signature
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {str(path)!r}") from error
    except IsADirectoryError as error:
        raise InvalidInputError(f"{str(path)!r} is a folder: name the file TASK.invitation in it") from error
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInputError(
            f"{str(path)!r} is not an invitation of this version of gal: {place}: {first['msg']}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise InvalidInputError(
            f"{str(path)!r} is not an invitation ({error}): the label holder makes one with gal invite"
        ) from error
