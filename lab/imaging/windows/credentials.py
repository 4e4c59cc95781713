"""Passwords and product keys of Windows guests: made, chosen, encoded, and kept out of sight."""

from __future__ import annotations

import base64
import os
import re
import secrets
import string
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from lab._errors import PreflightError
from lab.imaging.windows.release import RELEASES, WantedImage

if TYPE_CHECKING:
    from lab.imaging.windows.medium import Channel
    from lab.inventory.inventory import Secret

Suffix = Literal["AdministratorPassword", "Password"]
"""Name of the element that holds it: Windows wants it after the password before both are
encoded. The latter is for local accounts and automatic logons."""
LENGTH = 24
"""Characters, some 143 bits; Windows takes up to 127."""
MASK = "********"
_KINDS = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.")
"""All four that Windows' complexity rule counts, of which it wants three. No character among them
means anything to cmd, PowerShell, XML, JSON or a URL's user part."""
_VALUE = re.compile(r"(<(?:\w*Password)\b[^>]*>\s*<Value>)[^<]*(?=</Value>)")
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
    hidden = _VALUE.sub(lambda found: found[1] + MASK, document)
    return _KEY.sub(lambda found: found[0] if found[0] in public else MASK, hidden)


SECRET = "product-key"  # noqa: S105  a name
"""Of the inventory: the key of every image of Windows; one image's has the image's name after it,
``product-key-windows-server-2022``."""
PATTERN = r"^[A-Z0-9]{5}(-[A-Z0-9]{5}){4}$"
HIDDEN = "-".join(["XXXXX"] * 5)
"""Stands for a key that is not told."""


def secret_of(image: str, known: Collection[str]) -> str | None:
    """Name of the secret that holds an image's product key; None where the inventory has none."""
    return next((name for name in (f"{SECRET}-{image}", SECRET) if name in known), None)


def checked(name: str, value: str) -> str:
    """A secret that is a product key; letters may be small.

    Raises
    ------
    PreflightError
        When it is none; it is not repeated.

    """
    written = value.upper()
    if not re.search(PATTERN, written):
        raise PreflightError(
            "reading the product key",
            f"[secrets.{name}] holds none",
            "write five groups of five letters and digits, with '-' between them",
        )
    return written


def product_key(wanted: WantedImage, channel: Channel, own: str | None) -> str | None:
    """What goes with a medium: None on evaluation media, where any key stops the installation.

    Parameters
    ----------
    own
        The recipe's or the inventory's; None for Microsoft's public KMS client key on volume
        media.

    Raises
    ------
    PreflightError
        When a key is given for evaluation media, or none for those that ask for one.

    """
    doing = f"choosing the product key of {wanted.release.name}"
    if channel == "evaluation":
        if own is None:
            return None
        raise PreflightError(
            doing,
            'evaluation media take none: Setup would say "No images are available"',
            'leave "key" out of the recipe, or use a medium of the volume licence',
        )
    if own is not None:
        return own
    if channel == "volume":
        return wanted.release.keys[wanted.edition]
    if channel == "retail":
        raise PreflightError(
            doing,
            "retail media ask for one, and there is none",
            f"name its place in the inventory: [secrets.{SECRET}] file = ...",
        )
    return None


_SECRET_MOST = 4096
"""Bytes of a file that are read: no secret of ours has more."""


def read_secret(name: str, secret: Secret, doing: str) -> str:
    """What a secret is, without the white space around it.

    Raises
    ------
    PreflightError
        When the variable or the file is not there, cannot be read, or is empty.

    """
    hint = f"set it, or leave [secrets.{name}] out of the inventory"
    if secret.file is None:
        told = f"the environment variable {secret.environment} of [secrets.{name}]"
        found = os.environ.get(secret.environment or "")
        if found is None:
            raise PreflightError(doing, f"{told} is not set", hint)
    else:
        told = f"'{secret.file}' of [secrets.{name}]"
        try:
            with secret.file.open("rb") as file:
                found = file.read(_SECRET_MOST).decode("utf-8", errors="replace")
        except OSError as error:
            raise PreflightError(doing, f"{told}: {error.strerror}", hint) from error
    if not found.strip():
        raise PreflightError(doing, f"{told} is empty", hint)
    return found.strip()
