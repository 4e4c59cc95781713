"""Answer files and the small CD with them: for Setup, and for a clone of a golden image.

The templates are ``images/windows/*.xml.j2``; this module decides their values. Windows looks for
the answer file in the root of every drive, and the first-logon command looks for the script there,
so no drive letter is fixed and the label can be anything.

Each command line is run without its own shell. In the answer file's passes every command that may
fail reports success: Setup aborts on a failed one in Windows PE, and Windows may restart on one in
specialize. Nothing is reported in Windows PE, which has no serial port. Sources of both:
``tests/windows/stand_in/guest/habits.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal
from xml.etree import ElementTree as ET

from lab._errors import BrokenError, UsageError
from lab.machines.images import recipes
from lab.machines.images.medium import medium
from lab.machines.images.recipe import Recipe, Windows
from lab.machines.images.terms import (
    Edition,
    Firmware,
    Region,
    Release,
    Surface,
    random_password,
)
from lab.windows.images.medium import DRIVERS_FOLDER, Channel
from lab.windows.images.settings import (
    CLONE,
    HIDDEN,
    OPENSSH,
    SETTINGS,
    CloneSettings,
    Settings,
    clone_document,
    encode_password,
    mask,
    product_key,
    settings_document,
)

LABEL = "HYBRIDLAB"
ANSWER = "autounattend.xml"
CLONE_ANSWERS = ("Unattend.xml", "Autounattend.xml")
"""Names that Windows looks for outside Windows PE; which of the two a release takes is
uncertain."""
MODULE = "hybridlab.psm1"
BOOTSTRAP = "bootstrap.ps1"
CLONE_SCRIPT = "clone.ps1"
BUILD_NAME = "HYBRIDLAB"
"""Name of the computer while its image is made."""
LETTERS = "CDEFGH"
"""Drives of the answer medium in Windows PE: usually E, after the installation medium on D, or C if
a raw disk has no letter.
"""
_HINT = "correct it, or write 'templates: windows' into the recipe"
PARTITION: Mapping[Firmware, int] = {"bios": 2, "uefi": 3}
"""Number of the partition for Windows."""
Script = Literal["bootstrap.ps1", "clone.ps1"]
"""Scripts of the first logon of an installation, and of a clone."""


@dataclass(frozen=True, slots=True)
class AnswerCommand:
    """One command."""

    line: str
    """The command line for Windows."""
    why: str
    """A comment for the answer file."""


def _force_success(line: str, why: str) -> AnswerCommand:
    """A command that always reports success."""
    return AnswerCommand(f'cmd /c "{line} & exit /b 0"', why)


def _echo_phase(phase: str) -> AnswerCommand:
    return _force_success(f"echo hybridlab: phase {phase}>COM1", f"Tell the host: {phase}")


def _windows_pe(release: Release) -> tuple[AnswerCommand, ...]:
    """2025 accepts a single driver path; this finds the disk's driver wherever it is."""
    if release.year != "2025":
        return ()
    inf = rf"%d:\{DRIVERS_FOLDER}\viostor\{release.drivers}\amd64\viostor.inf"
    letters = " ".join(LETTERS)
    return (
        _force_success(f"(for %d in ({letters}) do drvload {inf})", "Load the driver of the disk"),
    )


SPECIALIZE: tuple[AnswerCommand, ...] = (
    _echo_phase("specialize"),
    _force_success("net user Administrator /active:yes", "Let the administrator log in"),
    _force_success(
        r'reg.exe add "HKLM\SOFTWARE\Policies\Microsoft\Windows NT\CurrentVersion\NetworkList'
        r'\Signatures\FirstNetwork" /v Category /t REG_DWORD /d 1 /f',
        "Treat the first network as private",
    ),
    _force_success(
        r"reg.exe add HKLM\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
        " /v RealTimeIsUniversal /t REG_DWORD /d 1 /f",
        "Treat the machine's clock as UTC",
    ),
)
"""Run at the first start of an installation from its disk."""
DESKTOP_SPECIALIZE: tuple[AnswerCommand, ...] = (
    _force_success(
        r"reg.exe add HKLM\SOFTWARE\Policies\Microsoft\EdgeUpdate"
        " /v UpdateDefault /t REG_DWORD /d 0 /f",
        "Keep Edge from updating itself for one user, at which sysprep fails",
    ),
)
"""Run at the same time, with the graphical shell."""
CLONE_SPECIALIZE: tuple[AnswerCommand, ...] = (
    *SPECIALIZE,
    _force_success(
        "net user Administrator /logonpasswordchg:no",
        "Do not ask the administrator for a new password, as sysprep sets it",
    ),
)
"""Run at the first start of a clone. A generalised image sometimes asks for a new password at the
first logon, which nobody answers (kubernetes-sigs/image-builder, pull request 2117); Amazon's
EC2Launch clears the flag in the same pass.
"""
_POLICY = 'powershell -Command "Set-ExecutionPolicy -ExecutionPolicy RemoteSigned -Force"'
_RUN = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass"


