"""The label holder's side of a sum, without input or output.

Masked values are added as they come. What the members open removes the masks of the sum, not those of one
member's values.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidMessageError, InvalidReplyError, RefusedError
from gal.secure_aggregation.masking import Ring, derived, from_ring, join_shares, mask, public_key, sha256_of
from gal.secure_aggregation.member import add_pair, check_present, pair_mask
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
    check_offer,
)

Trips = Generator[
    Mapping[str, SumRequest], Mapping[str, SumReply], tuple[NDArray[np.float64], tuple[str, ...]]
]
"""Round trips of one sum: yields requests and receives replies by member; returns the sum and its members."""


class Collector:
    """One sum of a group; late members are left out, if so many may drop out."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.number = group, number
        self._offers: dict[str, Offer] = {}
        self._shares: dict[str, SealedShares] = {}
        self._ask: Ask | None = None
        self._total: Ring | None = None
        self._answered: set[str] = set()
        self._closed = False
        self._openings: dict[str, Opening] = {}

    def run(
        self,
        members: Sequence[str],
        content: str,
        shape: tuple[int, ...],
        unit: float,
        *,
        everybody: bool = False,
    ) -> Trips:
        """The whole sum of these members' values; its driver carries the messages.

        ``everybody``: no member may drop out of it, also where that was agreed.
        """
        check_present(self.group, tuple(members))
        self._take((yield dict.fromkeys(members, KeysRequest(self.number))))
        offers = self.offers()
        self._take((yield dict.fromkeys((one.name for one in offers), SharesRequest(self.number, offers))))
        ask = self.ask(content, shape, unit)
        self._take((yield {name: MaskedRequest(ask, self.boxes_for(name)) for name in ask.members}))
        there = self.survivors()
        if everybody and there != tuple(sorted(members)):
            raise RefusedError("too-few", "not all members have replied in time")
        self._take((yield dict.fromkeys(there, OpeningRequest(self.number, there, self.dropped()))))
        return self.total(), there

    def _take(self, replies: Mapping[str, SumReply]) -> None:
        for reply in replies.values():
            match reply:
                case Offer():
                    self.take_offer(reply)
                case SealedShares():
                    self.take_shares(reply)
                case Masked():
                    self.take_masked(reply)
                case Opening():
                    self.take_opening(reply)

    # --- 1 and 2: keys and shares

    def take_offer(self, offer: Offer) -> None:
        """A member's keys."""
        check_offer(self.group, self.number, offer)
        self._offers[offer.name] = offer

    def offers(self) -> tuple[Offer, ...]:
        """All keys that were sent."""
        check_present(self.group, tuple(self._offers))
        return tuple(self._offers[name] for name in sorted(self._offers))

    def take_shares(self, shares: SealedShares) -> None:
        """A member's sealed shares."""
        if shares.name not in self._offers or shares.number != self.number:
            raise RefusedError("order", f"shares of {shares.name!r}, sum {shares.number}, were not expected")
        self._shares[shares.name] = shares

    # --- 3: masked values

    def ask(self, content: str, shape: tuple[int, ...], unit: float) -> Ask:
        """Fix the members of the sum: all that gave shares."""
        if self._ask is None:
            members = tuple(sorted(self._shares))
            check_present(self.group, members)
            self._ask = Ask(self.number, members, content, tuple(shape), unit)
            self._total = np.zeros(shape, dtype=np.uint32)
        return self._ask

    def boxes_for(self, name: str) -> dict[str, bytes]:
        """The others' shares for a member; none without drop-outs."""
        if not self.group.shares:
            return {}
        return {one: shares.boxes[name] for one, shares in self._shares.items() if one != name}

    def take_masked(self, masked: Masked) -> None:
        """A member's masked values: added, and not kept."""
        ask = self._asked()
        if self._closed or masked.name not in ask.members or masked.name in self._answered:
            raise RefusedError("order", f"an answer of {masked.name!r} was not expected in sum {self.number}")
        if masked.values.shape != ask.shape or masked.values.dtype != np.uint32 or self._total is None:
            raise InvalidReplyError(
                f"{masked.name} replied with {masked.values.dtype} of shape {masked.values.shape}, expected "
                f"uint32 of {ask.shape}"
            )
        self._total += masked.values
        self._answered.add(masked.name)

    def survivors(self) -> tuple[str, ...]:
        """The members in the sum: all whose values came until now."""
        there = tuple(sorted(self._answered))
        check_present(self.group, there)
        self._closed = True
        return there

    def dropped(self) -> tuple[str, ...]:
        """Members whose values did not come."""
        return tuple(sorted(set(self._asked().members) - set(self.survivors())))

    # --- 4: opening

    def take_opening(self, opening: Opening) -> None:
        """A member's help."""
        expected = set(self.survivors())
        seeds = expected if self.group.shares else {opening.name}
        fits = set(opening.seeds) == seeds and set(opening.keys) == set(self.dropped())
        if opening.number != self.number or opening.name not in expected or not fits:
            raise InvalidReplyError(f"{opening.name} opened something else than sum {self.number}")
        self._openings[opening.name] = opening

    def total(self) -> NDArray[np.float64]:
        """The sum; an error where too few members have helped, or one with wrong shares."""
        ask, there = self._asked(), self.survivors()
        if len(self._openings) < self.group.threshold or self._total is None:
            raise RefusedError(
                "too-few",
                f"sum {self.number}: {len(self._openings)} members have helped to open it, "
                f"{self.group.threshold} are needed. Ask the others again",
            )
        words, total = ask.digest.encode(), self._total.copy()
        for name in there:
            held = {
                one: opening.seeds[name] for one, opening in self._openings.items() if name in opening.seeds
            }
            seed = self._joined(name, held) if self.group.shares else held[name]
            if sha256_of(seed) != self._offers[name].promise:
                raise InvalidMessageError(_wrong(self.number, name))
            total -= mask(derived(seed, b"own " + words), ask.shape)
        for gone in self.dropped():
            key = self._joined(gone, {one: held.keys[gone] for one, held in self._openings.items()})
            if public_key(key) != self._offers[gone].mask_key:
                raise InvalidMessageError(_wrong(self.number, gone))
            for name in there:  # their masks with a dropped member have nothing to cancel them
                pair = pair_mask(key, self._offers[name].mask_key, ask, gone, name)
                total = add_pair(total, gone, name, pair)
        return from_ring(total, ask.unit)

    def _joined(self, name: str, shares: Mapping[str, bytes]) -> bytes:
        chosen = sorted(shares)[: self.group.threshold]
        try:
            return join_shares({self.group.place(one): shares[one] for one in chosen})
        except InvalidMessageError as error:
            raise InvalidMessageError(f"{_wrong(self.number, name)} ({error})") from error

    def _asked(self) -> Ask:
        if self._ask is None:
            raise RefusedError("order", f"sum {self.number}: no member has a request yet")
        return self._ask


def _wrong(number: int, name: str) -> str:
    return (
        f"sum {number}: the shares of a secret of {name!r} do not fit what it promised: it, or one who "
        "helped, sent wrong ones. Ask for the sum again"
    )
