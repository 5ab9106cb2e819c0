"""Invitations: the terms of a task signed by the label holder, for an operator to read and accept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gal.core.probes.kept_probes import MOST_PROBES, SEEDS
from gal.errors import IdentityError, InvalidInputError, InvalidOptionError, RefusedError
from gal.protocol.messages import Digest, Name, Positive, TaskId
from gal.secure_aggregation import Sums
from gal.transport import CardFolder, Identity, verify

LARGEST = 1 << 20
SIGNED = b"gal invitation 1\0"


class Invited(BaseModel):
    """An organization that is invited."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    fingerprint: Digest


def _promisable(name: str) -> str:
    """The name of a mechanism that this node knows, and that guarantees something."""
    from gal.privacy.registry import promised_names  # here and below: most tasks promise nothing

    if name not in promised_names():
        raise ValueError(
            f"no privacy mechanism of a task is called so; there are: {', '.join(promised_names())}"
        )
    return name


class PromisedPrivacy(BaseModel):
    """What protects the labels of a task: a mechanism, and what all that is ever sent costs together."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mechanism: Annotated[str, AfterValidator(_promisable)]
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    columns_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What residuals may tell of what was answered about a row, by fresh noise; None: there is none."""
    columns_delta: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.columns_epsilon is None) != (self.columns_delta is None):
            raise ValueError("columns_epsilon and columns_delta belong together")
        return self

    def about_columns(self) -> str:
        """What is promised of columns, in plain words."""
        if self.columns_epsilon is None:
            return (
                "Columns are not protected by that: a residual has in it what everybody answered in earlier "
                "rounds, and of linear models that is their columns, for every other organization"
            )
        return (
            f"Every residual but the first has fresh noise for columns (epsilon {self.columns_epsilon:g}, "
            f"delta {self.columns_delta:g}, each version): of what you and the others answered about a row, "
            "the residuals about that row tell the other organizations no more than this; the label holder "
            "itself sees the answers"
        )

    def sentence(self) -> str:
        """The promise in plain words."""
        from gal.privacy.registry import kind_named

        cost = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")
        kind = kind_named(self.mechanism)
        return (
            f"the label holder protects its labels with {self.mechanism} ({cost}, once, for all rounds and "
            f"all organizations together): {kind.promise}. That bounds what anybody can learn of a single "
            "row's label from what you receive"
        )