def takes_own_key(windows: Windows, channel: Channel) -> bool:
    """Whether to use the inventory's product key: the recipe has none, the medium may take one."""
    return windows.key is None and channel != "evaluation"


def make_settings(
    windows: Windows, firmware: Firmware, channel: Channel, password: str, own: str | None = None
) -> Settings:
    """The values of the answer file.

    ``channel``: license channel of the medium. ``password``: the administrator's, for this
    installation only. ``own``: the inventory's product key or None; the recipe's takes precedence.

    Raises PreflightError when recipe and medium do not agree on a product key.
    """
    return Settings(
        wanted=windows.wanted,
        firmware=firmware,
        storage=windows.storage,
        key=product_key(windows.wanted, channel, windows.key or own),
        computer_name=BUILD_NAME,
        administrator_password=password,
        region=windows.region,
    )


def answer_file(settings: Settings, templates: Mapping[str, bytes] | None = None) -> bytes:
    """``autounattend.xml`` of an installation. Secret: it contains the administrator's password.

    ``templates``: files of the recipe's template folder; None for the shipped ones.
    """
    release = settings.wanted.release
    virtio = settings.storage == "virtio"
    desktop = settings.wanted.surface == "desktop"
    values = {
        **_common_values(settings.computer_name, settings.administrator_password, settings.region),
        "desktop": desktop,
        "driver_paths": driver_paths(release) if virtio else (),
        "firmware": settings.firmware,
        "first_logon": first_logon("bootstrap.ps1"),
        "image": settings.wanted.name,
        "key": settings.key,
        "organization": settings.organization,
        "partition": PARTITION[settings.firmware],
        "specialize": SPECIALIZE + DESKTOP_SPECIALIZE if desktop else SPECIALIZE,
        "windows_pe": _windows_pe(release) if virtio else (),
    }
    return _render("autounattend.xml.j2", values, templates)


def clone_answer_file(
    settings: CloneSettings, templates: Mapping[str, bytes] | None = None
) -> bytes:
    """``Unattend.xml`` of a clone of a generalised image. Secret like :func:`answer_file`."""
    values = {
        **_common_values(settings.computer_name, settings.administrator_password, settings.region),
        "desktop": False,
        "first_logon": first_logon("clone.ps1"),
        "key": None,
        "specialize": CLONE_SPECIALIZE,
    }
    return _render("unattend.xml.j2", values, templates)


def driver_paths(release: Release) -> tuple[str, ...]:
    """Folders of the drivers; Setup searches below them.

    2025 was seen to stop at, or to ignore, paths that do not exist (see ``habits.py``); older
    releases continue.
    """
    letters = "E" if release.year == "2025" else LETTERS
    return tuple(rf"{letter}:\{DRIVERS_FOLDER}" for letter in letters)


def _common_values(computer_name: str, password: str, region: Region) -> dict[str, Any]:
    return {
        "administrator_password": encode_password(password, "AdministratorPassword"),
        "autologon_password": encode_password(password, "Password"),
        "computer_name": computer_name,
        "region": region,
    }


def _render(name: str, values: Mapping[str, Any], templates: Mapping[str, bytes] | None) -> bytes:
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
            _HINT,
        ) from error
    document = "".join(f"{line}\n" for line in lines if line.strip()).encode()
    try:
        ET.fromstring(document)  # noqa: S314  rendered here
    except ET.ParseError as error:
        raise UsageError(
            "making the answer file", f"template '{name}' is not valid XML: {error}", _HINT
        ) from error
    return document


