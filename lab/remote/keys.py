"""Ed25519 key pairs as OpenSSH writes them, for clients and for hosts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """Both halves as text, each ending with a newline. The private one is in no ``repr``."""

    private: str
    """``-----BEGIN OPENSSH PRIVATE KEY-----``, without a passphrase."""
    public: str
    """``ssh-ed25519 AAAA... comment``."""

    def __repr__(self) -> str:
        return f"KeyPair({self.public.strip()!r})"


def make_key_pair(comment: str) -> KeyPair:
    """A new pair; the comment is the whole last part of the public line, and nothing else.

    Parameters
    ----------
    comment
        Whose key it is, ``"lab overlay"``; one line. No user or host name is added to it.

    """
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415  slow to import
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  the same
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private.decode("ascii"), f"{public.decode('ascii')} {comment}\n")


def bare_key(public: str) -> str:
    """Type and base64 of a public key, without its comment. ValueError if it has not both."""
    words = public.split()
    if len(words) < 2:  # noqa: PLR2004  type and base64
        raise ValueError(f"no public key: {public!r}")
    return f"{words[0]} {words[1]}"


def fingerprint(public: str) -> str:
    """``ssh-ed25519 SHA256:...`` of a public key, as ``ssh-keygen -l`` shows it."""
    kind, blob = bare_key(public).split()
    digest = hashlib.sha256(base64.b64decode(blob)).digest()
    return f"{kind} SHA256:{base64.b64encode(digest).decode('ascii').rstrip('=')}"


SSH_PORT = 22


def host_keys(text: str, host: str, port: int = SSH_PORT) -> tuple[str, ...]:
    """The keys of that host, ``"ssh-ed25519 AAAA..."``, in the order of the file.

    Names may be plain, patterns (``*``, ``?``, negated with ``!``), hashed, or ``[host]:port``.
    A key that the file revokes for the host is left out. Certificate authorities are not read.
    """
    name = host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"
    known: list[str] = []
    revoked: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):  # noqa: PLR2004  names, type, base64
            continue
        if not _means(words[0].split(","), name):
            continue
        key = f"{words[1]} {words[2]}"
        if marker == "@revoked":
            revoked.add(key)
        elif not marker and key not in known:
            known.append(key)
    return tuple(key for key in known if key not in revoked)


def _means(patterns: Iterable[str], name: str) -> bool:
    found = False
    for pattern in patterns:
        if pattern.startswith("|1|"):
            found = found or _hashed(pattern, name)
        elif pattern.startswith("!"):
            if _matches(pattern[1:], name):
                return False
        else:
            found = found or _matches(pattern, name)
    return found


def _matches(pattern: str, name: str) -> bool:
    # Brackets are part of a name with a port, and no character class here.
    return fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hashed(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), hashlib.sha1), digest)
