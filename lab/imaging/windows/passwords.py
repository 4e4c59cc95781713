"""Passwords of Windows guests: made, encoded for an answer file, and kept out of sight."""

from __future__ import annotations

import base64
import re
import secrets
import string
from typing import Literal

from lab.imaging.windows.release import RELEASES

Suffix = Literal["AdministratorPassword", "Password"]
"""Name of the element that holds it: Windows wants it after the password before both are
encoded. The latter is for local accounts and automatic logons."""
LENGTH = 24
"""Characters, some 143 bits; Windows takes up to 127."""
MASK = "********"
_KINDS = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.")
"""All four that Windows' complexity rule counts, of which it wants three. No character among them
means anything to cmd, PowerShell, XML, JSON or a URL's user part."""
_SECRET = re.compile(r"(<(?:\w*Password)\b[^>]*>\s*<Value>)[^<]*(?=</Value>)")
_KEY = re.compile(r"\b[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}\b")


def random_password() -> str:
    """Make a new password that Windows' complexity rule accepts; it begins with a letter."""
    characters = "".join(_KINDS)
    while True:
        made = "".join(secrets.choice(characters) for _ in range(LENGTH))
        if made[0].isalpha() and all(set(made) & set(kind) for kind in _KINDS):
            return made


def encoded(password: str, suffix: Suffix) -> str:
    """A password as an answer file has it with ``PlainText`` false: hidden, and no secret."""
    return base64.b64encode(f"{password}{suffix}".encode("utf-16-le")).decode("ascii")


def masked(document: str) -> str:
    """An answer file for people to see: without passwords, and without keys but public ones."""
    public = {key for release in RELEASES.values() for key in release.keys.values()}
    hidden = _SECRET.sub(lambda found: found[1] + MASK, document)
    return _KEY.sub(lambda found: found[0] if found[0] in public else MASK, hidden)
