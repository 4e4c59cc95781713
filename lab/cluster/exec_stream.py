"""One command run in a container, over the API's WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes import client

_STDIN = 0
_CHUNK = 16_384
"""Bytes of standard input in one message; a message must pass through a kubelet's buffers."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A command that has ended."""

    code: int
    """126 where the container could not start it."""
    stdout: str
    stderr: str


def converse(  # noqa: PLR0913, PLR0917  what an exec is told
    connected: client.ApiClient,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    stdin: bytes,
) -> ExecResult:
    """Run the command to its end, however long that takes; ``connected`` is this call's alone.

    The end of standard input is told by version 5 of the protocol (Kubernetes 1.30 and later).
    """
    from kubernetes import client  # noqa: PLC0415  slow, and an extra
    from kubernetes.stream import stream  # noqa: PLC0415  the same

    talk: Any = stream(
        client.CoreV1Api(connected).connect_get_namespaced_pod_exec,
        pod,
        namespace,
        container=container,
        command=list(command),
        stdin=bool(stdin),
        stdout=True,
        stderr=True,
        tty=False,
        binary=True,
        _preload_content=False,
    )
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
        return ExecResult(_code(talk), out.decode(errors="replace"), err.decode(errors="replace"))
    finally:
        talk.close()


def _code(talk: Any) -> int:
    """The command's own code; what is no code is that of a command that cannot be run."""
    try:
        return int(talk.returncode)
    except (KeyError, TypeError, ValueError, IndexError):
        return 126
