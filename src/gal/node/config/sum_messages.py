"""Circles (the organizations whose answers are added up, by the keys under which they know each other), and
what their members and the label holder say to each other, as messages and back: for both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.errors import InvalidMessageError, RefusedError
from gal.node.config.invitations import TaskTerms
from gal.protocol import Message
from gal.protocol.codec import check_fields
from gal.secure_aggregation.masking import SECRET_BYTES, SHARE_BYTES, derived, sha256_of
from gal.secure_aggregation.member import check_circle
from gal.secure_aggregation.messages import (
    AnswerAsked,
    Ask,
    Circle,
    KeysAsked,
    Masked,
    Offer,
    Opening,
    OpeningAsked,
    SealedShares,
    SharesAsked,
    SumReply,
    SumRequest,
    fit_content,
    plain_bytes,
)
from gal.transport import CardFolder, Identity

Bytes = NDArray[np.uint8]

KEY_BYTES = 32
"""Of a public key, and of the digest of a seed."""
SIGNATURE_BYTES = 80
"""Room for a signature (ECDSA on P-256 in DER has at most 72 bytes) with its length before it."""
ROLES = ("fit", "folds", "parts")
"""Arrays of a beginning that say what rows are used for."""
BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares, sealed."""


def circle_of(terms: TaskTerms) -> Circle:
    """The circle that these terms fix: all organizations that are invited."""
    members = {one.name: one.fingerprint for one in terms.organizations}
    return Circle(terms.fingerprint, members, terms.drop_outs)


def known_keys(cards: CardFolder) -> set[str]:
    """Fingerprints of all organizations whose cards are here: those that the operator has checked."""
    return {card.fingerprint for card in cards.all().values()}


def named_in(circle: Circle, identity: Identity) -> Identity:
    """An organization's key under the name by which the circle knows it."""
    names = [name for name, one in circle.members.items() if one == identity.fingerprint]
    if len(names) != 1:
        said = f"the key {identity.fingerprint} of {identity.name!r} is {len(names)} times in this circle"
        raise RefusedError("circle", said)
    return replace(identity, name=names[0])


def own_secret(identity: Identity) -> bytes:
    """From which an organization rounds its answers: it follows from its private key, so that nothing more is
    kept, and whoever restarts, or restores a backup, rounds as before.
    """
    return derived(identity.private_key, b"own secret")


def check_members(terms: TaskTerms, cards: CardFolder, own: str) -> None:
    """An error where answers would be added to those of organizations whose cards are not here."""
    circle, known = circle_of(terms), known_keys(cards) - {terms.fingerprint}
    unknown = [
        f"{name} ({one})" for name, one in sorted(circle.members.items()) if one not in known and one != own
    ]
    if unknown:
        raise RefusedError(
            "circle",
            f"your answers in {terms.name!r} would be added to those of {', '.join(unknown)}, of whom no "
            "card is here: the label holder could have invented them. Ask these organizations themselves for "
            "their cards, "
            "compare the fingerprints, then gal cards add FILE and join again",
        )
    check_circle(circle, known | {own})


def offer_arrays(offers: Sequence[Offer]) -> dict[str, Bytes]:
    """Offers of one member: the keys, and the signatures under them."""
    keys = [offer.mask_key + offer.box_key + bytes.fromhex(offer.promise) for offer in offers]
    signed = [bytes([len(one.signature)]) + one.signature for one in offers]
    return {
        "keys": _rows(keys, len(keys[0])),
        "signatures": _rows([one.ljust(SIGNATURE_BYTES, b"\0") for one in signed], SIGNATURE_BYTES),
    }


def read_offers(
    circle: Circle, name: str, numbers: Sequence[int], certificate: bytes, keys: Bytes, signatures: Bytes
) -> list[Offer]:
    """The offers of one member for these sums; its certificate is known from its card.

    A mask key, one for shares where there are some, and the digest of a seed.
    """
    _check_shape("keys", keys, (len(numbers), KEY_BYTES * (3 if circle.shares else 2)), name)
    _check_shape("signatures", signatures, (len(numbers), SIGNATURE_BYTES), name)
    found = []
    for number, made, signed in zip(numbers, keys, signatures, strict=True):
        key, signature = made.tobytes(), signed.tobytes()
        parts = key[:KEY_BYTES], key[KEY_BYTES:-KEY_BYTES], key[-KEY_BYTES:].hex()
        found.append(Offer(name, number, *parts, certificate, signature[1 : 1 + signature[0]]))
    return found


