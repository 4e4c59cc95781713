"""Certificates and host keys like those that a guest creates for itself."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl
from functools import cache
from pathlib import Path

import asyncssh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


def make_certificate(
    certificate: Path, key: Path, name: str = "double", address: str = "127.0.0.1"
) -> str:
    """Write a self-signed certificate and its key (PEM); return the SHA-256 of its DER, in hex."""
    private = _private_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = dt.datetime(2024, 1, 1)  # noqa: DTZ001  every version of cryptography accepts it
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(private, hashes.SHA256())
    )
    _write(certificate, made.public_bytes(serialization.Encoding.PEM))
    _write(
        key,
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    return digest(certificate).hex()


@cache
def _private_key() -> rsa.RSAPrivateKey:
    """One key for all certificates of this process, because creating it is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def digest(certificate: Path) -> bytes:
    """SHA-256 of its DER: the guest's word on COM1, and for channel bindings (RFC 5929)."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).digest()


def make_host_key(path: Path) -> str:
    """Write an Ed25519 key in OpenSSH's format; return its public half, ``ssh-ed25519 AAAA...``."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    _write(path, key.export_private_key())
    return key.export_public_key().decode("ascii").strip()


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
