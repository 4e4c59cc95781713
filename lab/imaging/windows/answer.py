"""Answer files: what Setup is told, and what a clone of a golden image is told.

The templates are ``images/windows/*.xml.j2``; what they are filled in with is decided here. The
commands are :mod:`lab.imaging.windows.commands`, what must hold of a document is checked by
:mod:`lab.imaging.windows.answer_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab._errors import UsageError
from lab.imaging import recipes
from lab.imaging.windows.commands import (
    CLONE_SPECIALIZE,
    SPECIALIZE,
    WINDOWS_PE,
    first_logon,
)
from lab.imaging.windows.passwords import encoded
from lab.imaging.windows.settings import CloneSettings, Firmware, Region, Settings

DRIVERS: tuple[str, ...] = (
    "viostor",
    "vioscsi",
    "NetKVM",
    "Balloon",
    "vioserial",
    "viorng",
    "vioinput",
    "pvpanic",
    "qemufwcfg",
)
"""Folders of the virtio-win medium whose drivers Setup is to take: those of devices that our
machines have or may have. Not among them: qxldod (we have no QXL) and viofs (wants WinFsp)."""
LETTERS = "DEFGH"
"""Where a CD may be in Windows PE: the installation medium is D, the others follow in the order
of their ports. Setup goes on where a path is not there."""
PARTITION: Mapping[Firmware, int] = {"bios": 2, "uefi": 3}
"""Number of the partition that Windows goes to."""


def answer_file(
    settings: Settings,
    drivers: tuple[str, ...] = DRIVERS,
    templates: Mapping[str, bytes] | None = None,
) -> bytes:
    """``autounattend.xml`` of an installation. Secret: it holds the administrator's password.

    Parameters
    ----------
    drivers
        Folders of the virtio-win medium; not used where the disk is SATA, which is for when
        there is no such medium.
    templates
        Files of the recipe's template folder; None for those that are shipped.

    """
    release = settings.wanted.release
    paths = driver_paths(drivers, release.drivers) if settings.storage == "virtio" else ()
    values = {
        **_common(settings.computer_name, settings.administrator_password, settings.region),
        "desktop": settings.wanted.surface == "desktop",
        "driver_paths": paths,
        "firmware": settings.firmware,
        "first_logon": first_logon("bootstrap.ps1"),
        "image": settings.wanted.name,
        "key": settings.key,
        "organization": settings.organization,
        "partition": PARTITION[settings.firmware],
        "specialize": SPECIALIZE,
        "windows_pe": WINDOWS_PE,
    }
    return _rendered("autounattend.xml.j2", values, templates)


def clone_answer_file(
    settings: CloneSettings, templates: Mapping[str, bytes] | None = None
) -> bytes:
    """``Unattend.xml`` of a clone of a generalised image. Secret, as the other is."""
    values = {
        **_common(settings.computer_name, settings.administrator_password, settings.region),
        "desktop": False,
        "first_logon": first_logon("clone.ps1"),
        "key": None,
        "specialize": CLONE_SPECIALIZE,
    }
    return _rendered("unattend.xml.j2", values, templates)


def driver_paths(drivers: tuple[str, ...], release: str) -> tuple[str, ...]:
    """Where drivers may be: on the virtio-win medium, whichever letter it has.

    Parameters
    ----------
    release
        Name of the release's folders on that medium: ``2k22``.

    """
    return tuple(rf"{letter}:\{name}\{release}\amd64" for letter in LETTERS for name in drivers)


def _common(computer_name: str, password: str, region: Region) -> dict[str, Any]:
    return {
        "administrator_password": encoded(password, "AdministratorPassword"),
        "autologon_password": encoded(password, "Password"),
        "computer_name": computer_name,
        "region": region,
    }


def _rendered(name: str, values: Mapping[str, Any], templates: Mapping[str, bytes] | None) -> bytes:
    from jinja2 import (  # noqa: PLC0415  slow, and rarely needed
        BaseLoader,
        DictLoader,
        Environment,
        FileSystemLoader,
        StrictUndefined,
        TemplateError,
        TemplateSyntaxError,
    )

    loader: BaseLoader = FileSystemLoader(recipes.directory() / recipes.WINDOWS)
    if templates is not None:
        texts = {path: text.decode() for path, text in templates.items() if path.endswith(".j2")}
        loader = DictLoader(texts)
    filler = Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        lines = filler.get_template(name).render(values).split("\n")
    except TemplateError as error:
        raise UsageError(
            "making the answer file",
            f"template '{error.name if isinstance(error, TemplateSyntaxError) else name}': {error}",
            "mend it, or write templates: windows into the recipe",
        ) from error
    return "".join(f"{line}\n" for line in lines if line.strip()).encode()
