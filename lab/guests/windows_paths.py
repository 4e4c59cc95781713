r"""Windows' paths as OpenSSH's SFTP server takes them: ``C:\a\b`` is ``/C:/a/b``. Pure."""

from __future__ import annotations

import re

from lab._errors import UsageError

DIRECTORY = "C:\\hybridlab"
"""Where all that the lab sends is kept; the guest's first script makes it."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_NEVER = re.compile(r'[<>"|?*\x00-\x1f]|:')


def sftp_path(path: str) -> str:
    """The path for SFTP.

    Raises
    ------
    UsageError
        When it does not begin with a drive, or holds what no Windows path can.

    """
    if not _DRIVE.match(path):
        raise UsageError(
            f"naming the file '{path}' on Windows",
            "it does not begin with a drive",
            "write it as C:\\directory\\file",
        )
    found = _NEVER.search(path[2:])
    if found:
        raise UsageError(
            f"naming the file '{path}' on Windows", f"no name there can hold {found[0]!r}"
        )
    return "/" + path.replace("\\", "/")
