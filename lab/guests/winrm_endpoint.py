"""Where a guest's WinRM is, and how it proves itself. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lab._errors import UsageError
from lab.guests.windows_reach import WINRM_TLS_PORT, WindowsReach

WINRM_PORT = 5985
"""HTTP, with the messages sealed by NTLM."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A WinRM service."""

    name: str
    """The machine's, for messages."""
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    certificate: str
    """SHA-256 of the certificate, 64 hex digits; empty for HTTP."""

    @property
    def url(self) -> str:
        """As HTTP clients take it."""
        scheme = "https" if self.certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/wsman"

    @property
    def address(self) -> str:
        """For messages."""
        return f"{self.host} port {self.port}"


def endpoint(reach: WindowsReach) -> Endpoint:
    """Where to knock: HTTPS with the pinned certificate; HTTP, sealed, where none is pinned.

    Raises
    ------
    UsageError
        When what is given does not fit together: a TLS port without a certificate to pin, a
        certificate for the port that has no TLS, or one that is no SHA-256.

    """
    doing = f"reaching '{reach.ssh.name}' by WinRM"
    pin = reach.certificate.replace(":", "").lower()
    if pin and not _DIGEST.fullmatch(pin):
        raise UsageError(doing, f"'{reach.certificate}' is no SHA-256: 64 hex digits are")
    if not pin and reach.port == WINRM_TLS_PORT:
        words = f"port {reach.port} is TLS, and no certificate is pinned"
        raise UsageError(doing, words, f"give its SHA-256, or port {WINRM_PORT}")
    if pin and reach.port == WINRM_PORT:
        words = f"a certificate is pinned, and port {reach.port} has no TLS"
        raise UsageError(doing, words, f"give port {WINRM_TLS_PORT}, or no certificate")
    ssh = reach.ssh
    return Endpoint(ssh.name, ssh.address, reach.port, ssh.user, reach.password, pin)
