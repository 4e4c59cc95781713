"""The product key that an installation is given. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from lab._errors import PreflightError
from lab.imaging.windows.media import Channel
from lab.imaging.windows.release import Wanted

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


def product_key(wanted: Wanted, channel: Channel, own: str | None) -> str | None:
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
