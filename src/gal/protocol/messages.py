"""Messages: what may travel between two nodes, and what each kind holds.

A label holder asks (``begin``, ``fit``, ``predict``, ...), an organization answers. Every request about the
rows of a task names the digest of their agreed order; every answer names the digest of the request that it
answers. What is not described here is not a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

VERSIONS = (2,)
"""Of the protocol: what this version of gal-learn speaks."""

Array = NDArray[Any]

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
TaskId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Text = Annotated[str, StringConstraints(max_length=2000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Rounds = Annotated[list[Positive], Field(min_length=1, max_length=100_000)]
Track = Literal["assisted", "alone"]
IdKind = Literal["integer", "text"]
Method = Literal["plain", "hashed", "psi"]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Secret = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$")]
"""A digest of the secret behind keyed hashes, so that two different ones are noticed; empty without."""
SumNumber = Annotated[int, Field(ge=1, lt=2**53)]
SumNumbers = Annotated[list[SumNumber], Field(min_length=1, max_length=64)]
CircleDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Members = Annotated[list[Name], Field(min_length=1, max_length=1000)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Fields(BaseModel):
    """The fields of one kind of message: exactly these, of exactly these types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Hello(Fields):
    """The first message of an organization that dials."""

    versions: Annotated[list[Positive], Field(max_length=16)]
    software: Text
    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Welcome(Fields):
    """The label holder's answer; ``proof`` is its signature, so that it is who its card says."""

    version: Positive
    software: Text
    proof: Annotated[str, StringConstraints(max_length=1000)]


class Refusal(Fields):
    """Why a request, or the whole stream, is refused: one word for programs, a sentence for people."""

    code: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")]
    message: Text
    answers: Digest | None = None


class JoinedTask(Fields):
    """A task whose terms the operator of an organization has accepted."""

    task: TaskId
    terms: Digest
    moving: bool
    """Whether fitting a round changes what its model says of earlier ones: it
    is asked once more at the end.
    """


class Joined(Fields):
    """All tasks of this label holder that an organization takes part in."""

    tasks: Annotated[list[JoinedTask], Field(max_length=10_000)]


class Leave(Fields):
    """An organization leaves the task for good."""

    reason: Text = ""


class Blind(Fields):
    """One step of a private set intersection; the bytes are an array."""

    step: Literal["setup", "response"]
    kind: IdKind
    exchange: TaskId
    """Drawn anew for each exchange."""
    n_rows: Annotated[int, Field(ge=1)]
    """How many ids the label holder asks about."""


class Begin(Fields):
    """Before the first round of a version: which rows, in which order, and what they are used for."""

    terms: Digest
    organization: Name
    """What the label holder calls the organization that it asks; seeds of its fits follow from it."""
    kind: IdKind
    method: Method
    secret: Secret
    n_outputs: Positive
    rounds: Positive
    further: Annotated[int, Field(ge=0, le=1000)] = 0
    """Rounds beyond these, in which random targets and interaction probes are fitted."""
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class Begun(Fields):
    """Which of these rows the organization knows, and the digest of their order."""

    answers: Digest
    rows: Digest
    n_rows: Annotated[int, Field(ge=0)]


class Fit(Fields):
    """Fit this residual; the rows are those of this digest."""

    rows: Digest
    round: Positive
    track: Track
    part: Annotated[int, Field(ge=0, le=1000)] | None
    target: Literal["residual", "random", "probe"] = "residual"
    """Random numbers or a residual times signs, in rounds beyond the task's; the last out of fold."""


class FittedReply(Fields):
    """The fitted values of all shared rows."""

    answers: Digest
    rows: Digest
    round: Positive


class Predict(Fields):
    """Predict these rows for these rounds of a version."""

    kind: IdKind
    method: Method
    secret: Secret
    track: Track
    rounds: Rounds


class Revisit(Fields):
    """What models that move say now of the task's own rows."""

    rows: Digest
    track: Track
    rounds: Rounds


class PredictedReply(Fields):
    """Values of the rows that are known, by round."""

    answers: Digest
    rows: Digest


class End(Fields):
    """A version's learning is over: ``kept`` rounds are used (0: it was abandoned)."""

    kept: Annotated[int, Field(ge=0, le=1_000_000)]


class Done(Fields):
    """Done as asked."""

    answers: Digest


class Keys(Fields):
    """Make keys for these sums of a circle (see ``gal.secure_aggregation``)."""

    circle: CircleDigest
    numbers: SumNumbers


class ShareAsked(Fields):
    """Divide the secrets of these sums among the members whose keys come with this."""

    circle: CircleDigest
    numbers: SumNumbers
    members: Members


class SumAsked(Fields):
    """Answer a request of before in a sum of these members: told to all of them in the same words."""

    circle: CircleDigest
    number: SumNumber
    members: Members
    of: Digest
    """The digest of the request: a residual, or rows to predict."""
    content: CircleDigest
    """A digest of what is asked, which each member takes by itself."""
    unit: Annotated[Finite, Field(gt=0)]
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**40)]], Field(min_length=2, max_length=2)]
    round: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Open(Fields):
    """Help to open the sum of these members' answers."""

    circle: CircleDigest
    number: SumNumber
    members: Members


