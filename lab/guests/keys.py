"""Ed25519 key pairs as OpenSSH writes them, for clients and for hosts."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass


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
