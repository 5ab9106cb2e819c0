"""Messages: all kinds that travel between two nodes, and the content of each.

A label holder sends requests (``begin``, ``fit``, ``predict``, ...), an organization replies. A request about
the rows of a task names the digest of their agreed order, a reply the digest of its request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

VERSIONS = (2,)
"""The versions of the protocol that this version of gal-learn speaks."""

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
"""A digest of the secret of keyed hashes, so that two different secrets are noticed; empty without one."""
SumNumber = Annotated[int, Field(ge=1, lt=2**53)]
SumNumbers = Annotated[list[SumNumber], Field(min_length=1, max_length=64)]
GroupDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
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
    """The label holder's reply; ``proof`` is a signature by the key of its card."""

    version: Positive
    software: Text
    proof: Annotated[str, StringConstraints(max_length=1000)]


class Refusal(Fields):
    """Why a request or the whole stream is refused: a code for programs, a sentence for people."""

    code: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")]
    message: Text
    answers: Digest | None = None


class JoinedTask(Fields):
    """A task whose terms the operator of an organization has accepted."""

    task: TaskId
    terms: Digest
    moving: bool
    """Whether the local model is stateful: it is re-evaluated after the last round."""


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
    """A random id of the exchange."""
    n_rows: Annotated[int, Field(ge=1)]
    """The number of ids in the request."""


class Begin(Fields):
    """The setup of a version: its rows, their order and their roles."""

    terms: Digest
    organization: Name
    """The label holder's name for the organization; seeds of its fits follow from it."""
    kind: IdKind
    method: Method
    secret: Secret
    n_outputs: Positive
    rounds: Positive
    further: Annotated[int, Field(ge=0, le=1000)] = 0
    """Rounds beyond these, in which random targets and interaction probes are fitted."""
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class Begun(Fields):
    """The rows that the organization knows, and the digest of their order."""

    answers: Digest
    rows: Digest
    n_rows: Annotated[int, Field(ge=0)]


class Fit(Fields):
    """Fit a residual on the rows of this digest."""

    rows: Digest
    round: Positive
    track: Track
    part: Annotated[int, Field(ge=0, le=1000)] | None
    target: Literal["residual", "random", "probe"] = "residual"
    """``random`` and ``probe`` are random numbers and probes, in rounds after the task's."""


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
    """Re-evaluate stateful models on the task's own rows."""

    rows: Digest
    track: Track
    rounds: Rounds


class PredictedReply(Fields):
    """Predictions of the known rows, by round."""

    answers: Digest
    rows: Digest


class End(Fields):
    """The end of a version's learning: ``kept`` rounds are used (0: it was abandoned)."""

    kept: Annotated[int, Field(ge=0, le=1_000_000)]


class Done(Fields):
    """The request was done."""

    answers: Digest


class Keys(Fields):
    """Make keys for these sums of an aggregation group (see ``gal.secure_aggregation``)."""

    circle: GroupDigest
    numbers: SumNumbers


class ShareFields(Fields):
    """Share the secrets of these sums among the members whose keys are in this message."""

    circle: GroupDigest
    numbers: SumNumbers
    members: Members


class SumFields(Fields):
    """Reply to an earlier request within a sum of these members; the same for all of them."""

    circle: GroupDigest
    number: SumNumber
    members: Members
    of: Digest
    """The digest of the earlier request: a residual, or rows to predict."""
    content: GroupDigest
    """A digest of the request's content, which each member computes by itself."""
    unit: Annotated[Finite, Field(gt=0)]
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**40)]], Field(min_length=2, max_length=2)]
    round: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Open(Fields):
    """Help to unmask the sum of these members' replies."""

    circle: GroupDigest
    number: SumNumber
    members: Members


class TotalFields(Fields):
    """Predict these rows as the sum of rounds times rates; a sum request for it follows."""

    kind: IdKind
    method: Method
    secret: Secret
    track: Track
    rounds: Rounds
    rates: Annotated[list[Finite], Field(min_length=1, max_length=100_000)]


