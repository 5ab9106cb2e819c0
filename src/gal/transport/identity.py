"""The identity of a node: its private key, its certificate and their fingerprint.

The fingerprint is the SHA-256 of the public key. A name in a certificate proves nothing: every known
organization could issue a certificate in another's name.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import stat
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gal.errors import IdentityError
from gal.protocol import check_name

HOST = "node.gal"
"""The host name in every certificate: a node's identity does not depend on its address."""

NOT_BEFORE = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
NOT_AFTER = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
"""Clocks of nodes may differ, and a key is revoked by its card: certificates do not expire."""

KEY_FILE = "key.pem"
"""In the home folder: the private key, and after it its certificate."""
CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class Identity:
    """A node's own key and certificate, both in PEM."""

    name: str
    private_key: bytes = field(repr=False)
    certificate: bytes = field(repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and 64 hex digits."""
        return fingerprint_of(self.certificate)

    def sign(self, data: bytes) -> bytes:
        """A signature (ECDSA with SHA-256) that :func:`verify` checks with the certificate alone."""
        return _private_key(self.private_key).sign(data, ec.ECDSA(hashes.SHA256()))


def make_identity(name: str) -> Identity:
    """A new key (P-256) with a certificate that it signs itself."""
    check_name(name, "an organization")
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Identity(name, pem, _self_signed(name, key))


def save_identity(identity: Identity, home: Path, *, replace: bool = False) -> None:
    """Write key and certificate into one file (mode 0600) in ``home`` (made with mode 0700).

    An existing key is an error, unless ``replace``.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (home / KEY_FILE).exists() and not replace:
        raise IdentityError(
            f"{home / KEY_FILE} exists: a key is not overwritten, because peers know this node by it. Use "
            "another folder, or rotate the key on purpose"
        )
    write_file(home / KEY_FILE, identity.private_key + identity.certificate, mode=0o600)


def load_identity(home: Path, name: str) -> Identity:
    """The identity in ``home``; checked: the key is private, and the certificate is of this key."""
    check_name(name, "an organization")
    path = home / KEY_FILE
    try:
        content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise IdentityError(f"{path} is not there: gal init makes it") from None
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise IdentityError(
            f"{path} has mode {mode:04o}: others on this machine can read or change the private key. "
            f"Run: chmod 600 {path}"
        )
    key, begin, certificate = content.partition(CERTIFICATE)
    identity = Identity(name, key, begin + certificate)
    public = _fingerprint(_private_key(key, str(path)).public_key())
    if public != identity.fingerprint:
        raise IdentityError(
            f"{path}: the certificate is of the key {identity.fingerprint}, the key is {public}"
        )
    return identity


@lru_cache(maxsize=1024)
def fingerprint_of(certificate: bytes) -> str:
    """The fingerprint of the first certificate in PEM: of its public key in DER."""
    return _fingerprint(_public_key(certificate))


def verify(certificate: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the key of this certificate (PEM) signed ``data``."""
    try:
        _public_key(certificate).verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def certificates(pem: bytes) -> list[x509.Certificate]:
    """The certificates in PEM, leaf first; at least one."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise IdentityError(f"no readable certificate (PEM): {error}") from error
    if not found:
        raise IdentityError("no certificate (PEM) is in it")
    return found


def write_file(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file atomically, never with a wider mode: a crash leaves the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _self_signed(name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    public = key.public_key()
    subject = _subject(name, public)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def _subject(name: str, public: ec.EllipticCurvePublicKey) -> x509.Name:
    # The key makes subjects distinct: TLS looks issuers up by subject, and two organizations, or two keys of
    # one after a rotation, may have one name.
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, _fingerprint(public)[7:47]),
        ]
    )


def _fingerprint(public: ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "sha256:" + hashlib.sha256(der).hexdigest()


def _public_key(certificate: bytes) -> ec.EllipticCurvePublicKey:
    try:
        public = certificates(certificate)[0].public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"a certificate with a public key that cannot be read: {error}") from error
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise IdentityError("the key of this certificate is not P-256: make one with gal init")
    return public


@lru_cache(maxsize=8)
def _private_key(pem: bytes, source: str = "the private key") -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"{source} is not a readable private key (PEM, no password): {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{source} is not a P-256 key: keys of nodes are made by gal init")
    return key
