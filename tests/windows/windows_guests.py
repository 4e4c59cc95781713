"""Doubles of Windows guests, and shells on them."""

from __future__ import annotations

import base64

from double.guest import PASSWORD, USER, Guest
from double.wsman import Trouble

from lab.remote.shell import Reach, WindowsReach


def reach(guest: Guest, **changes: object) -> WindowsReach:
    """Access to a guest; ``password``, ``certificate`` and ``port`` are for WinRM."""
    own = {
        name: changes.pop(name, value)
        for name, value in (
            ("password", PASSWORD),
            ("certificate", guest.certificate),
            ("port", guest.winrm.port),
        )
    }
    facts: dict[str, object] = {
        "name": "win1",
        "address": "127.0.0.1",
        "user": USER,
        "keyfile": guest.keyfile,
        "host_key": guest.host_key,
        "port": guest.ssh.port,
    }
    return WindowsReach(Reach(**{**facts, **changes}), **own)  # type: ignore[arg-type]


def trouble(guest: Guest, action: str, kind: str, **more: object) -> None:
    """Let this action fail once, at its next request."""
    guest.service.troubles.append(Trouble(action, kind, **more))  # type: ignore[arg-type]


def lines(guest: Guest) -> list[str]:
    return [asked.line for asked in guest.script.asked]


def encoded(script: str) -> str:
    return base64.b64encode(script.encode("utf-16-le")).decode()
