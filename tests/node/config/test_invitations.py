"""Invitations: signed terms that an operator reads, and everything that is not one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gal.errors import IdentityError, InvalidInputError
from gal.node.config.invitations import Invited, TaskTerms, read_invitation, write_invitation
from gal.transport import CardFolder, Identity, card_of, make_identity


class Identities:
    """A bank that invites, a lab that is invited, and a shop that is not."""

    def __init__(self, root: Path) -> None:
        self.bank, self.lab, self.shop = (make_identity(name) for name in ("bank", "lab", "shop"))
        self.cards = CardFolder(root)
        self.cards.add(card_of(self.bank, "127.0.0.1:7443"), "our-bank")

    def terms(self, **changes: Any) -> TaskTerms:
        given = {
            "task": "a" * 32,
            "name": "risk",
            "label_holder": "bank",
            "fingerprint": self.bank.fingerprint,
            "organizations": (Invited(name="lab", fingerprint=self.lab.fingerprint),),
            "outputs": 1,
            "rounds": 5,
        }
        return TaskTerms.model_validate(given | changes)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities(tmp_path_factory.mktemp("cards"))


def written(identities: Identities, path: Path, by: Identity | None = None, **changes: Any) -> Path:
    write_invitation(identities.terms(**changes), by or identities.bank, path / "risk.invitation")
    return path / "risk.invitation"


def test_every_term_is_in_the_digest(identities: Identities) -> None:
    base = identities.terms()
    changed: dict[str, Any] = {
        "task": "b" * 32,
        "name": "other",
        "purpose": "x",
        "outputs": 2,
        "rounds": 6,
        "fitted": "out-of-fold",
        "folds": 5,
        "cv_folds": 4,
        "probes": 12,
        "alignment": "psi",
        "made": "today",
        "label_holder": "bank2",
        "fingerprint": identities.shop.fingerprint,
        "organizations": (),
    }
    assert set(changed) | {"format", "privacy", "secure_aggregation", "drop_outs", "noise"} == set(
        TaskTerms.model_fields
    )
    signed = {identities.terms(**{name: value}).canonical() for name, value in changed.items()}
    assert len(signed | {base.canonical()}) == len(changed) + 1
    # The other invited organizations and their keys are signed, but a change needs no new joining.
    agreed = {
        name: value for name, value in changed.items() if name not in {"made", "fingerprint", "organizations"}
    }
    digests = {identities.terms(**{name: value}).digest for name, value in agreed.items()}
    assert len(digests | {base.digest}) == len(agreed) + 1


def test_with_sums_their_members_are_in_the_digest(identities: Identities) -> None:
    """A new member needs new terms for all; a sum has at least three members."""
    names = ("a", "b", "c", "d")
    everybody = tuple(Invited(name=name, fingerprint="sha256:" + name * 64) for name in names)
    sums = identities.terms(secure_aggregation="sums", organizations=everybody)
    others = [
        identities.terms(organizations=everybody),
        identities.terms(secure_aggregation="sums", organizations=everybody[:3]),
        identities.terms(secure_aggregation="sums", organizations=everybody, drop_outs=1),
        identities.terms(
            secure_aggregation="sums",
            organizations=(*everybody[:3], everybody[3].model_copy(update={"name": "x"})),
        ),
    ]
    assert len({sums.digest, *(one.digest for one in others)}) == 5
    for few in (everybody[:2], (*everybody[:2], everybody[1].model_copy(update={"name": "again"}))):
        with pytest.raises(ValidationError, match="at least 3 organizations beside the label holder"):
            identities.terms(secure_aggregation="sums", organizations=few)


@pytest.mark.parametrize(
    "purpose",
    [
        "fun\nPrivacy: every label is protected.",
        "fun\r\x1b[8m",
        "fun \u202e\x9b2J",
        "fun\u2028- Privacy: all.",
        'fun". Privacy: all. "',
    ],
)
def test_the_purpose_is_not_taken_for_a_term(identities: Identities, purpose: str) -> None:
    """A reader of the terms can tell the label holder's words from the terms, and sees all terms."""
    first, *others = identities.terms(purpose=purpose).sentences()
    assert others == identities.terms().sentences()[1:]
    assert first.isprintable()
    before, words, after = first.split('"')
    assert before.endswith("in its words: ")
    assert words.startswith("fun")
    assert after == ""


def test_one_who_is_not_known(identities: Identities, tmp_path: Path) -> None:
    path = written(identities, tmp_path, by=identities.shop, fingerprint=identities.shop.fingerprint)
    with pytest.raises(IdentityError, match=r"card is not known here.*gal cards add"):
        read_invitation(path, identities.cards, identities.lab.fingerprint)


def test_ones_own_is_for_others(identities: Identities, tmp_path: Path) -> None:
    path = written(identities, tmp_path, by=identities.shop, fingerprint=identities.shop.fingerprint)
    with pytest.raises(InvalidInputError, match=r"an invitation of .* itself: send it to the organizations"):
        read_invitation(path, identities.cards, identities.shop.fingerprint)


def test_one_who_signs_for_another(identities: Identities, tmp_path: Path) -> None:
    path = written(identities, tmp_path, by=identities.shop)
    with pytest.raises(IdentityError, match="not signed by our-bank"):
        read_invitation(path, identities.cards, identities.lab.fingerprint)


def test_terms_that_were_altered(identities: Identities, tmp_path: Path) -> None:
    path = written(identities, tmp_path)
    content = json.loads(path.read_text())
    content["terms"]["rounds"] = 500
    path.write_text(json.dumps(content))
    with pytest.raises(IdentityError, match="altered"):
        read_invitation(path, identities.cards, identities.lab.fingerprint)


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda content: {key: value for key, value in content.items() if key != name}


def _with_term(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content | {"terms": content["terms"] | {name: value}}


@pytest.mark.parametrize(
    "spoil",
    [
        _without("terms"),
        _without("signature"),
        lambda content: [content],
        lambda content: content | {"signature": "not base64!"},
        lambda content: content | {"signature": 5},
        _with_term("rounds", 0),
        _with_term("rounds", "many"),
        _with_term("name", "../../etc"),
        _with_term("task", "../x"),
        _with_term("format", 2),
        _with_term("privacy", "secret"),
        _with_term("surprise", 1),
        _with_term("alignment", "guess"),
        _with_term("parts", -1),
    ],
)
def test_what_is_no_invitation(
    identities: Identities, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    path = written(identities, tmp_path)
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(InvalidInputError, match=r"risk\.invitation"):
        read_invitation(path, identities.cards, identities.lab.fingerprint)
