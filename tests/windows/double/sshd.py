"""The SSH service: public keys only, SFTP with Windows paths, commands from the same table."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh

from .drives import clean, place
from .script import Asked, Responder, answered

VERSION = "OpenSSH_for_Windows_9.5"


@dataclass
class SshService:
    """Settings and records for tests."""

    user: str
    host_key: Path
    authorized_keys: Path
    """Read at each login."""
    root: Path
    """Directory of the drives: ``C:\\x`` is ``root/C/x``."""
    respond: Responder
    subsystem: bool = True
    """Whether it has SFTP; read at the start."""
    logins: list[str] = field(default_factory=list)


class Sshd:
    """One listener, that can be stopped and started again on its port."""

    def __init__(self, service: SshService, address: str = "127.0.0.1", port: int = 0) -> None:
        self.service, self.address, self.port = service, address, port
        self._thread: threading.Thread | None = None
        self._listens = threading.Event()

    def start(self) -> None:
        self._listens.clear()
        target = partial(asyncio.run, self._serve())
        self._thread = threading.Thread(target=target, name="double-sshd", daemon=True)
        self._thread.start()
        assert self._listens.wait(30)

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)
            self._thread = None

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncssh.SSHServerConnection] = set()
        listener = await asyncssh.create_server(
            partial(_Server, self.service, connections),
            self.address,
            self.port,
            server_host_keys=[str(self.service.host_key)],
            server_version=VERSION,
            process_factory=self._answer,
            encoding=None,
            sftp_factory=partial(_Drives, self.service.root) if self.service.subsystem else None,
        )
        self.port = listener.sockets[0].getsockname()[1]
        self._listens.set()
        await self._over.wait()
        listener.close()
        await listener.wait_closed()
        for connection in list(connections):
            connection.abort()
            await connection.wait_closed()

    async def _answer(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        request = Asked(process.command or "", "ssh", user=self.service.user)
        answer = await asyncio.to_thread(answered, self.service.respond, request)
        process.stdout.write(answer.stdout)
        process.stderr.write(answer.stderr)
        process.exit(answer.code)


class _Server(asyncssh.SSHServer):
    def __init__(self, service: SshService, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._service, self._connections = service, connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._own = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncssh's name
        self._connections.discard(self._own)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        lines = self._service.authorized_keys.read_text().splitlines()
        known = [tuple(line.split()[:2]) for line in lines]
        shown = tuple(key.export_public_key().decode().split()[:2])
        return username.lower() == self._service.user.lower() and shown in known

    def auth_completed(self) -> None:
        self._service.logins.append(self._service.user)


class _Drives(asyncssh.SFTPServer):
    """Files below a directory, with the paths of Windows' OpenSSH.

    ``/C:/hybridlab/x``; case is ignored; a path that is not on a drive does not exist.
    """

    def __init__(self, root: Path, chan: asyncssh.SSHServerChannel[Any]) -> None:
        super().__init__(chan)
        self._root = root

    def map_path(self, path: bytes) -> bytes:
        return str(place(self._root, path.decode())).encode()

    def realpath(self, path: bytes) -> bytes:
        return clean(path.decode()).encode()
