"""All that is needed to get a shell on one Windows guest."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.guests.shell import Reach

WINRM_TLS_PORT = 5986


@dataclass(frozen=True, slots=True)
class WindowsReach:
    """A Windows guest: commands by WinRM, files by SSH."""

    ssh: Reach
    """Its OpenSSH: address, user, lab's key, pinned host key, and the host to jump through."""
    password: str = field(repr=False)
    """Of the same user. Secret."""
    certificate: str = ""
    """SHA-256 of the certificate (DER) that WinRM must show, 64 hex digits: pinned, and anything
    else is refused."""
    port: int = WINRM_TLS_PORT
