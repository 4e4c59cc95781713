"""Which host keys a known_hosts file gives a host, as sshd(8) describes the file. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from fnmatch import fnmatchcase

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
