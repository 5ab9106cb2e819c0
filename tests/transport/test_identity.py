"""Keys, certificates and fingerprints."""

from __future__ import annotations

import datetime
import hashlib
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gal.errors import IdentityError
from gal.transport import (
    fingerprint_of,
    load_identity,
    make_identity,
    save_identity,
    verify,
)
from loopback import pem_key


def test_the_fingerprint_is_that_of_the_public_key() -> None:
    bank = make_identity("bank")
    public = x509.load_pem_x509_certificate(bank.certificate).public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert bank.fingerprint == "sha256:" + hashlib.sha256(der).hexdigest() == fingerprint_of(bank.certificate)
    assert make_identity("bank").fingerprint != bank.fingerprint


def test_a_certificate_is_valid_for_every_clock_and_no_authority() -> None:
    certificate = x509.load_pem_x509_certificate(make_identity("bank").certificate)
    assert certificate.not_valid_before_utc == datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert certificate.not_valid_after_utc.year == 9999
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node.gal"]


def test_a_signature_holds_for_this_key_and_these_bytes_only() -> None:
    bank, other = make_identity("bank"), make_identity("bank")
    signature = bank.sign(b"these bytes")
    assert verify(bank.certificate, b"these bytes", signature)
    assert not verify(bank.certificate, b"other bytes", signature)
    assert not verify(other.certificate, b"these bytes", signature)
    assert not verify(bank.certificate, b"these bytes", b"")


def test_the_private_key_is_not_shown() -> None:
    bank = make_identity("bank")
    assert "PRIVATE" not in repr(bank)
    assert "bank" in repr(bank)


def test_saved_and_loaded_with_a_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    home, bank = tmp_path / "home", make_identity("bank")
    save_identity(bank, home)
    assert load_identity(home, "bank") == bank
    assert stat.S_IMODE((home / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert sorted(path.name for path in home.iterdir()) == ["key.pem"]


def test_a_key_is_overwritten_only_on_purpose(tmp_path: Path) -> None:
    old, new = make_identity("bank"), make_identity("bank")
    save_identity(old, tmp_path)
    with pytest.raises(IdentityError, match="exists: a key is not overwritten"):
        save_identity(new, tmp_path)
    assert load_identity(tmp_path, "bank").fingerprint == old.fingerprint
    save_identity(new, tmp_path, replace=True)
    assert load_identity(tmp_path, "bank") == new


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    save_identity(make_identity("bank"), tmp_path)
    (tmp_path / "key.pem").chmod(0o640)
    with pytest.raises(IdentityError, match=r"mode 0640.*chmod 600"):
        load_identity(tmp_path, "bank")


def test_invalid_identities_are_errors_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"key\.pem is not there: gal init makes it"):
        load_identity(tmp_path, "bank")
    save_identity(make_identity("bank"), tmp_path)
    key, other = make_identity("bank"), make_identity("bank")
    (tmp_path / "key.pem").write_bytes(key.private_key + other.certificate)
    with pytest.raises(IdentityError, match="the certificate is of the key"):
        load_identity(tmp_path, "bank")
    (tmp_path / "key.pem").write_bytes(key.private_key)
    with pytest.raises(IdentityError, match="no readable certificate"):
        load_identity(tmp_path, "bank")


@pytest.mark.parametrize("data", [b"nothing", pem_key(ec.generate_private_key(ec.SECP384R1()))])
def test_a_key_that_is_none_of_ours_is_refused(tmp_path: Path, data: bytes) -> None:
    save_identity(make_identity("bank"), tmp_path)
    (tmp_path / "key.pem").write_bytes(data)
    with pytest.raises(IdentityError, match=r"key\.pem is not a"):
        load_identity(tmp_path, "bank")