def box_array(circle: Circle, shares: Sequence[SealedShares], members: Sequence[str]) -> Bytes:
    """One member's sealed shares: by sum, and by member for whom they are; nothing for itself."""
    members = _receivers(circle, members)
    boxes = np.zeros((len(shares), len(members), BOX_BYTES), dtype=np.uint8)
    for place, one in enumerate(shares):
        for other, name in enumerate(members):
            if name in one.boxes:
                boxes[place, other] = np.frombuffer(one.boxes[name], dtype=np.uint8)
    return boxes


def read_boxes(
    circle: Circle, name: str, numbers: Sequence[int], members: Sequence[str], boxes: Bytes
) -> list[SealedShares]:
    """The same from the array."""
    members = _receivers(circle, members)
    _check_shape("boxes", boxes, (len(numbers), len(members), BOX_BYTES), name)
    found = []
    for number, row in zip(numbers, boxes, strict=True):
        others = {other: box.tobytes() for other, box in zip(members, row, strict=True) if other != name}
        found.append(SealedShares(name, number, others))
    return found


def _receivers(circle: Circle, members: Sequence[str]) -> Sequence[str]:
    """For whom there are shares: nobody where nobody may drop out."""
    return members if circle.shares else ()


def read_own_boxes(circle: Circle, message: Message) -> dict[str, bytes]:
    """The same from a message of kind ``sum``: by member who sealed it."""
    members, boxes = _receivers(circle, message.fields["members"]), message.arrays["boxes"]
    _check_shape("boxes", boxes, (len(members), BOX_BYTES), "the label holder")
    return {name: box.tobytes() for name, box in zip(members, boxes, strict=True)}


def read_ask(message: Message) -> Ask:
    """What a message of kind ``sum`` asks."""
    fields = message.fields
    shape = tuple(fields["shape"])
    return Ask(fields["number"], tuple(fields["members"]), fields["content"], shape, fields["unit"])


def opening_arrays(circle: Circle, opening: Opening) -> dict[str, Bytes]:
    """A member's help: shares in the order of names, or its own seed."""
    size = SHARE_BYTES if circle.shares else SECRET_BYTES
    return {
        "seeds": _rows([opening.seeds[name] for name in sorted(opening.seeds)], size),
        "keys": _rows([opening.keys[name] for name in sorted(opening.keys)], SHARE_BYTES),
    }


def message_to_member(
    circle: Circle, request: SumRequest, about: Mapping[str, Any], rows: NDArray[np.bool_] | None
) -> tuple[str, int, dict[str, Any], dict[str, Bytes]]:
    """What a member is asked in a sum, as kind, number, fields and arrays of a message; ``about`` are the
    fields that say what an answer is to, ``rows`` which of its rows are added up.
    """
    said = {"circle": circle.digest}
    match request:
        case KeysAsked(number):
            return "keys", number, said | {"numbers": [number]}, {}
        case SharesAsked(number, offers):
            made = [offer_arrays([one]) for one in offers]
            arrays = {name: np.stack([one[name] for one in made]) for name in ("keys", "signatures")}
            names = [one.name for one in offers]
            return "share", number, said | {"numbers": [number], "members": names}, arrays
        case AnswerAsked(ask, boxes):
            held = [boxes.get(name, bytes(BOX_BYTES)) for name in _receivers(circle, ask.members)]
            arrays = {"boxes": _rows(held, BOX_BYTES)}
            if rows is not None:
                arrays["rows"] = rows.astype(np.uint8)
            fields = asdict(ask) | {"members": list(ask.members), "shape": list(ask.shape)}
            return "sum", ask.number, {**said, **fields, **about}, arrays
        case OpeningAsked(number, members, _):
            return "open", number, said | {"number": number, "members": list(members)}, {}


