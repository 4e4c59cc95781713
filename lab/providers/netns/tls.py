"""A client's side of a TLS handshake that asks for the server's certificate. No sockets."""

from __future__ import annotations

import hashlib
import ssl
from functools import cache

from lab.providers.netns.protocol import WireError

FINGERPRINT = "sha256:"


def fingerprint(certificate: bytes) -> str:
    """What a certificate (DER) is known by: ``sha256:`` and 64 hexadecimal digits."""
    return f"{FINGERPRINT}{hashlib.sha256(certificate).hexdigest()}"


class Handshake:
    """One handshake. It verifies nothing: whose the certificate is, the caller looks up."""

    def __init__(self) -> None:
        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._from, self._to)
        self.hello = self.read(b"")[1]
        """What the client sends first."""

    def read(self, received: bytes) -> tuple[str | None, bytes]:
        """Take what came next: the certificate's fingerprint at the end, and what to send now.

        Raises
        ------
        WireError
            If it never can become a handshake.

        """
        self._from.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None, self._to.read()
        except ssl.SSLError as error:
            raise WireError(f"no TLS handshake: {error.reason or error}") from None
        # only anonymous cipher suites, which no context of Python's offers, have none
        certificate = self._tls.getpeercert(binary_form=True)
        assert certificate is not None
        return fingerprint(certificate), self._to.read()


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
