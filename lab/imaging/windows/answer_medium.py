"""The small CD beside Microsoft's: answers, scripts and what they need, all in its root.

Windows Setup looks for the answer file in the root of every drive, and the first-logon command
looks for the script there, so that no drive letter is fixed and the label is ours to choose.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab._errors import BrokenError
from lab.imaging.medium import medium
from lab.imaging.windows.answer import DRIVERS, answer_file, clone_answer_file
from lab.imaging.windows.answer_rules import CLONE, facts_of, verified
from lab.imaging.windows.bootstrap_settings import (
    CLONE as CLONE_JSON,
)
from lab.imaging.windows.bootstrap_settings import (
    OPENSSH,
    SETTINGS,
    BootstrapSettings,
    clone_document,
    settings_document,
)
from lab.imaging.windows.media import Channel
from lab.imaging.windows.settings import CloneSettings, Settings

LABEL = "HYBRIDLAB"
ANSWER = "autounattend.xml"
CLONE_ANSWER = "Unattend.xml"
"""The name that is looked for outside Windows PE."""
MODULE = "hybridlab.psm1"
BOOTSTRAP = "bootstrap.ps1"
CLONE_SCRIPT = "clone.ps1"


def install_medium(  # noqa: PLR0913  each is one part of the medium
    settings: Settings,
    channel: Channel,
    bootstrap: BootstrapSettings,
    templates: Mapping[str, bytes],
    *,
    drivers: tuple[str, ...] = DRIVERS,
    openssh: bytes | None = None,
) -> bytes:
    """The answer medium of an installation. Secret: it holds the administrator's password.

    Parameters
    ----------
    channel
        Of the installation medium, for the check.
    templates
        Files of the recipe's template folder: answer templates and scripts.
    openssh
        Win32-OpenSSH's release archive; None where Windows is to fetch its own.

    Raises
    ------
    BrokenError
        When a script is not among the templates, or the answer file breaks a rule.

    """
    files = {
        ANSWER: verified(answer_file(settings, drivers, templates), facts_of(settings, channel)),
        SETTINGS: settings_document(bootstrap),
        **_scripts(templates, BOOTSTRAP, MODULE),
    }
    if (openssh is None) != (bootstrap.openssh is None):
        raise BrokenError(
            f"making the medium '{LABEL}'",
            f"'{SETTINGS}' and the medium do not agree on '{OPENSSH}'",
            "this is a defect of hybridlab",
        )
    if openssh is not None and bootstrap.openssh is not None:
        files[bootstrap.openssh] = openssh
    return medium(LABEL, files)


def clone_medium(settings: CloneSettings, templates: Mapping[str, bytes]) -> bytes:
    """The answer medium of a clone. Secret, as the other is.

    Raises
    ------
    BrokenError
        As for an installation.

    """
    files = {
        CLONE_ANSWER: verified(clone_answer_file(settings, templates), CLONE),
        CLONE_JSON: clone_document(settings),
        **_scripts(templates, CLONE_SCRIPT, MODULE),
    }
    return medium(LABEL, files)


def _scripts(templates: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    missing = [name for name in names if name not in templates]
    if missing:
        raise BrokenError(
            f"making the medium '{LABEL}'",
            f"the recipe's templates have no {' and no '.join(missing)}",
            'write "templates: windows" into the recipe, or copy that folder',
        )
    return {name: templates[name] for name in names}
