"""Secrets taken out of what leaves the house. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote
from xml.sax.saxutils import escape

GONE = b"[scrubbed]"
SHORTEST = 4
"""Bytes. A secret that is shorter is no secret, and would tear holes into every text."""
_LINE = 16
"""From this length on a line of a secret of several lines is a secret by itself."""
_BINARY = 1024
"""So much of a file is looked at for a zero byte, by which text is told from anything else."""

_WORDS = rb"pass(?:word|wd|phrase)|secret|token|api[-_]?key|certificate[-_]key|credentials?"
_ARMOUR = (
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
    rb"(?:\s|\\[nr]|(?:Proc-Type|DEK-Info):[^\n\\]*)*"
    rb"(?:\s|\\[nr]|[a-z0-9+/=])*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?"
)
"""A private key, torn or whole, its line ends real or written as a backslash and n."""
_VALUE = (
    rb"((?:" + _WORDS + rb")(?:[-_](?:hash|value|data))?[\"']?(?: ?[:=] ?|(?<=--token) ))"
    rb"(?:(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n])+(?P=quote)|[^\s\"',;&<>{}\[\]]+)"
)
"""``password: x``, ``"token": "x"``, ``ADMIN_PASSWORD=x``, ``passwd='x'``, ``--token x``."""
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), put)
    for pattern, put in (
        (_ARMOUR, GONE),
        (_VALUE, rb"\1\g<quote>" + GONE + rb"\g<quote>"),
        # the key in a kubeconfig, base64 of its armour
        (rb"(client-key-data[\"']?: *[\"']?)[a-z0-9+/=]+", rb"\1" + GONE),
        (rb"(authorization[\"']?: *[\"']?(?:bearer|basic) +)[^\s\"']+", rb"\1" + GONE),
        # user:password@ of an address
        (rb"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", rb"\1" + GONE),
        # $6$salt$hash as in /etc/shadow
        (rb"\$(?:1|2[abxy]?|5|6|7|y|gy)\$[./a-z0-9=,$]{12,}", GONE),
        # a kubeadm bootstrap token
        (rb"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", GONE),
    )
)


def scrub(content: bytes, secrets: Iterable[bytes] = ()) -> bytes:
    """The content without those secrets, and in text without what looks like one.

    A secret is also found as JSON, XML, addresses and base64 write it. What looks like one:
    private keys in armour, values of keys called ``password``, ``token`` and the like,
    passwords in addresses, password hashes, kubeadm's tokens.
    """
    for secret in _forms(secrets):
        content = content.replace(secret, GONE)
    if b"\0" in content[:_BINARY]:
        return content
    for pattern, put in _PATTERNS:
        content = pattern.sub(put, content)
    return content


def secret_values(file: bytes) -> Iterator[bytes]:
    """What must not be seen of a file that holds a secret: all of it, and each long line."""
    whole = file.strip()
    yield whole
    for line in whole.splitlines():
        if len(line.strip()) >= _LINE and not line.startswith(b"-----"):
            yield line.strip()


def holds_private_key(file: bytes) -> bool:
    """Whether a private key in armour is in it."""
    return b"PRIVATE KEY-----" in file


def _forms(secrets: Iterable[bytes]) -> list[bytes]:
    """Every way to write the secrets, the longest first, so that no part spoils a whole."""
    found: set[bytes] = set()
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        found.update((secret, base64.b64encode(secret)))
        text = secret.decode("utf-8", errors="surrogateescape")
        if secret.isascii():
            quoted = (json.dumps(text)[1:-1], escape(text), quote(text), quote(text, safe=""))
            found.update(form.encode() for form in quoted)
    return sorted(found, key=lambda form: (-len(form), form))