class TaskTerms(BaseModel):
    """What every organization knows of a task before it says yes; all numbers are upper limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[1] = 1
    task: TaskId
    name: Name
    label_holder: Name
    fingerprint: Digest
    purpose: Annotated[str, Field(max_length=2000)] = ""
    organizations: Annotated[tuple[Invited, ...], Field(max_length=1000)]
    outputs: Positive
    """K: how many numbers a residual has per row."""
    rounds: Positive
    fitted: Literal["in-sample", "held-out", "out-of-fold"] = "in-sample"
    folds: Annotated[int, Field(ge=1, le=1000)] = 1
    parts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Parts of a cross-validation: so many more fits a round."""
    signs: Annotated[int, Field(ge=0, le=MOST_PROBES)] = 0
    """How many interaction probes follow the rounds at most; 0: none."""
    alignment: Literal["plain", "hashed", "psi"] = "plain"
    privacy: Literal["none"] | PromisedPrivacy = "none"
    """What protects the label holder's labels in the residuals; "none": they are sent as they are."""
    secrecy: Literal["none", "sums"] = "none"
    """Whether answers leave one by one, or as one sum with those of all other organizations."""
    drop_outs: Annotated[int, Field(ge=0, le=1000)] = 0
    """With sums: how many organizations may be lost on the way, for good."""
    made: str = ""

    @model_validator(mode="after")
    def _sums_can_be(self) -> Self:
        """Sums of too few answers would tell single ones."""
        if self.secrecy == "sums":
            try:
                Sums(self.drop_outs).check(len({one.fingerprint for one in self.organizations}))
            except InvalidOptionError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def digest(self) -> str:
        """What both sides know these terms by: all that is asked of an organization.

        Who else is invited and with which key the invitation is signed may change later,
        without everybody joining anew; with sums nobody comes in later.
        """
        later = {"fingerprint", "made"} | (set() if self.secrecy == "sums" else {"organizations"})
        asked = self.model_dump(mode="json", exclude=later)
        return "sha256:" + hashlib.sha256(_canonical(asked)).hexdigest()

    def canonical(self) -> bytes:
        """The terms as bytes that are the same everywhere: what is signed."""
        return _canonical(self.model_dump(mode="json"))

    def sentences(self) -> list[str]:
        """The terms in plain words, for the operator of an organization."""
        fits = 1 + self.parts
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
        how = "as they are" if self.secrecy == "none" else "under masks, as they are otherwise"
        promise = "none is promised for the residuals that you receive"
        if self.privacy != "none":
            promise = f"{self.privacy.sentence()}. {self.privacy.about_columns()}"
        return [
            f"{self.label_holder} asks for help with the task {self.name!r}"
            + (f", in its words: {_quoted(self.purpose)}" if self.purpose else "."),
            f"Invited: {others}.",
            f"You would fit {_counted(self.outputs, 'number')} per row in at most "
            f"{_counted(self.rounds, 'round')}, {_counted(fits, 'fit')} a round, and "
            f"answer with fitted values; later with predictions.{held}",
            *self._probes(),
            f"Rows are matched by {align}.",
            f"Privacy: {promise}. Your fitted values and predictions are another matter: they leave {how}, "
            "unless your own node.toml rounds them or adds noise to them.",
            *self._circle(),
        ]

    def _probes(self) -> list[str]:
        """Which interaction probes there are, and what they reveal."""
        if not self.signs:
            return []
        from gal.core.probes.kept_probes import PROBES_REVEAL

        return [
            f"After the rounds come interaction probes: you would fit {SEEDS} random targets, and up to "
            f"{self.signs} residuals times signs, in folds. The signs are those of what the others answer to "
            "the label holder, and the signs of your answers multiply what the others fit. What you fitted "
            f"may be asked for in prediction. {PROBES_REVEAL} Every organization has to consent: "
            "policy.interactions = true in your node.toml, false without it."
        ]

    def _circle(self) -> list[str]:
        """With sums: what the label holder gets, and the keys of those whose answers yours are added to."""
        if self.secrecy == "none":
            return []
        lost = "nobody" if not self.drop_outs else f"{self.drop_outs} of them, for good"
        return [
            "Secure aggregation. The label holder gets the sum of the answers of all "
            f"{len(self.organizations)} organizations, and no single one; {lost} may drop out of it. Who is "
            "in it never changes: you would be in no other aggregation group of this label holder. If it "
            "and all but two of the organizations show each other what they have, they know the sum of your "
            "answer and one other's.",
            "What protects you are the keys of the others. Ask each of them, not the label holder, for its "
            "fingerprint: " + "; ".join(f"{one.name} {one.fingerprint}" for one in self.organizations),
        ]


def _quoted(words: str) -> str:
    """Another's words on one line, so that they are not taken for our own: a line break would begin a term of
    its own, and a terminal obeys some characters, or hides what follows them.
    """
    said = "".join(one if one.isprintable() else "?" for one in " ".join(words.split()))
    return '"' + said.replace('"', "'") + '"'


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _canonical(facts: Any) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def write_invitation(terms: TaskTerms, identity: Identity, path: Path) -> None:
    """Write the terms with the label holder's signature."""
    signature = base64.b64encode(identity.sign(SIGNED + terms.canonical())).decode()
    content = {"terms": json.loads(terms.canonical()), "signature": signature}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_invitation(path: Path, cards: CardFolder, own_fingerprint: str) -> tuple[TaskTerms, str]:
    """The terms, and the name under which the label holder is known here; forged ones are refused."""
    terms, signature = _read(path)
    if terms.fingerprint == own_fingerprint:
        raise InvalidInputError(
            f"{str(path)!r} is an invitation of {terms.label_holder} itself: send it to the organizations "
            "that it invites, who join (--home names another node)"
        )
    known = cards.by_fingerprint(terms.fingerprint)
    if known is None:
        raise IdentityError(
            f"{str(path)!r} comes from {terms.label_holder} ({terms.fingerprint}), whose card is not known "
            "here: ask for the card, check it with them, then gal cards add FILE"
        )
    peer, card = known
    if not verify(card.certificate, SIGNED + terms.canonical(), signature):
        raise IdentityError(
            f"{str(path)!r} is not signed by {peer}: it was altered, or somebody else made it"
        )
    if own_fingerprint not in {one.fingerprint for one in terms.organizations}:
        names = ", ".join(one.name for one in terms.organizations)
        raise RefusedError(
            "not-invited",
            f"{str(path)!r} does not invite this organization but {names}: {peer} may have an old card of "
            "yours",
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
            f"{str(path)!r} is no invitation that this version understands: {place}: {first['msg']}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise InvalidInputError(
            f"{str(path)!r} is not an invitation ({error}): one is a file that the label holder "
            "made (there: gal invite) and sent you"
        ) from error
