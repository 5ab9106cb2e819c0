"""Circles: the organizations whose answers are added up, by the keys under which they know each other."""

from __future__ import annotations

from dataclasses import replace

from gal.errors import RefusedError
from gal.node.agreement.invitations import TaskTerms
from gal.secrecy.masking import derived
from gal.secrecy.member import check_circle
from gal.secrecy.messages import Circle
from gal.transport import CardFolder, Identity


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