def install_medium(
    settings: Settings,
    authorized_key: str,
    templates: Mapping[str, bytes],
    *,
    drivers: Mapping[str, bytes] = MappingProxyType({}),
    openssh: bytes | None = None,
) -> bytes:
    """The answer medium of an installation. Secret: it contains the administrator's password.

    ``authorized_key``: SSH public key that may log in. ``templates``: files of the recipe's
    template folder: answer templates and scripts. ``drivers``: driver files by path on the medium.
    ``openssh``: Win32-OpenSSH's release archive; None if Windows should install its own.

    Raises BrokenError when a script is not among the templates.
    """
    files = {
        ANSWER: answer_file(settings, templates),
        **drivers,
        SETTINGS: settings_document(settings, authorized_key, has_openssh=openssh is not None),
        **_scripts(templates, BOOTSTRAP, MODULE),
    }
    if openssh is not None:
        files[OPENSSH] = openssh
    return medium(LABEL, files)


def clone_medium(settings: CloneSettings, templates: Mapping[str, bytes]) -> bytes:
    """The answer medium of a clone. Secret like :func:`install_medium`.

    Raises BrokenError when a script is not among the templates.
    """
    answer = clone_answer_file(settings, templates)
    files = {
        **dict.fromkeys(CLONE_ANSWERS, answer),
        CLONE: clone_document(settings),
        **_scripts(templates, CLONE_SCRIPT, MODULE),
    }
    return medium(LABEL, files)


def _scripts(templates: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    missing = [name for name in names if name not in templates]
    if missing:
        raise BrokenError(
            f"making the medium '{LABEL}'",
            f"the recipe's templates lack {' and '.join(missing)}",
            'write "templates: windows" into the recipe, or copy that folder',
        )
    return {name: templates[name] for name in names}


def first_logon(script: Script) -> tuple[AnswerCommand, ...]:
    """Commands of the first logon as administrator; each waits for the one before it."""
    return (
        _echo_phase("first-logon"),
        AnswerCommand(rf"cmd.exe /c {_POLICY}", "Let PowerShell run local scripts"),
        AnswerCommand(
            rf"%SystemDrive%\Windows\SysWOW64\cmd.exe /c {_POLICY}",
            "Let 32-bit PowerShell run local scripts",
        ),
        AnswerCommand(_scan(script), f"Run {script}, whatever letter its medium has"),
    )


def _scan(script: Script) -> str:
    """Search the root of every drive for a script and run it; report if there is none."""
    return (
        f'{_RUN} -Command "'
        "$found = Get-PSDrive -PSProvider FileSystem "
        f"| ForEach-Object {{ Join-Path -Path $_.Root -ChildPath '{script}' }} "
        "| Where-Object { Test-Path -LiteralPath $_ } | Select-Object -First 1; "
        f"if ($found) {{ {_RUN} -File $found }} "
        f"else {{ cmd.exe /c 'echo hybridlab: failed first-logon: no drive has {script}>COM1 "
        "& exit /b 0' }; "
        'exit $LASTEXITCODE"'
    )


def install_preview(  # noqa: PLR0913  each may be said on the command line
    recipe: Recipe,
    channel: Channel,
    firmware: Firmware | None = None,
    edition: Edition | None = None,
    surface: Surface | None = None,
    *,
    has_key: bool = False,
) -> str:
    """A preview of ``autounattend.xml``; None stands for the recipe's value.

    ``has_key``: whether the inventory has a product key for it, which is neither read nor shown.

    Raises UsageError when it is not a Windows recipe. Raises PreflightError when recipe and medium
    do not agree on a product key.
    """
    windows = _windows(recipe)
    options = {"edition": edition, "surface": surface}
    windows = windows.model_copy(update={name: value for name, value in options.items() if value})
    assert recipe.firmware != "kernel", "recipes.check() has refused it"
    settings = make_settings(
        windows,
        firmware or recipe.firmware,
        channel,
        random_password(),
        HIDDEN if has_key and takes_own_key(windows, channel) else None,
    )
    return mask(answer_file(settings, templates=recipe.files).decode())


def clone_preview(recipe: Recipe) -> str:
    """A preview of ``Unattend.xml`` for a clone called ``WIN1``.

    Raises UsageError when it is not a Windows recipe.
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
    return mask(clone_answer_file(settings, templates=recipe.files).decode())


def _windows(recipe: Recipe) -> Windows:
    if recipe.windows is None:
        raise UsageError(
            f"making the answer file of image '{recipe.name}'",
            f"it is not a Windows image: it is made by '{recipe.kind}'",
            "'lab image list' shows the kind of each",
        )
    return recipe.windows
