"""With a company CA, TLS trusts everybody it has issued a certificate to: keys still decide."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from cryptography import x509

from gal.errors import IdentityError, RefusedError
from gal.transport import Identity, card_of, load_identity, save_identity
from live_nodes import SMALL, Authority, House, authority, dialed, house, listening, relay

pytestmark = pytest.mark.timeout(60)

HERE: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


@pytest.fixture
def company() -> Authority:
    return authority()


@pytest.fixture
def bank(tmp_path: Path, company: Authority) -> House:
    return house(tmp_path, "bank", company.identity("bank", HERE))


@pytest.fixture
def hospital(tmp_path: Path, company: Authority, bank: House) -> House:
    hospital = house(tmp_path, "hospital", company.identity("hospital", HERE))
    bank.knows(hospital)
    return hospital


def test_nodes_with_certificates_of_a_company_meet(bank: House, hospital: House) -> None:
    with listening(bank) as live:
        stream = dialed(hospital, live.card())
        stream.send(SMALL)
        assert stream.receive().message == SMALL
        stream.close()


def test_roots_are_kept_in_the_home_and_go_into_the_card(tmp_path: Path, bank: House) -> None:
    save_identity(bank.identity, tmp_path / "home")
    assert load_identity(tmp_path / "home", "bank") == bank.identity
    assert card_of(bank.identity).roots == bank.identity.roots
    assert card_of(bank.identity).trusted == bank.identity.roots


def test_a_self_signed_node_and_one_of_a_company_meet(tmp_path: Path, bank: House) -> None:
    clinic = house(tmp_path, "clinic")
    bank.knows(clinic)
    with listening(bank) as live:
        stream = dialed(clinic, live.card())
        stream.send(SMALL)
        assert stream.receive().message == SMALL
        stream.close()


def test_a_certificate_of_the_company_does_not_make_one_known(
    tmp_path: Path, company: Authority, bank: House, hospital: House
) -> None:
    colleague = house(tmp_path, "colleague", company.identity("hospital", HERE))
    with listening(bank) as live:
        with pytest.raises(RefusedError, match="is not known here") as caught:
            dialed(colleague, live.card())
        assert caught.value.code == "unknown-key"
        assert [fingerprint for fingerprint, _ in live.refused] == [colleague.fingerprint]


def test_a_colleague_cannot_answer_as_the_label_holder(
    tmp_path: Path, company: Authority, bank: House, hospital: House
) -> None:
    colleague = house(tmp_path, "colleague", company.identity("bank", HERE))
    colleague.knows(hospital)
    with listening(colleague) as live:
        card = card_of(bank.identity, live.card().address)
        with pytest.raises(IdentityError, match="could not prove that it is bank"):
            dialed(hospital, card)


def test_a_relay_cannot_use_the_label_holders_own_proof(
    tmp_path: Path, company: Authority, bank: House, hospital: House
) -> None:
    """It is itself known to the bank, and hands on every frame, the bank's genuine welcome as well."""
    colleague = house(tmp_path, "colleague", company.identity("bank", HERE))
    bank.cards.add(card_of(colleague.identity), "colleague")
    seen: list[str] = []
    with (
        listening(bank, lambda stream: seen.append(stream.peer)) as live,
        relay(colleague.identity, company.certificate, live.card()) as port,
        pytest.raises(IdentityError, match="passes on what somebody else sends"),
    ):
        dialed(hospital, card_of(bank.identity, f"127.0.0.1:{port}"))
    assert seen == ["colleague"], "the relay reached the bank: the proof alone stopped it"


def test_a_certificate_of_another_host_is_refused(
    tmp_path: Path, company: Authority, bank: House, hospital: House
) -> None:
    elsewhere = house(
        tmp_path, "elsewhere", company.identity("elsewhere", [x509.DNSName("elsewhere.example")])
    )
    elsewhere.knows(hospital)
    with (
        listening(elsewhere) as live,
        pytest.raises(IdentityError, match="does not hold the key in the card"),
    ):
        dialed(hospital, live.card())


def test_a_leaf_with_its_chain_is_known_by_its_leaf(company: Authority, bank: House) -> None:
    mine = bank.identity
    chained = Identity("bank", mine.private_key, mine.certificate + company.certificate, company.certificate)
    assert chained.fingerprint == mine.fingerprint
    assert card_of(chained).certificate == chained.certificate
