"""The product key that an installation is given. Pure."""

from __future__ import annotations

from lab._errors import PreflightError
from lab.imaging.windows.media import Channel
from lab.imaging.windows.release import Wanted


def product_key(wanted: Wanted, channel: Channel, own: str | None) -> str | None:
    """What goes with a medium: None on evaluation media, where any key stops the installation.

    Parameters
    ----------
    own
        The recipe's; None for Microsoft's public KMS client key on volume media.

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
            doing, "retail media ask for one, and the recipe has none", 'write "key" into it'
        )
    return None