class TotalAsked(Fields):
    """Predict these rows, and add up your rounds, each times its rate; the sum is asked for next."""

    kind: IdKind
    method: Method
    secret: Secret
    track: Track
    rounds: Rounds
    rates: Annotated[list[Finite], Field(min_length=1, max_length=100_000)]


class FoundReply(Fields):
    """Which of the rows to predict are known; their values stay here until a sum asks for them."""

    answers: Digest
    rows: Digest
    learned: CircleDigest
    """A digest of what these rounds were learned from, which all members must have been told alike."""
    unit: Annotated[Finite, Field(gt=0)]
    """What the sum is written in: it follows from the rates, and from the residuals of these rounds."""


@dataclass(frozen=True)
class ArrayRule:
    """What an array of a message must be: one of these types, with so many axes."""

    types: tuple[str, ...]
    axes: int
    optional: bool = False


@dataclass(frozen=True)
class Kind:
    """What a kind of message holds."""

    fields: type[Fields]
    arrays: Mapping[str, ArrayRule] = field(default_factory=dict)


IDS = {
    "integers": ArrayRule(("int64",), 1, optional=True),
    "texts": ArrayRule(("str",), 1, optional=True),
    "hashes": ArrayRule(("uint8",), 2, optional=True),
}
"""Row ids as they travel: exactly one of these, see ``gal.alignment``."""

FLAGS = ArrayRule(("uint8",), 1)
NUMBERS = ArrayRule(("int32",), 1, optional=True)

KINDS: Mapping[str, Kind] = {
    "hello": Kind(Hello),
    "welcome": Kind(Welcome),
    "refusal": Kind(Refusal),
    "joined": Kind(Joined),
    "leave": Kind(Leave),
    "blind": Kind(Blind, {"bytes": ArrayRule(("uint8",), 1, optional=True)}),
    "blinded": Kind(Done, {"bytes": ArrayRule(("uint8",), 1)}),
    "begin": Kind(Begin, {**IDS, "fit": FLAGS, "folds": NUMBERS, "parts": NUMBERS, "probes": NUMBERS}),
    "begun": Kind(Begun, {"known": FLAGS}),
    "fit": Kind(
        Fit,
        {"residual": ArrayRule(("float32",), 2), "sample_weight": ArrayRule(("float64",), 1, optional=True)},
    ),
    "fitted": Kind(FittedReply, {"fitted": ArrayRule(("float32",), 2)}),
    "predict": Kind(Predict, IDS),
    "revisit": Kind(Revisit),
    "predicted": Kind(PredictedReply, {"known": FLAGS, "values": ArrayRule(("float32",), 3)}),
    "end": Kind(End),
    "done": Kind(Done),
    "keys": Kind(Keys),
    "offers": Kind(Done, {"keys": ArrayRule(("uint8",), 2), "signatures": ArrayRule(("uint8",), 2)}),
    "share": Kind(ShareAsked, {"keys": ArrayRule(("uint8",), 3), "signatures": ArrayRule(("uint8",), 3)}),
    "shares": Kind(Done, {"boxes": ArrayRule(("uint8",), 3)}),
    "sum": Kind(
        SumAsked, {"boxes": ArrayRule(("uint8",), 2), "rows": ArrayRule(("uint8",), 1, optional=True)}
    ),
    "masked": Kind(Done, {"values": ArrayRule(("int32",), 2)}),
    "open": Kind(Open),
    "opened": Kind(Done, {"seeds": ArrayRule(("uint8",), 2), "keys": ArrayRule(("uint8",), 2)}),
    "total": Kind(TotalAsked, IDS),
    "found": Kind(FoundReply, {"known": FLAGS}),
}
"""All kinds of messages."""

WITHOUT_TASK = frozenset({"hello", "welcome", "refusal", "joined"})
"""Kinds that may belong to no task."""


@dataclass(frozen=True)
class Message:
    """One message: its kind, whose it is, small facts and large arrays."""

    kind: str
    task: str = ""
    """The id of the task: 32 hex digits; empty where there is none."""
    version: int = 0
    """Which learning of the task, from 1; 0 where there is none."""
    request: str = ""
    """What the answer is to be recognised by; the same when a request is sent again."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """The shapes of the arrays, for people and records: ``residual 442x1``."""
        return ", ".join(
            f"{name} {'x'.join(map(str, array.shape))}" for name, array in sorted(self.arrays.items())
        )


def type_name(array: Array) -> str:
    """The type of an array as rules call it.

    >>> import numpy as np
    >>> type_name(np.zeros(2, dtype=np.float32)), type_name(np.array(["a"], dtype=object))
    ('float32', 'str')
    """
    return "str" if array.dtype.kind == "O" else _name(array.dtype)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # numpy makes it anew each time
