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


class Houses:
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
def houses(tmp_path_factory: pytest.TempPathFactory) -> Houses:
    return Houses(tmp_path_factory.mktemp("cards"))


def written(houses: Houses, path: Path, by: Identity | None = None, **changes: Any) -> Path:
    write_invitation(houses.terms(**changes), by or houses.bank, path / "risk.invitation")
    return path / "risk.invitation"


def test_every_term_is_in_the_digest(houses: Houses) -> None:
    base = houses.terms()
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
        "fingerprint": houses.shop.fingerprint,
        "organizations": (),
    }
    assert set(changed) | {"format", "privacy", "secure_aggregation", "drop_outs", "noise"} == set(
        TaskTerms.model_fields
    )
    signed = {houses.terms(**{name: value}).canonical() for name, value in changed.items()}
    assert len(signed | {base.canonical()}) == len(changed) + 1
    # Whom else she invites, and with which key, is signed, but nothing that others have to join anew for.
    agreed = {
        name: value for name, value in changed.items() if name not in {"made", "fingerprint", "organizations"}
    }
    digests = {houses.terms(**{name: value}).digest for name, value in agreed.items()}
    assert len(digests | {base.digest}) == len(agreed) + 1


def test_with_sums_their_members_are_in_the_digest(houses: Houses) -> None:
    """Nobody comes into a sum later without everybody joining anew, and fewer than three are none."""
    names = ("a", "b", "c", "d")
    everybody = tuple(Invited(name=name, fingerprint="sha256:" + name * 64) for name in names)
    sums = houses.terms(secure_aggregation="sums", organizations=everybody)
    others = [
        houses.terms(organizations=everybody),
        houses.terms(secure_aggregation="sums", organizations=everybody[:3]),
        houses.terms(secure_aggregation="sums", organizations=everybody, drop_outs=1),
        houses.terms(
            secure_aggregation="sums",
            organizations=(*everybody[:3], everybody[3].model_copy(update={"name": "x"})),
        ),
    ]
    assert len({sums.digest, *(one.digest for one in others)}) == 5
    for few in (everybody[:2], (*everybody[:2], everybody[1].model_copy(update={"name": "again"}))):
        with pytest.raises(ValidationError, match="at least 3 organizations beside the label holder"):
            houses.terms(secure_aggregation="sums", organizations=few)


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
def test_the_purpose_is_not_taken_for_a_term(houses: Houses, purpose: str) -> None:
    """Whoever reads the terms has to know which words are the label holder's, and see all that follow."""
    first, *others = houses.terms(purpose=purpose).sentences()
    assert others == houses.terms().sentences()[1:]
    assert first.isprintable()
    before, words, after = first.split('"')
    assert before.endswith("in its words: ")
    assert words.startswith("fun")
    assert after == ""


def test_one_who_is_not_known(houses: Houses, tmp_path: Path) -> None:
    path = written(houses, tmp_path, by=houses.shop, fingerprint=houses.shop.fingerprint)
    with pytest.raises(IdentityError, match=r"card is not known here.*gal cards add"):
        read_invitation(path, houses.cards, houses.lab.fingerprint)


def test_ones_own_is_for_others(houses: Houses, tmp_path: Path) -> None:
    path = written(houses, tmp_path, by=houses.shop, fingerprint=houses.shop.fingerprint)
    with pytest.raises(InvalidInputError, match=r"an invitation of .* itself: send it to the organizations"):
        read_invitation(path, houses.cards, houses.shop.fingerprint)


def test_one_who_signs_for_another(houses: Houses, tmp_path: Path) -> None:
    path = written(houses, tmp_path, by=houses.shop)
    with pytest.raises(IdentityError, match="not signed by our-bank"):
        read_invitation(path, houses.cards, houses.lab.fingerprint)


def test_terms_that_were_altered(houses: Houses, tmp_path: Path) -> None:
    path = written(houses, tmp_path)
    content = json.loads(path.read_text())
    content["terms"]["rounds"] = 500
    path.write_text(json.dumps(content))
    with pytest.raises(IdentityError, match="altered"):
        read_invitation(path, houses.cards, houses.lab.fingerprint)


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
    houses: Houses, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    path = written(houses, tmp_path)
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(InvalidInputError, match=r"risk\.invitation"):
        read_invitation(path, houses.cards, houses.lab.fingerprint)
