"""An organization's side of sums, without input or output.

The label holder carries all messages and may lie in each of them. What protects a member:

- keys count only if they are signed by fingerprints that its operator has checked with the others;
- members are fixed before it sends values, and its masks follow from all that was sent, and from both names:
  a copied key gives another mask;
- without drop-outs its mask key never leaves in any form, and its seed only to open a sum of all;
- else it gives one share of one secret of each other member: of the seed of a member in the sum, or of the
  mask key of a dropped one, never both; that is on record before the shares leave;
- of one residual, and of one row to predict, it helps to open one sum, never a second with other members;
- a dropped member stays out, and no more may drop out than was agreed;
- its values are rounded on a common grid, by its own draws, and have its share of the noise, before any mask.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gal.errors import RefusedError
from gal.secure_aggregation.masking import (
    SHARE_BYTES,
    Draw,
    Ring,
    agreed,
    derived,
    draws,
    mask,
    noise_share,
    seal,
    split_secret,
    to_ring,
    unseal,
)
from gal.secure_aggregation.messages import (
    Ask,
    Group,
    Masked,
    Offer,
    Opening,
    SealedShares,
    Secrets,
    check_offer,
    plain_bytes,
)
from gal.secure_aggregation.record import Claim, Claims
from gal.secure_aggregation.terms import FEWEST, Sums
from gal.transport.identity import Identity, fingerprint_of

PENDING = 512
"""Sums that have keys at once, at most: endless requests fill no memory."""
_NO_SECRETS = Secrets(b"", b"", b"")


@dataclass
class _Sum:
    """One sum, as far as this member has come."""

    secrets: Secrets
    offers: dict[str, Offer] = field(default_factory=dict)
    own_shares: tuple[bytes, bytes] = (b"", b"")
    ask: Ask | None = None
    once: str = ""
    """Of what there is one sum."""
    rows: tuple[str, ...] = ()
    shares: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """By member: what it gave us, a share of its mask key and one of its seed."""
    opening: Opening | None = None
    """What left to open it: all that is kept then."""


class GroupMember:
    """An organization in an aggregation group."""

    def __init__(
        self,
        identity: Identity,
        group: Group,
        known: Collection[str],
        record: Claims,
        holder: str | None = None,
        *,
        secret: bytes,
    ) -> None:
        """Join a group; ``known`` are the fingerprints that the operator has checked with their owners.

        Rounding follows from ``secret``, which is the same after a restart, and never leaves. ``holder``: the
        label holder's name in the record, also after it gets a new key; default: its fingerprint.
        """
        self.name, self.group = identity.name, group
        self._identity, self._record, self._secret = identity, record, secret
        self._holder = group.holder if holder is None else holder
        self._pending: dict[int, _Sum] = {}
        own = fingerprint_of(identity.certificate)
        if group.members.get(self.name) != own:
            raise RefusedError(
                "circle", f"this aggregation group does not have {self.name!r} with its key {own}"
            )
        check_group(group, {own, *known})
        claim = Claim(self._holder, "circle", group.digest)
        self._settle("circle", [claim], "it has joined another aggregation group of this label holder")

    # --- 1 and 2: keys and shares

    def offer(self, number: int) -> Offer:
        """Fresh keys for a sum; the same ones until its values are sent."""
        if self._record.value(self._scope("number"), str(number)) is not None:
            raise RefusedError("number", f"{self.name} has replied in sum {number}: take a new number")
        if number not in self._pending:
            while len(self._pending) >= PENDING:  # the oldest
                self._pending.pop(next(iter(self._pending)))
            self._pending[number] = _Sum(Secrets())
        one = self._pending[number]
        return one.secrets.offer(self.group, number, self._identity)

    def share(self, number: int, offers: Collection[Offer]) -> SealedShares:
        """Sealed shares of both secrets for each of the others; none without drop-outs.

        Then all members are in the sum: no mask key is ever needed, and each gives its own seed.
        """
        one = self._sum(number)
        if one.offers:
            raise RefusedError("order", f"{self.name} has given its shares of sum {number}")
        by_name = {offer.name: offer for offer in offers}
        for offer in offers:
            check_offer(self.group, number, offer)
        own = by_name.get(self.name)
        if own is None or own.mask_key != one.secrets.offer(self.group, number, self._identity).mask_key:
            raise RefusedError("offer", f"the offers of sum {number} lack the one of {self.name}")
        self._check_present(tuple(by_name))
        boxes = self._boxes(one, number, by_name) if self.group.shares else {}
        one.offers = by_name
        return SealedShares(self.name, number, boxes)

    def _boxes(self, one: _Sum, number: int, by_name: Mapping[str, Offer]) -> dict[str, bytes]:
        """Both secrets divided, and each share sealed for its receiver."""
        n = len(self.group.members)
        keys = split_secret(one.secrets.mask_key, self.group.threshold, n)
        seeds = split_secret(one.secrets.seed, self.group.threshold, n)
        boxes = {}
        for name in by_name:
            place = self.group.place(name) - 1
            if name == self.name:
                one.own_shares = keys[place], seeds[place]
            else:
                boxes[name] = seal(self._box_key(one, by_name[name], number), keys[place] + seeds[place])
        return boxes

    def _box_key(self, one: _Sum, peer: Offer, number: int, *, sent: bool = True) -> bytes:
        way = f"{self.name}>{peer.name}" if sent else f"{peer.name}>{self.name}"
        purpose = f"box {self.group.digest} {number} {way}".encode()
        return agreed(one.secrets.box_key, peer.box_key, purpose)

    # --- 3: masked values

    def answer(
        self,
        ask: Ask,
        boxes: Mapping[str, bytes],
        values: NDArray[np.floating],
        *,
        content: str,
        unit: float,
        once: str = "",
        rows: Sequence[str] = (),
        also: Sequence[Claim] = (),
    ) -> Masked:
        """Its masked values.

        Parameters
        ----------
        boxes: the others' shares for it.
        content, unit: the digest of the request as this member received it, and the unit that follows.
            In a smaller unit large values could not be written, and the refusal would reveal their size.
        once: the digest of what has one sum, where that is less than the content: a residual.
        rows: digests of rows to predict; rows of a residual go by their places.
        also: further claims, on record before anything leaves.
        """
        one = self._sum(ask.number)
        if one.ask is not None or not one.offers:
            raise RefusedError("order", f"{self.name} cannot reply in sum {ask.number} now, or not again")
        if (ask.content, ask.unit, tuple(ask.shape)) != (content, unit, tuple(values.shape)):
            raise RefusedError(
                "content",
                f"sum {ask.number} has another content, of shape {tuple(ask.shape)} or in units of "
                f"{ask.unit}, than the request to {self.name} ({values.shape}, {unit}): nothing was sent",
            )
        if set(ask.members) - set(one.offers):
            raise RefusedError("members", f"sum {ask.number} has members without keys: nothing was sent")
        self._check_present(ask.members)
        self._check_content(ask, once or content)
        places = [int(row[:16], 16) for row in rows] if rows else range(len(values))
        draw = partial(draws, self._secret, np.array(places, dtype=np.uint64))
        encoded = self._noised(values, ask.unit, draw)
        if self.group.shares:
            one.shares = {name: self._opened_box(one, ask.number, name, boxes) for name in ask.members}
        claim = Claim(self._scope("number"), str(ask.number), ask.digest)
        self._settle("number", [claim, *also], f"it has replied in sum {ask.number} before")
        one.ask, one.once = ask, once or content
        one.rows = tuple(rows) if self.group.shares else ()  # else every sum is of all members
        masked = Masked(self.name, ask.number, encoded + self._masks(one, ask))
        one.secrets = replace(one.secrets, mask_key=b"", box_key=b"")  # a stolen memory has none
        return masked

    def _noised(self, values: NDArray[np.floating], unit: float, draw: Draw) -> Ring:
        """Values on the grid; where noise was agreed on, clipped and with this member's share of it.

        Shares are sized for the fewest members that a sum may have. Each sum draws anew.
        """
        members = len(self.group.members)
        if not self.group.noise:
            return to_ring(values, unit, members, draw)
        multiplier, clip = self.group.noise
        steps = to_ring(np.clip(values, -clip * unit, clip * unit), unit, members, draw)
        return steps + noise_share(values.shape, multiplier, clip, self.group.threshold)

    def _opened_box(
        self, one: _Sum, number: int, sender: str, boxes: Mapping[str, bytes]
    ) -> tuple[bytes, bytes]:
        if sender == self.name:
            return one.own_shares
        key = self._box_key(one, one.offers[sender], number, sent=False)
        data = unseal(key, boxes.get(sender, b""), sender)
        return data[:SHARE_BYTES], data[SHARE_BYTES:]

    def _masks(self, one: _Sum, ask: Ask) -> Ring:
        total = mask(derived(one.secrets.seed, b"own " + ask.digest.encode()), tuple(ask.shape))
        for name in ask.members:
            if name != self.name:
                pair = pair_mask(one.secrets.mask_key, one.offers[name].mask_key, ask, self.name, name)
                total = add_pair(total, self.name, name, pair)
        return total

    # --- 4: help to open

    def open(self, number: int, survivors: Sequence[str]) -> Opening:
        """Shares that open the sum of these members; once, and on record first."""
        one = self._sum(number)
        if one.ask is None:
            raise RefusedError("order", f"{self.name} has not replied in sum {number}: nothing to open")
        there = tuple(sorted(set(survivors)))
        if self.name not in there or set(there) - set(one.ask.members):
            raise RefusedError(
                "members",
                f"sum {number} is to be opened for {', '.join(there)}: {self.name}, which replied, must be "
                f"among them, and no others than {', '.join(one.ask.members)}",
            )
        self._check_present(there)
        together = " ".join(there)
        gone = sorted(set(self.group.members) - set(there))
        claims = [
            Claim(self._scope("opened"), str(number), together),
            Claim(self._scope("content"), one.once, together),
            *(Claim(self._scope("row"), row, together) for row in one.rows),
            *(Claim(self._scope("lost"), name, "lost") for name in gone),
        ]
        self._settle(
            "opened", claims, "it has helped to open a sum of the same with other members, and does so once"
        )
        if one.opening is None:
            one.opening = self._opening(one, number, there, sorted(set(one.ask.members) - set(there)))
            one.secrets, one.own_shares, one.shares = _NO_SECRETS, (b"", b""), {}
        return one.opening

    def _opening(self, one: _Sum, number: int, present: Sequence[str], dropped: Sequence[str]) -> Opening:
        if not self.group.shares:
            return Opening(self.name, number, {self.name: one.secrets.seed}, {})
        return Opening(
            self.name,
            number,
            seeds={name: one.shares[name][1] for name in present},
            keys={name: one.shares[name][0] for name in dropped},
        )

    def forget(self, number: int) -> None:
        """Delete the secrets of a sum that is over or given up."""
        self._pending.pop(number, None)

    # --- checks

    def _sum(self, number: int) -> _Sum:
        if number not in self._pending:
            raise RefusedError(
                "number",
                f"{self.name} has no keys for sum {number} (they are gone after a restart): begin a new sum",
            )
        return self._pending[number]

    def _scope(self, content: str) -> str:
        return f"{self._holder} {content}"

    def _check_present(self, names: Sequence[str]) -> None:
        """Whether these members can form a sum: enough of them, and no dropped one."""
        lost = set(self._record.found(self._scope("lost")))
        back = sorted(lost & set(names))
        if back:
            raise RefusedError(
                "members", f"{', '.join(back)} dropped out of an earlier sum, and cannot be in another"
            )
        check_present(self.group, names)

    def _check_content(self, ask: Ask, once: str) -> None:
        opened = self._record.value(self._scope("content"), once)
        if opened is not None and opened != " ".join(ask.members):
            raise RefusedError(
                "content",
                f"{self.name} has helped to open a sum of the same for {opened}: not again for "
                f"{' '.join(ask.members)}",
            )

    def _settle(self, code: str, claims: Sequence[Claim], reason: str) -> None:
        differing = self._record.settle(claims)
        if differing:
            raise RefusedError(code, f"{self.name} refuses: {reason} (on record: {differing[0].value})")


def check_group(group: Group, known: Collection[str]) -> None:
    """An error where a group is too small, or has a member whose key is unknown."""
    prints = list(group.members.values())
    unknown = sorted(name for name, one in group.members.items() if one not in known)
    if unknown:
        raise RefusedError(
            "circle",
            f"the members {', '.join(unknown)} have keys that are not known here: ask these organizations "
            "for their fingerprints, not the label holder, who could have invented them",
        )
    if len(set(prints)) < len(prints) or group.holder in prints:
        raise RefusedError("circle", "one key is twice among the members, or is the label holder's")
    Sums(group.drop_outs).check(len(prints))


def check_present(group: Group, names: Sequence[str]) -> None:
    """An error where a sum of these members must not be opened."""
    there = set(names)
    if len(there) < len(names) or there - set(group.members):
        raise RefusedError("members", f"members are {', '.join(group.names)}, got {', '.join(names)}")
    least = max(group.threshold, FEWEST)
    if len(there) < least:
        missing = sorted(set(group.members) - there)
        raise RefusedError(
            "too-few",
            f"{', '.join(missing)} not there: a sum needs {least} of the {len(group.members)} members. Wait "
            "for them, and ask again",
        )


def pair_mask(private: bytes, public: bytes, ask: Ask, name: str, other: str) -> Ring:
    """The mask that two members share in a sum; with both names, so that a copied key gives another mask."""
    purpose = f"pair {ask.digest} ".encode() + plain_bytes(sorted((name, other)))
    return mask(agreed(private, public, purpose), tuple(ask.shape))


def add_pair(total: Ring, name: str, other: str, pair: Ring) -> Ring:
    """A total with a shared mask: one of the two members adds it, the other subtracts it."""
    return total + pair if name < other else total - pair
