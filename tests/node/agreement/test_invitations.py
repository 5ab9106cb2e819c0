"""Invitations: signed terms that an operator reads, and everything that is not one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gal.errors import GALError, IdentityError, InvalidInputError, RefusedError
from gal.node.agreement.invitations import LARGEST, Invited, TaskTerms, read_invitation, write_invitation
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


def test_terms_come_as_they_were_written(houses: Houses, tmp_path: Path) -> None:
    path = written(houses, tmp_path, purpose="who pays back", rounds=7)
    terms, peer = read_invitation(path, houses.cards, houses.lab.fingerprint)
    assert terms == houses.terms(purpose="who pays back", rounds=7)
    assert terms.digest == houses.terms(purpose="who pays back", rounds=7).digest
    assert peer == "our-bank"  # the name under which she is known here, not the one she gives herself


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
        "parts": 4,
        "signs": 12,
        "alignment": "psi",
        "made": "today",
        "label_holder": "bank2",
        "fingerprint": houses.shop.fingerprint,
        "organizations": (),
    }
    assert set(changed) | {"format", "privacy", "secrecy", "drop_outs"} == set(TaskTerms.model_fields)
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
    sums = houses.terms(secrecy="sums", organizations=everybody)
    others = [
        houses.terms(organizations=everybody),
        houses.terms(secrecy="sums", organizations=everybody[:3]),
        houses.terms(secrecy="sums", organizations=everybody, drop_outs=1),
        houses.terms(
            secrecy="sums", organizations=(*everybody[:3], everybody[3].model_copy(update={"name": "x"}))
        ),
    ]
    assert len({sums.digest, *(one.digest for one in others)}) == 5
    for few in (everybody[:2], (*everybody[:2], everybody[1].model_copy(update={"name": "again"}))):
        with pytest.raises(ValidationError, match="at least 3 organizations beside the label holder"):
            houses.terms(secrecy="sums", organizations=few)
    facts = json.loads(houses.terms().canonical())
    assert not {"secrecy", "drop_outs"} & set(facts), "as it was before there were sums"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alignment": "plain"}, "tells you all her row ids"),
        ({"alignment": "hashed"}, "secret that you share"),
        ({"alignment": "psi"}, "she learns which rows you share"),
        ({"fitted": "out-of-fold", "folds": 5}, "5 times"),
        ({"parts": 4}, "5 fits a round"),
        ({"signs": 12}, "4 random targets, and up to 12 residuals times signs"),
        ({"purpose": "who pays back"}, "who pays back"),
        ({"rounds": 7}, "at most 7 rounds"),
    ],
)
def test_terms_in_plain_words(houses: Houses, changes: dict[str, Any], said: str) -> None:
    assert said in " ".join(houses.terms(**changes).sentences())


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
    assert before.endswith("in her words: ")
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


def test_one_that_is_for_somebody_else(houses: Houses, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="does not invite this organization but lab") as error:
        read_invitation(written(houses, tmp_path), houses.cards, houses.shop.fingerprint)
    assert error.value.code == "not-invited"


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


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b" " * (LARGEST + 1)])
def test_any_other_file(houses: Houses, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.invitation"
    path.write_bytes(content)
    with pytest.raises(GALError, match=r"x\.invitation"):
        read_invitation(path, houses.cards, houses.lab.fingerprint)


def test_no_file(houses: Houses, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        read_invitation(tmp_path / "gone", houses.cards, houses.lab.fingerprint)


def promise(**more: Any) -> dict[str, Any]:
    return {"privacy": {"mechanism": "laplace-labels", "epsilon": 1.0} | more}


def test_terms_say_whether_residuals_tell_columns(houses: Houses) -> None:
    noise = {"columns_epsilon": 10.0, "columns_delta": 1e-6}
    plain, noisy = houses.terms(**promise()), houses.terms(**promise(**noise))
    assert plain.digest != noisy.digest
    assert noisy.digest != houses.terms(**promise(**noise | {"columns_epsilon": 9.0})).digest
    assert "Columns are not protected by that" in plain.sentences()[-1]
    assert "noise for columns (epsilon 10, delta 1e-06, each version)" in noisy.sentences()[-1]
    with pytest.raises(ValueError, match="belong together"):
        houses.terms(**promise(columns_epsilon=10.0))


def test_terms_without_noise_for_columns_have_the_digest_that_they_had_before(houses: Houses) -> None:
    privacy = {"mechanism": "laplace-labels", "epsilon": 1.0, "delta": 0.0}
    assert json.loads(houses.terms(privacy=privacy).canonical())["privacy"] == privacy
