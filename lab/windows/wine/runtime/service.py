"""Serve the CRI to a node's Windows programs, and ``ctr``, ``ip`` and ``nft`` to the lab's steps.

``python3 -m lab.windows.wine.runtime.service SOCKET CTR`` runs on the node; it needs Debian's
python3-grpcio. ``standins/containerd.c`` and ``linux.c``, and PowerShell's
``modules/HybridlabLinux.psm1``, carry what Windows programs say to it.
"""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from lab.windows.wine.runtime import places, translate

CRI_PORT, COMMAND_PORT = 10010, 10011
"""Also in ``standins/containerd.c``, ``linux.c`` and ``modules/HybridlabLinux.psm1``."""
_LARGEST = 16 << 20
"""Bytes of a message, as containerd allows."""
_CALLS = 64
"""Calls at once; a watch of events holds one."""
_DRIVES = {"d": "/run/hybridlab/bundle"}
"""Where drives other than C are on the node."""
_CONFIGURATIONS = Path("/etc/cni/net.d")
_COMMAND_SECONDS = 600.0
_NO_LIMIT = 1e9
"""Seconds: 30 years."""
_TASKS = (sys.executable, "-m", "lab.windows.wine.runtime.tasks")


def serve(socket: str) -> None:
    """Serve the CRI until the process ends."""
    import grpc  # noqa: PLC0415  on nodes only

    options = [
        ("grpc.max_receive_message_length", _LARGEST),
        ("grpc.max_send_message_length", _LARGEST),
    ]
    channel = grpc.insecure_channel(f"unix://{socket}", options)

    def call(method: str, data: bytes, context: Any) -> Iterator[bytes]:
        name = method.rpartition("/")[2]
        if name == "RunPodSandbox":
            data = translate.with_resolver(data, _plugin_search())
        try:
            sent = translate.request(name, data)
            if name == "CreateContainer":
                check_sources(translate.mount_sources(sent))
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        answers = channel.unary_stream(method)(sent, timeout=time_limit(context.time_remaining()))
        context.add_callback(answers.cancel)
        try:
            for answer in answers:
                yield translate.response(name, answer)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            method = details.method

            def handle(data: bytes, context: Any) -> Iterator[bytes]:
                return call(method, data, context)

            return grpc.unary_stream_rpc_method_handler(handle)

    server = grpc.server(ThreadPoolExecutor(_CALLS), [Handler()], options=options)
    server.add_insecure_port(f"127.0.0.1:{CRI_PORT}")
    server.start()
    server.wait_for_termination()


def check_sources(sources: Iterable[str], drive: str = places.PREFIX) -> None:
    """Raise ValueError if a mount's source leads out of the node's drive C, by links of Linux.

    A pod can make such links in its volumes. Windows has none that do, so a Windows kubelet does
    not look for them.
    """
    for source in sources:
        real = os.path.realpath(source)
        if real != drive and not real.startswith(f"{drive}/"):
            raise ValueError(f"mount of {source}: its links lead out of drive C, to {real}")


def time_limit(remaining: float | None) -> float | None:
    """Seconds that a call may take; None without a limit, as of a hook. Pure.

    gRPC says some 10^18 s then, and a call with that limit ends at once.
    """
    return None if remaining is None or remaining > _NO_LIMIT else remaining


def _plugin_search() -> tuple[str, ...] | None:
    """The suffixes of the CNI configuration that containerd uses: the first in its folder."""
    for file in sorted(_CONFIGURATIONS.glob("*.conf*")):
        return translate.plugin_search(json.loads(file.read_text(encoding="utf-8")))
    return None


def drive_path(word: str) -> str:
    r"""A word of a command as Linux's ctr takes it: ``D:\images\pause.tar`` is a file of the node.

    Pure.
    """
    drive = word[:1].lower()
    if word[1:3] != ":\\":
        return word
    if drive in _DRIVES:
        return f"{_DRIVES[drive]}/{word[3:]}".replace("\\", "/")
    return places.linux_path(word)


def run_program(
    programs: Mapping[str, Sequence[str]], words: Sequence[str], seconds: float = _COMMAND_SECONDS
) -> tuple[int, bytes]:
    """Run the program of a name with words: its exit code, and all that it wrote.

    ``programs``: the command of each name. ``seconds``: when it is ended. One that is not known,
    cannot be started or takes too long is answered with 1 and a sentence.
    """
    name, *arguments = words or ("",)
    try:
        done = subprocess.run(  # noqa: S603  the words are those of the lab's steps
            (*programs[name], *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except KeyError:
        why = f"'{name}' is none of {', '.join(programs)}"
    except (OSError, ValueError) as error:
        why = f"{name}: {error}"
    except subprocess.TimeoutExpired as error:
        written = (error.stdout or b"").decode(errors="replace").strip()
        why = f"{name} did not end within {seconds:g} s; it wrote: '{written}'"
    else:
        return done.returncode, done.stdout
    return 1, f"{why}\n".encode()


class _Command(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        try:
            words = [self._word() for _ in range(int(self.rfile.readline()))]
        except (EOFError, ValueError):  # whoever connected has gone, or is none of ours
            return
        programs = cast("_Commands", self.server).programs
        code, output = run_program(programs, [drive_path(word) for word in words])
        self.wfile.write(f"{code}\n".encode() + output)

    def _word(self) -> str:
        out = bytearray()
        while (byte := self.rfile.read(1)) != b"\0":
            if not byte:
                raise EOFError
            out += byte
        return out.decode()


class _Commands(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, programs: Mapping[str, Sequence[str]]) -> None:
        super().__init__(("127.0.0.1", COMMAND_PORT), _Command)
        self.programs = programs


def main(arguments: Sequence[str]) -> None:
    """Serve until killed."""
    socket, ctr = arguments
    commands = _Commands(
        {
            "ctr": (ctr, "--address", socket),
            "ip": ("ip",),
            "nft": ("nft",),
            "hybridlab-task": _TASKS,
        }
    )
    threading.Thread(target=commands.serve_forever, daemon=True).start()
    serve(socket)


if __name__ == "__main__":
    main(sys.argv[1:])
