"""Answer files for people to see: as they would be made, without their secrets."""

from __future__ import annotations

from dataclasses import replace

from lab._errors import UsageError
from lab.imaging.recipe import Recipe, Windows
from lab.imaging.windows.answer import answer_file, clone_answer_file
from lab.imaging.windows.answer_rules import CLONE, facts_of, verified
from lab.imaging.windows.decision import decided, takes_own_key
from lab.imaging.windows.media import Channel
from lab.imaging.windows.passwords import masked, random_password
from lab.imaging.windows.product_key import HIDDEN
from lab.imaging.windows.release import Edition, Surface
from lab.imaging.windows.settings import CloneSettings, Firmware


def install_preview(  # noqa: PLR0913  each may be said on the command line
    recipe: Recipe,
    channel: Channel,
    firmware: Firmware | None = None,
    edition: Edition | None = None,
    surface: Surface | None = None,
    *,
    has_key: bool = False,
) -> str:
    """``autounattend.xml``; None for what the recipe says.

    ``has_key``: the inventory has a product key for it, which is neither read nor shown.

    Raises
    ------
    UsageError
        When the recipe is not of Windows.
    PreflightError
        When recipe and medium do not agree on a product key.

    """
    windows = _windows(recipe)
    wanted = replace(
        windows.wanted,
        edition=edition or windows.wanted.edition,
        surface=surface or windows.wanted.surface,
    )
    assert recipe.firmware != "kernel", "the reader of recipes has looked"
    settings = decided(
        replace(windows, wanted=wanted),
        firmware or recipe.firmware,
        channel,
        random_password(),
        HIDDEN if has_key and takes_own_key(windows, channel) else None,
    )
    made = answer_file(settings, templates=recipe.templates)
    return masked(verified(made, facts_of(settings, channel)).decode())


def clone_preview(recipe: Recipe) -> str:
    """``Unattend.xml`` of a clone called ``WIN1``.

    Raises
    ------
    UsageError
        When the recipe is not of Windows.

    """
    settings = CloneSettings(
        computer_name="WIN1",
        administrator_password=random_password(),
        authorized_key="",
        management_address="",
        cards=(),
        time_server=None,
        region=_windows(recipe).region,
    )
    made = clone_answer_file(settings, templates=recipe.templates)
    return masked(verified(made, CLONE).decode())


def _windows(recipe: Recipe) -> Windows:
    if recipe.windows is None:
        raise UsageError(
            f"making the answer file of image '{recipe.name}'",
            f"it is no image of Windows, but made by '{recipe.kind}'",
            "'lab image list' shows the kind of each",
        )
    return recipe.windows
