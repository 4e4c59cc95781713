"""A cluster's certificates, and kubeconfig files: how users and nodes reach its API."""

from __future__ import annotations

import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from lab.machines.cluster.documents import to_yaml

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import ExtensionType, GeneralName


DAYS = 365
"""Validity, the same as that of kubeadm's own certificates."""
AUTHORITY_DAYS = 3650
_BEFORE = timedelta(hours=1)
"""Margin for machines whose clocks differ."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """The subject of a certificate."""

    name: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Server names and addresses; empty for a certificate that only clients use."""


def make_authority(name: str) -> Pair:
    """A new certificate authority with its own key (ECDSA P-256)."""
    from cryptography import x509  # noqa: PLC0415  slow

    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )
    authority = x509.BasicConstraints(ca=True, path_length=None)
    return _sign(CertificateSubject(name), AUTHORITY_DAYS, {authority: True, usage: True}, None)


def issue(ca: Pair, subject: CertificateSubject) -> Pair:
    """A certificate for a new key, signed by ``ca``.

    It is valid for clients, and for servers too if the subject has hosts.
    """
    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    uses += [ExtendedKeyUsageOID.SERVER_AUTH] if subject.hosts else []
    extensions: dict[ExtensionType, bool] = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        x509.ExtendedKeyUsage(uses): False,
    }
    if subject.hosts:
        extensions[x509.SubjectAlternativeName(map(_general_name, subject.hosts))] = False
    return _sign(subject, DAYS, extensions, ca)


def public_key_pin(certificate: str) -> str:
    """``sha256:`` and the hash of the public key, as ``kubeadm join`` pins an authority."""
    from hashlib import sha256  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    loaded = x509.load_pem_x509_certificate(certificate.encode())
    public = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(public).hexdigest()}"


def make_signing_key() -> Pair:
    """Key pair for service account tokens; the public key takes the certificate's place."""
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Pair(public.decode(), _key_text(key))


def _sign(
    subject: CertificateSubject,
    days: int,
    extensions: Mapping[ExtensionType, bool],
    ca: Pair | None,
) -> Pair:
    """A certificate for a new key with these extensions (critical or not); None self-signs."""
    from cryptography import x509  # noqa: PLC0415  slow
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        load_pem_private_key,
    )
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.groups]
    name = x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(
            x509.load_pem_x509_certificate(ca.certificate.encode()).subject if ca else name
        )
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
        .public_key(key.public_key())
    )
    if ca is None:
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        extensions = {**extensions, own: False}
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical=critical)
    signer: Any = load_pem_private_key(ca.key.encode(), None) if ca else key
    made = builder.sign(signer, SHA256())
    return Pair(made.public_bytes(Encoding.PEM).decode(), _key_text(key))


def _key_text(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  slow
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _general_name(host: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415  slow

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


CONTEXT_PREFIX = "hybridlab-"
_LISTS = ("clusters", "users", "contexts")


class KubeconfigError(ValueError):
    """A text is not a valid kubeconfig."""


def context_name(lab: str) -> str:
    """Name of a lab's context, cluster and user in a kubeconfig."""
    return f"{CONTEXT_PREFIX}{lab}"


@dataclass(frozen=True, slots=True)
class Access:
    """Server, authority and client certificate for one API."""

    name: str
    server: str
    ca: str
    client: Pair

    def at(self, server: str) -> Access:
        """The same access through another address."""
        return replace(self, server=server)


def kubeconfig_text(access: Access) -> str:
    """The kubeconfig as a file."""
    name = access.name
    cluster = {"certificate-authority-data": _to_base64(access.ca), "server": access.server}
    user = {
        "client-certificate-data": _to_base64(access.client.certificate),
        "client-key-data": _to_base64(access.client.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return to_yaml((document,))


def read_kubeconfig(content: str, name: str) -> Access:
    """Parse a kubeconfig with one cluster and one user, and give the access another name.

    Raises KubeconfigError when its structure is not kubeadm's.
    """
    document = _load_kubeconfig(content)
    try:
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        certificate, key = user["client-certificate-data"], user["client-key-data"]
        client = Pair(_from_base64(certificate), _from_base64(key))
        ca = _from_base64(cluster["certificate-authority-data"])
        return Access(name, str(cluster["server"]), ca, client)
    except (KeyError, IndexError, TypeError) as error:
        raise KubeconfigError(f"it has no {error}") from error
    except (ValueError, AttributeError) as error:
        raise KubeconfigError("its certificates or its key are damaged") from error


def is_export(content: str) -> bool:
    """Whether a text is a lab's own kubeconfig and nothing else, and may be overwritten."""
    try:
        document = _load_kubeconfig(content)
    except KubeconfigError:
        return False
    lists = [document.get(key) for key in _LISTS]
    if not all(isinstance(section, list) and len(section) == 1 for section in lists):
        return False
    entries = [entry for section in lists for entry in section]
    return all(
        isinstance(entry, Mapping) and str(entry.get("name")).startswith(CONTEXT_PREFIX)
        for entry in entries
    )


def _load_kubeconfig(content: str) -> Any:
    from ruamel.yaml import YAML  # noqa: PLC0415  slow
    from ruamel.yaml.error import MarkedYAMLError  # noqa: PLC0415  slow

    try:
        with warnings.catch_warnings(action="ignore"):  # about anchors in the user's file
            document = YAML(typ="safe", pure=True).load(content)
    except Exception as error:
        # The YAML constructors raise arbitrary errors, whose messages may hold the user's secrets.
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        where = f", line {mark.line + 1}" if mark else ""
        raise KubeconfigError(f"invalid YAML{where}") from error
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise KubeconfigError("not a document of kind 'Config'")
    return document


def _to_base64(pem: str) -> str:
    return b64encode(pem.encode()).decode()


def _from_base64(data: str) -> str:
    return b64decode(data, validate=True).decode()
