"""Secrets of the inventory, read at the moment that they are needed; no message repeats one."""

from __future__ import annotations

import os

from lab._errors import PreflightError
from lab.inventory.inventory import Secret

_MOST = 4096
"""Bytes of a file that are read: no secret of ours has more."""


def value(name: str, secret: Secret, doing: str) -> str:
    """What a secret is, without the white space around it.

    Raises
    ------
    PreflightError
        When the variable or the file is not there, cannot be read, or is empty.

    """
    cure = f"set it, or leave [secrets.{name}] out of the inventory"
    if secret.file is None:
        told = f"the environment variable {secret.environment} of [secrets.{name}]"
        found = os.environ.get(secret.environment or "")
        if found is None:
            raise PreflightError(doing, f"{told} is not set", cure)
    else:
        told = f"'{secret.file}' of [secrets.{name}]"
        try:
            with secret.file.open("rb") as file:
                found = file.read(_MOST).decode("utf-8", errors="replace")
        except OSError as error:
            raise PreflightError(doing, f"{told}: {error.strerror}", cure) from error
    if not found.strip():
        raise PreflightError(doing, f"{told} is empty", cure)
    return found.strip()