def read_member(
    circle: Circle, name: str, certificate: bytes, request: SumRequest, message: Message
) -> SumReply:
    """A member's reply to that; InvalidMessageError where it is none."""
    expected = {KeysAsked: "offers", SharesAsked: "shares", AnswerAsked: "masked", OpeningAsked: "opened"}
    if message.kind != expected[type(request)]:
        raise InvalidMessageError(f"{name} answered with {message.kind}")
    arrays = message.arrays
    match request:
        case KeysAsked(number):
            [offer] = read_offers(circle, name, [number], certificate, arrays["keys"], arrays["signatures"])
            return offer
        case SharesAsked(number, offers):
            [shares] = read_boxes(circle, name, [number], [one.name for one in offers], arrays["boxes"])
            return shares
        case AnswerAsked(ask, _):
            return Masked(name, ask.number, arrays["values"].view(np.uint32))
        case OpeningAsked(number, members, dropped):
            there, size = (members, SHARE_BYTES) if circle.shares else ((name,), SECRET_BYTES)
            _check_shape("seeds", arrays["seeds"], (len(there), size), name)
            _check_shape("keys", arrays["keys"], (len(dropped), SHARE_BYTES), name)
            seeds = {other: one.tobytes() for other, one in zip(sorted(there), arrays["seeds"], strict=True)}
            keys = {other: one.tobytes() for other, one in zip(sorted(dropped), arrays["keys"], strict=True)}
            return Opening(name, number, seeds, keys)


def begin_content(begin: Message, known: NDArray[np.bool_]) -> str:
    """A digest of how a version began: all that fits depend on, except what an organization is called there.

    The roles are those of the rows that it knows; which ones these are is in the digest of its rows.
    """
    said = check_fields(begin.kind, begin.fields)  # with all that is left to its default
    fields = {name: value for name, value in said.items() if name != "organization"}
    roles = {
        name: [array.dtype.str, sha256_of(np.ascontiguousarray(array[known]).tobytes())]
        for name, array in begin.arrays.items()
        if name in ROLES
    }
    return sha256_of(plain_bytes(["begin", begin.task, begin.version, fields, roles]))


def learning_content(began: str, fits: Sequence[str]) -> str:
    """A digest of what models were learned from: how their version began, and the requests to fit (digests).

    It is in what every sum is of. Otherwise the label holder could have one organization fit a residual and
    the others
    nothing, or the same on other rows or with another seed: the sum, or its difference from another one,
    would be the answer of one.
    """
    return sha256_of(plain_bytes(["learned from", began, list(fits)]))


def fit_sum_content(residual: str, learned: str) -> str:
    """What a sum of fitted values is of: a residual (``residual_content``), and how it was to be fitted."""
    return sha256_of(f"{residual} {learned}".encode())


def residual_content(rows: str, request: FitRequest) -> str:
    """A digest of a residual of these rows (their digest): of each there is one sum.

    It has the rows in it that a member knows, so that nobody answers in a sum with others who know other
    rows: of a row that one alone knows, the sum would be its answer.
    """
    return sha256_of(f"{rows} {fit_content(request)}".encode())


def prediction_content(message: Message, rows: str, shape: Sequence[int], learned: str) -> str:
    """A digest of rows to predict, of how rounds are added up, and of what they were ``learned`` from: of
    each there is one sum.
    """
    fields = message.fields
    about = [message.task, message.version, fields["track"], fields["rounds"], fields["rates"]]
    return sha256_of(plain_bytes(["predict", *about, rows, list(shape), learned]))


def _rows(data: Sequence[bytes], size: int) -> Bytes:
    return np.frombuffer(b"".join(data), dtype=np.uint8).reshape(len(data), size)


def _check_shape(what: str, array: NDArray[Any], expected: tuple[int, ...], name: str) -> None:
    if array.shape != expected:
        raise InvalidMessageError(f"{what} of {name!r} have shape {array.shape}, expected {expected}")
