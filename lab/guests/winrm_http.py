"""HTTP over the connection that we dial, and TLS with the pinned certificate alone.

Imported where it is used: requests is slow to import.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from requests import Session
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import SSLError
from urllib3.util.ssl_ import create_urllib3_context

from lab.guests.link import UnreachableError
from lab.guests.winrm_dialling import Dial
from lab.guests.winrm_endpoint import Endpoint
from lab.guests.winrm_errors import CertificateError


def mount(session: Session, endpoint: Endpoint, dial: Dial) -> None:
    """Have the session use that connection, and no other."""
    session.trust_env = False  # no proxy, and no other passwords
    session.mount(endpoint.url, _Adapter(endpoint, dial))


class _Adapter(HTTPAdapter):
    def __init__(self, endpoint: Endpoint, dial: Dial) -> None:
        self._endpoint, self._dial = endpoint, dial
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **more: Any
    ) -> None:
        """Pools of one connection, of our own kind."""
        if self._endpoint.certificate:
            more["assert_fingerprint"] = self._endpoint.certificate
            more["ssl_context"] = _context()
        manager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **more)
        manager.pool_classes_by_scheme = self._pools()
        self.poolmanager = manager

    def _pools(self) -> dict[str, Any]:
        endpoint, dial = self._endpoint, self._dial

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return dial()

        class Pinned(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return dial()

            def connect(self) -> None:
                try:
                    super().connect()
                except SSLError as error:
                    raise _strange(dial.doing, endpoint, error) from error
                except (ssl.SSLError, OSError) as error:
                    raise _shaken(dial, endpoint, error) from error
                # Python takes a connection that was reset for one that has ended, unless told not
                # to: only the other side's goodbye in TLS says that it had no more to say.
                assert isinstance(self.sock, ssl.SSLSocket)
                self.sock.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # typeshed has it not
                dial.holds(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class PinnedPool(HTTPSConnectionPool):
            ConnectionCls = Pinned

        return {"http": PlainPool, "https": PinnedPool}


def _context() -> ssl.SSLContext:
    """urllib3's own, without what Python 3.11.2 (Debian 12) sets for OpenSSL 3 (gh-95494).

    There, an end without a goodbye would count as one with it.
    """
    context = create_urllib3_context(cert_reqs=ssl.CERT_NONE)  # the pin is what is checked
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def _strange(doing: str, endpoint: Endpoint, error: SSLError) -> CertificateError | SSLError:
    said = str(error)
    if "ingerprint" not in said:  # some other complaint of urllib3's
        return error
    shown = said.rsplit('got "', maxsplit=1)[-1].rstrip('".')
    return CertificateError(
        doing,
        f"it shows the certificate {shown}, and by the lab's own record it is "
        f"{endpoint.certificate}: this is another machine, or somebody in between",
        "find out which machine has that address; no password was sent to it",
    )


def _shaken(dial: Dial, endpoint: Endpoint, error: OSError) -> UnreachableError:
    words = "no answer" if isinstance(error, TimeoutError) else str(error) or "connection closed"
    return UnreachableError(
        dial.doing,
        f"connected, but the TLS handshake broke off ({words})",
        f"see what listens at {endpoint.address}, and whether its certificate is there",
    )
