"""From a recipe and a medium to the settings of one installation. Pure."""

from __future__ import annotations

from lab.imaging.recipe import Windows
from lab.imaging.windows.media import Channel
from lab.imaging.windows.product_key import product_key
from lab.imaging.windows.settings import Firmware, Settings

BUILD_NAME = "HYBRIDLAB"
"""What the computer is called while its image is made."""


def takes_own_key(windows: Windows, channel: Channel) -> bool:
    """Whether the inventory's product key is asked for: the recipe has none, the medium may."""
    return windows.key is None and channel != "evaluation"


def decided(
    windows: Windows, firmware: Firmware, channel: Channel, password: str, own: str | None = None
) -> Settings:
    """All that the answer file says.

    Parameters
    ----------
    channel
        Of the medium at hand.
    password
        Of the administrator, for this installation alone.
    own
        The inventory's product key; None for none. It gives way to the recipe's.

    Raises
    ------
    PreflightError
        When recipe and medium do not agree on a product key.

    """
    return Settings(
        wanted=windows.wanted,
        firmware=firmware,
        storage="virtio" if windows.virtio else "sata",
        key=product_key(windows.wanted, channel, windows.key or own),
        computer_name=BUILD_NAME,
        administrator_password=password,
        region=windows.region,
    )
