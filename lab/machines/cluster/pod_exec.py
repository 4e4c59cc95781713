"""Runs a command in a container over the WebSocket of the API server's ``exec``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from lab._deadline import Deadline
from lab.machines.ssh.transport import HttpProxy, TimedConnection

if TYPE_CHECKING:
    from kubernetes import client

_STDIN, _STDOUT, _STDERR, _STATUS, _END = 0, 1, 2, 3, 255
"""Channels of a command; a message on the last one closes the channel that it names."""
_NOT_REACHED = ("error dialing backend", "unable to upgrade connection")
"""How the API server's own errors begin; since 1.30 they come on the command's status channel."""
_HTTP_PORT = 80
_V5 = "v5.channel.k8s.io"
_CHUNK = 16_384
"""Bytes of standard input per message; a message must fit the kubelet's buffers."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command that has ended."""

    code: int
    """126 if the container could not start the command."""
    stdout: str
    stderr: str


def run(  # noqa: PLR0913, PLR0917  one command, where it runs, and until when
    connected: client.ApiClient,
    path: str,
    container: str,
    command: Sequence[str],
    stdin: bytes,
    deadline: Deadline,
) -> ExecResult:
    """Run a command over the API's WebSocket and close the connection in every case.

    Raises UnreachableError when nothing answers at the address; OSError or WebSocketException when
    the connection times out, is refused or breaks before the command ends.
    """
    from websocket import ABNF, WebSocket  # noqa: PLC0415  comes with the client, an extra

    received = {channel: bytearray() for channel in (_STDOUT, _STDERR, _STATUS)}
    url, headers = _exec_address(connected, path, container, command, stdin=bool(stdin))
    with _connection(connected, url, deadline) as line:
        talk: Any = WebSocket(skip_utf8_validation=True)  # half of it has no types
        talk.connect(
            urlunsplit(url), socket=line, header=headers, subprotocols=[_V5], redirect_limit=0
        )
        for start in range(0, len(stdin), _CHUNK):
            talk.send_binary(bytes([_STDIN]) + stdin[start : start + _CHUNK])
        if stdin:
            talk.send_binary(bytes([_END, _STDIN]))
        kind, content = talk.recv_data()
        while kind != ABNF.OPCODE_CLOSE:
            if content and content[0] in received:
                received[content[0]] += content[1:]
            kind, content = talk.recv_data()
        code, why = _status(bytes(received[_STATUS]))
    out, err = (received[channel].decode(errors="replace") for channel in (_STDOUT, _STDERR))
    return ExecResult(code, out, err + why)


def _connection(
    connected: client.ApiClient, url: SplitResult, deadline: Deadline
) -> TimedConnection:
    """A separate connection, because the client's has no timeout; through the client's proxy."""
    import ssl  # noqa: PLC0415  slow

    config, tls = connected.configuration, None
    if url.scheme == "wss":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not config.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        elif config.ssl_ca_cert:
            tls.load_verify_locations(config.ssl_ca_cert)
        else:
            tls.load_default_certs()
        if config.cert_file:
            tls.load_cert_chain(config.cert_file, config.key_file)
    host, port = url.hostname or "", url.port or (443 if tls else 80)
    action = f"connecting to the API server at {host}:{port}"
    proxy = _find_proxy(connected)
    return TimedConnection(action, host, port, deadline, tls, config.tls_server_name, proxy)


def _find_proxy(connected: client.ApiClient) -> HttpProxy | None:
    """The proxy of the client, which knows when it is not to be used (``NO_PROXY``)."""
    pools = connected.rest_client.pool_manager
    url = getattr(pools, "proxy", None)
    if url is None:
        return None
    return HttpProxy(url.host, url.port or _HTTP_PORT, dict(pools.proxy_headers or {}))


def _exec_address(
    connected: client.ApiClient, path: str, container: str, command: Sequence[str], *, stdin: bool
) -> tuple[SplitResult, list[str]]:
    """The address, and the headers that authenticate the request."""
    parameters = [
        ("container", container),
        *(("command", word) for word in command),
        ("stdin", str(stdin).lower()),
        ("stdout", "true"),
        ("stderr", "true"),
        ("tty", "false"),
    ]
    _, url, headers, *_ = connected.param_serialize(
        "GET", f"{path}/exec", query_params=parameters, auth_settings=["BearerToken"]
    )
    address = urlsplit(url)
    let_in = [f"authorization: {headers[key]}" for key in headers if key == "authorization"]
    return address._replace(scheme={"http": "ws", "https": "wss"}[address.scheme]), let_in


def _status(answer: bytes) -> tuple[int, str]:
    """The command's exit code, or a shell's code for one that could not start, and the reason.

    Raises ConnectionError when there is no status or the kubelet was not reached: whether and how
    the command ended is then unknown.
    """
    try:
        status = json.loads(answer)
        if status["status"] == "Success":
            return 0, ""
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConnectionError(0, "the connection ended before the command did") from None
    try:
        return int(status["details"]["causes"][0]["message"]), ""
    except (KeyError, TypeError, ValueError, IndexError):
        why = str(status.get("message") or "")
    if any(sign in why for sign in _NOT_REACHED):
        raise ConnectionError(0, why)
    return 126, why