class FoundReply(Fields):
    """Which of the rows to predict are known; their values wait for a sum request."""

    answers: Digest
    rows: Digest
    learned: GroupDigest
    """A digest of what these rounds were learned from, the same for all members."""
    unit: Annotated[Finite, Field(gt=0)]
    """The grid of the sum; it follows from the rates and from the residuals of these rounds."""


TypeName = Literal["float32", "float64", "int32", "int64", "uint8", "str"]
"""The types of arrays in messages."""
Shape = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 40)]], Field(min_length=1, max_length=4)]


@dataclass(frozen=True)
class ArrayRule:
    """The type and number of axes of an array in a message."""

    types: tuple[TypeName, ...]
    axes: int
    optional: bool = False


@dataclass(frozen=True)
class Kind:
    """The fields and arrays of one kind of message."""

    fields: type[Fields]
    arrays: Mapping[str, ArrayRule] = field(default_factory=dict)


IDS = {
    "integers": ArrayRule(("int64",), 1, optional=True),
    "texts": ArrayRule(("str",), 1, optional=True),
    "hashes": ArrayRule(("uint8",), 2, optional=True),
}
"""Row ids: exactly one of these arrays, see ``gal.alignment``."""

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
    "share": Kind(ShareFields, {"keys": ArrayRule(("uint8",), 3), "signatures": ArrayRule(("uint8",), 3)}),
    "shares": Kind(Done, {"boxes": ArrayRule(("uint8",), 3)}),
    "sum": Kind(
        SumFields, {"boxes": ArrayRule(("uint8",), 2), "rows": ArrayRule(("uint8",), 1, optional=True)}
    ),
    "masked": Kind(Done, {"values": ArrayRule(("int32",), 2)}),
    "open": Kind(Open),
    "opened": Kind(Done, {"seeds": ArrayRule(("uint8",), 2), "keys": ArrayRule(("uint8",), 2)}),
    "total": Kind(TotalFields, IDS),
    "found": Kind(FoundReply, {"known": FLAGS}),
}
"""All kinds of messages."""

WITHOUT_TASK = frozenset({"hello", "welcome", "refusal", "joined"})
"""Kinds that may belong to no task."""


def _kind(name: str) -> str:
    if name not in KINDS:
        raise ValueError("no such kind of message")
    return name


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has control characters")
    return text


class MessageHeader(Fields):
    """Everything of a message but the values of its arrays."""

    kind: Annotated[str, AfterValidator(_kind)]
    task: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$")]
    version: Annotated[int, Field(ge=0, le=1_000_000)]
    request: Annotated[str, StringConstraints(max_length=200), AfterValidator(_printable)]
    fields: dict[str, Any]
    arrays: dict[str, tuple[TypeName, Shape]]
    """Type and shape by name."""

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        if not self.task and self.kind not in WITHOUT_TASK:
            raise ValueError(f"{self.kind} needs the id of a task")
        return self


@dataclass(frozen=True)
class Message:
    """One message: its kind, its task, small fields and large arrays."""

    kind: str
    task: str = ""
    """The id of the task: 32 hex digits; empty where there is none."""
    version: int = 0
    """The version of the task that is learned, from 1; 0 where there is none."""
    request: str = ""
    """The id by which the reply is matched; the same when a request is sent again."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """The shapes of the arrays, for people and records: ``residual 442x1``."""
        return ", ".join(
            f"{name} {'x'.join(map(str, array.shape))}" for name, array in sorted(self.arrays.items())
        )


def type_name(array: Array) -> str:
    """The type of an array by the names of the rules.

    >>> import numpy as np
    >>> type_name(np.zeros(2, dtype=np.float32)), type_name(np.array(["a"], dtype=object))
    ('float32', 'str')
    """
    return "str" if array.dtype.kind == "O" else _name(array.dtype)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # numpy computes it on each access
