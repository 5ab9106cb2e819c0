"""Secure aggregation as messages of the protocol, and back, for members and the label holder.

An aggregation group is fixed by the terms of a task: its members know each other by their keys.
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
from gal.secure_aggregation.member import check_group
from gal.secure_aggregation.messages import (
    Ask,
    Group,
    KeysRequest,
    Masked,
    MaskedRequest,
    Offer,
    Opening,
    OpeningRequest,
    SealedShares,
    SharesRequest,
    SumReply,
    SumRequest,
    fit_content,
    plain_bytes,
)
from gal.transport import CardFolder, Identity

Bytes = NDArray[np.uint8]

KEY_BYTES = 32
"""Of a public key, and of a seed's digest."""
SIGNATURE_BYTES = 80
"""Room for a signature (ECDSA on P-256 in DER has at most 72 bytes) with its length before it."""
ROLES = ("fit", "folds", "parts")
"""Arrays of a session setup with the roles of rows."""
BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares, sealed."""


def aggregation_group(terms: TaskTerms) -> Group:
    """The aggregation group of these terms: all invited organizations."""
    members = {one.name: one.fingerprint for one in terms.organizations}
    noise = () if terms.noise is None else (terms.noise.multiplier, terms.noise.clip)
    return Group(terms.fingerprint, members, terms.drop_outs, noise)


def known_keys(cards: CardFolder) -> set[str]:
    """Fingerprints of the organizations whose cards the operator has added."""
    return {card.fingerprint for card in cards.all().values()}


def named_in(group: Group, identity: Identity) -> Identity:
    """An organization's key, under its name in the aggregation group."""
    names = [name for name, one in group.members.items() if one == identity.fingerprint]
    if len(names) != 1:
        found = f"the key {identity.fingerprint} of {identity.name!r} is {len(names)} times"
        raise RefusedError("circle", f"{found} in this aggregation group")
    return replace(identity, name=names[0])


def own_secret(identity: Identity) -> bytes:
    """The secret of an organization's stochastic rounding, from its private key: the same after a restore."""
    return derived(identity.private_key, b"own secret")


def check_members(terms: TaskTerms, cards: CardFolder, own: str) -> None:
    """An error where values would be added to those of organizations without a card here."""
    group, known = aggregation_group(terms), known_keys(cards) - {terms.fingerprint}
    unknown = [
        f"{name} ({one})" for name, one in sorted(group.members.items()) if one not in known and one != own
    ]
    if unknown:
        raise RefusedError(
            "circle",
            f"your values in {terms.name!r} would be added to those of {', '.join(unknown)}, of whom no card "
            "is here: the label holder could have invented them. Ask these organizations themselves for "
            "their cards, compare the fingerprints, then gal cards add FILE and join again",
        )
    check_group(group, known | {own})


def sum_number(message: Message) -> int:
    """The number of the one sum that a message is about."""
    number, *others = message.fields["numbers"]
    if others:
        raise InvalidMessageError(f"a message is about one sum, and this one about {1 + len(others)}")
    return int(number)


def offer_arrays(offer: Offer) -> dict[str, Bytes]:
    """An offer: its keys and its signature."""
    keys = offer.mask_key + offer.box_key + bytes.fromhex(offer.promise)
    signed = bytes([len(offer.signature)]) + offer.signature
    return {
        "keys": _rows([keys], len(keys)),
        "signatures": _rows([signed.ljust(SIGNATURE_BYTES, b"\0")], SIGNATURE_BYTES),
    }


def read_offer(
    group: Group, name: str, number: int, certificate: bytes, keys: Bytes, signatures: Bytes
) -> Offer:
    """A member's offer: a mask key, one for shares if any, and a seed's digest."""
    _check_shape("keys", keys, (1, KEY_BYTES * (3 if group.shares else 2)), name)
    _check_shape("signatures", signatures, (1, SIGNATURE_BYTES), name)
    key, signature = keys.tobytes(), signatures.tobytes()
    parts = key[:KEY_BYTES], key[KEY_BYTES:-KEY_BYTES], key[-KEY_BYTES:].hex()
    return Offer(name, number, *parts, certificate, signature[1 : 1 + signature[0]])


def box_array(group: Group, shares: SealedShares, members: Sequence[str]) -> Bytes:
    """A member's sealed shares, by receiver; zeros for itself."""
    boxes = [shares.boxes.get(name, bytes(BOX_BYTES)) for name in _receivers(group, members)]
    return _rows(boxes, BOX_BYTES)[None]


def _receivers(group: Group, members: Sequence[str]) -> Sequence[str]:
    """Receivers of shares: none where no member may drop out."""
    return members if group.shares else ()


def read_own_boxes(group: Group, message: Message) -> dict[str, bytes]:
    """The sealed shares in a message of kind ``sum``, by the member that sealed them."""
    members, boxes = _receivers(group, message.fields["members"]), message.arrays["boxes"]
    _check_shape("boxes", boxes, (len(members), BOX_BYTES), "the label holder")
    return {name: box.tobytes() for name, box in zip(members, boxes, strict=True)}


def read_ask(message: Message) -> Ask:
    """A message of kind ``sum`` as an `Ask`."""
    fields = message.fields
    shape = tuple(fields["shape"])
    return Ask(fields["number"], tuple(fields["members"]), fields["content"], shape, fields["unit"])


def opening_arrays(group: Group, opening: Opening) -> dict[str, Bytes]:
    """A member's opening: shares in the order of names, or its own seed."""
    size = SHARE_BYTES if group.shares else SECRET_BYTES
    return {
        "seeds": _rows([opening.seeds[name] for name in sorted(opening.seeds)], size),
        "keys": _rows([opening.keys[name] for name in sorted(opening.keys)], SHARE_BYTES),
    }


