"""One command run in a container, over the API's WebSocket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes import client

_STDIN, _STATUS = 0, 3
_CHUNK = 16_384
"""Bytes of standard input in one message; a message must pass through a kubelet's buffers."""
_LOOK_SECONDS = 1.0
_BOTH_WAYS = 2
"""``SHUT_RDWR``."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A command that has ended."""

    code: int
    """126 where the container could not start it."""
    stdout: str
    stderr: str


class Conversation:
    """One command and its channels.

    Parameters
    ----------
    connected
        A client that is this conversation's alone.
    path
        Of the container's pod: ``/api/v1/namespaces/NAMESPACE/pods/POD``.

    """

    def __init__(
        self, connected: client.ApiClient, path: str, container: str, command: Sequence[str]
    ) -> None:
        self._connected = connected
        self._path = path
        self._container = container
        self._command = command
        self._talk: Any = None

    def hold(self, stdin: bytes) -> ExecResult:
        """Run the command to its end, however long that takes.

        The end of standard input is told by version 5 of the protocol (Kubernetes 1.30 and later).
        Raises what the client raises, and ConnectionError when it ends before the command.
        """
        talk = self._talk = self._opened(stdin=bool(stdin))
        try:
            for start in range(0, len(stdin), _CHUNK):
                talk.write_channel(_STDIN, stdin[start : start + _CHUNK])
            if stdin:
                talk.close_channel(_STDIN)
            out, err = bytearray(), bytearray()
            while talk.is_open():
                talk.update(timeout=_LOOK_SECONDS)
                out += talk.read_stdout(timeout=0)
                err += talk.read_stderr(timeout=0)
            code, said = _status(talk.read_channel(_STATUS))
            return ExecResult(
                code, out.decode(errors="replace"), err.decode(errors="replace") + said
            )
        finally:
            talk.close()
            talk.sock.shutdown()  # which the former leaves out where the server has closed first

    def give_up(self) -> None:
        """Have :meth:`hold` end on the thread that it runs on, as far as it has a connection."""
        with suppress(AttributeError, OSError):  # it has none, or no more
            self._talk.sock.sock.shutdown(_BOTH_WAYS)

    def _opened(self, *, stdin: bool) -> Any:
        """The connection. The client's own way to it imports every kind of object there is."""
        from kubernetes.stream import ws_client  # noqa: PLC0415  slow, and an extra

        flags = {"stdin": stdin, "stdout": True, "stderr": True, "tty": False}
        asked = [
            ("container", self._container),
            *(("command", word) for word in self._command),
            *((name, str(flag).lower()) for name, flag in flags.items()),
        ]
        _, url, headers, *_ = self._connected.param_serialize(
            "GET", f"{self._path}/exec", query_params=asked, auth_settings=["BearerToken"]
        )
        address = ws_client.get_websocket_url(url)
        configuration = self._connected.configuration
        # Without a proxy it would ask the environment for one; this one is for nobody.
        configuration.proxy, configuration.no_proxy = "http://proxy.invalid:1", "*"
        return ws_client.WSClient(configuration, address, headers, False, binary=True)


def _status(said: bytes) -> tuple[int, str]:
    """The command's own code; one that could not be started has that of a shell, and why.

    Raises
    ------
    ConnectionError
        When nothing was said: then nobody knows how the command ended, or whether.

    """
    try:
        status = json.loads(said)
        if status["status"] == "Success":
            return 0, ""
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConnectionError(0, "the connection ended before the command did") from None
    try:
        return int(status["details"]["causes"][0]["message"]), ""
    except (KeyError, TypeError, ValueError, IndexError):
        return 126, str(status.get("message") or "")
