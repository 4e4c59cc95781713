"""Certificates of a cluster: an authority, what it issues, and the hash that a node pins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
    from cryptography.x509 import CertificateBuilder, GeneralName, Name

DAYS = 365
"""As long as kubeadm's own certificates."""
AUTHORITY_DAYS = 3650
_BEFORE = timedelta(hours=1)
"""Machines' clocks differ."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """Who a certificate is for."""

    name: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Names and addresses that it may be found at; none for one that only asks."""


def authority(name: str) -> Pair:
    """A new authority, with a key of its own (ECDSA P-256)."""
    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    own = _name(CertificateSubject(name))
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(own, own, AUTHORITY_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def issued(ca: Pair, subject: CertificateSubject) -> Pair:
    """A certificate of the authority's for a new key.

    It is good for asking, and for answering too where the subject has hosts.
    """
    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    issuer = x509.load_pem_x509_certificate(ca.certificate.encode())
    signer = load_pem_private_key(ca.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey), "an authority's"
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    uses += [ExtendedKeyUsageOID.SERVER_AUTH] if subject.hosts else []
    builder = (
        _builder(_name(subject), issuer.subject, DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    )
    if subject.hosts:
        hosts = x509.SubjectAlternativeName(_hosts(subject.hosts))
        builder = builder.add_extension(hosts, critical=False)
    return _signed(builder, key, signer)


def pin(certificate: str) -> str:
    """``sha256:`` and the hash of the public key, as ``kubeadm join`` pins an authority."""
    from hashlib import sha256  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    found = x509.load_pem_x509_certificate(certificate.encode())
    public = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(public).hexdigest()}"


def signing_key() -> Pair:
    """A key and its public half (in the certificate's place): for service accounts' tokens."""
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Pair(public.decode(), _key_text(key))


def _builder(subject: Name, issuer: Name, days: int) -> CertificateBuilder:
    from cryptography import x509  # noqa: PLC0415  slow

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
    )


def _signed(
    builder: CertificateBuilder,
    key: CertificateIssuerPrivateKeyTypes,
    signer: CertificateIssuerPrivateKeyTypes,
) -> Pair:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    made = builder.sign(signer, SHA256())
    return Pair(made.public_bytes(Encoding.PEM).decode(), _key_text(key))


def _key_text(key: CertificateIssuerPrivateKeyTypes) -> str:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  slow
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _name(subject: CertificateSubject) -> Name:
    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in subject.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])


def _hosts(hosts: Iterable[str]) -> list[GeneralName]:
    from cryptography import x509  # noqa: PLC0415  slow

    found: list[GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found