def message_to_member(
    group: Group, request: SumRequest, about: Mapping[str, Any], rows: NDArray[np.bool_] | None
) -> tuple[str, int, dict[str, Any], dict[str, Bytes]]:
    """A request to a member as kind, number, fields and arrays of a message.

    ``about`` are the fields that name the request whose values are added up, ``rows`` the rows of it.
    """
    base = {"circle": group.digest}
    match request:
        case KeysRequest(number):
            return "keys", number, base | {"numbers": [number]}, {}
        case SharesRequest(number, offers):
            made = [offer_arrays(one) for one in offers]
            arrays = {name: np.stack([one[name] for one in made]) for name in ("keys", "signatures")}
            names = [one.name for one in offers]
            return "share", number, base | {"numbers": [number], "members": names}, arrays
        case MaskedRequest(ask, boxes):
            held = [boxes.get(name, bytes(BOX_BYTES)) for name in _receivers(group, ask.members)]
            arrays = {"boxes": _rows(held, BOX_BYTES)}
            if rows is not None:
                arrays["rows"] = rows.astype(np.uint8)
            fields = asdict(ask) | {"members": list(ask.members), "shape": list(ask.shape)}
            return "sum", ask.number, {**base, **fields, **about}, arrays
        case OpeningRequest(number, members, _):
            return "open", number, base | {"number": number, "members": list(members)}, {}


def read_member(
    group: Group, name: str, certificate: bytes, request: SumRequest, message: Message
) -> SumReply:
    """A member's reply to such a request; InvalidMessageError where it is none."""
    expected = {
        KeysRequest: "offers",
        SharesRequest: "shares",
        MaskedRequest: "masked",
        OpeningRequest: "opened",
    }
    if message.kind != expected[type(request)]:
        raise InvalidMessageError(f"{name} replied with {message.kind}, expected {expected[type(request)]}")
    arrays = message.arrays
    match request:
        case KeysRequest(number):
            return read_offer(group, name, number, certificate, arrays["keys"], arrays["signatures"])
        case SharesRequest(number, offers):
            members = _receivers(group, [one.name for one in offers])
            _check_shape("boxes", arrays["boxes"], (1, len(members), BOX_BYTES), name)
            boxes = zip(members, arrays["boxes"][0], strict=True)
            return SealedShares(name, number, {other: box.tobytes() for other, box in boxes if other != name})
        case MaskedRequest(ask, _):
            return Masked(name, ask.number, arrays["values"].view(np.uint32))
        case OpeningRequest(number, members, dropped):
            there, size = (members, SHARE_BYTES) if group.shares else ((name,), SECRET_BYTES)
            _check_shape("seeds", arrays["seeds"], (len(there), size), name)
            _check_shape("keys", arrays["keys"], (len(dropped), SHARE_BYTES), name)
            seeds = {other: one.tobytes() for other, one in zip(sorted(there), arrays["seeds"], strict=True)}
            keys = {other: one.tobytes() for other, one in zip(sorted(dropped), arrays["keys"], strict=True)}
            return Opening(name, number, seeds, keys)


def begin_content(begin: Message, known: NDArray[np.bool_]) -> str:
    """A digest of a session setup: all that fits depend on, except the organization's name and rows.

    The roles are those of the known rows; the rows themselves have a digest of their own.
    """
    complete = check_fields(begin.kind, begin.fields)  # with all defaults
    fields = {name: value for name, value in complete.items() if name != "organization"}
    roles = {
        name: [array.dtype.str, sha256_of(np.ascontiguousarray(array[known]).tobytes())]
        for name, array in begin.arrays.items()
        if name in ROLES
    }
    return sha256_of(plain_bytes(["begin", begin.task, begin.version, fields, roles]))


def learning_content(began: str, fits: Sequence[str]) -> str:
    """A digest of what models were learned from: the session setup and the digests of requests to fit.

    Every sum's content has it. Otherwise the label holder could have one organization fit a residual, and the
    others nothing, or other rows: the sum, or a difference of two, would be the values of one.
    """
    return sha256_of(plain_bytes(["learned from", began, list(fits)]))


def fit_sum_content(residual: str, learned: str) -> str:
    """The content of a sum of fitted values: the residual, and how it was to be fitted."""
    return sha256_of(f"{residual} {learned}".encode())


def residual_content(rows: str, request: FitRequest) -> str:
    """A digest of a residual and of the rows a member knows: of each there is one sum.

    Members that know different rows are never in one sum: of a row that one alone knows, it would be the
    value.
    """
    return sha256_of(f"{rows} {fit_content(request)}".encode())


def prediction_content(message: Message, rows: str, shape: Sequence[int], learned: str) -> str:
    """A digest of predicted rows, rates, and what rounds ``learned`` from: of each there is one sum."""
    fields = message.fields
    about = [message.task, message.version, fields["track"], fields["rounds"], fields["rates"]]
    return sha256_of(plain_bytes(["predict", *about, rows, list(shape), learned]))


def _rows(data: Sequence[bytes], size: int) -> Bytes:
    return np.frombuffer(b"".join(data), dtype=np.uint8).reshape(len(data), size)


def _check_shape(subject: str, array: NDArray[Any], expected: tuple[int, ...], name: str) -> None:
    if array.shape != expected:
        raise InvalidMessageError(f"{subject} of {name!r} have shape {array.shape}, expected {expected}")
