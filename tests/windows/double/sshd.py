"""The SSH service: public keys only, SFTP with Windows paths, commands from the same table."""

from __future__ import annotations

import base64
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from .drives import clean, place
from .script import Asked, Responder, answered

BANNER = "SSH-2.0-OpenSSH_for_Windows_9.5"


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
    """Whether it has SFTP."""
    logins: list[str] = field(default_factory=list)


class Sshd:
    """One listener, that can be stopped and started again on its port."""

    def __init__(self, service: SshService, address: str = "127.0.0.1", port: int = 0) -> None:
        self.service, self.address, self.port = service, address, port
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._transports: list[paramiko.Transport] = []
        self._over = threading.Event()

    def start(self) -> None:
        self._over.clear()
        self._listener = socket.create_server((self.address, self.port), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._spawn(self._accept, "double-sshd")

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._listener is None:
            return
        self._over.set()
        self.cut()
        for thread in self._threads:
            thread.join(10)
        self.cut()  # another may have been accepted meanwhile
        self._threads.clear()
        self._listener = None

    def cut(self) -> None:
        """Close every connection, and go on listening."""
        for transport in list(self._transports):
            self._transports.remove(transport)
            transport.close()
            transport.sock.close()
            transport.packetizer.complete_handshake()
            if transport.is_alive():
                transport.join(5)

    def _spawn(self, target: Callable[..., None], name: str, *args: object) -> None:
        thread = threading.Thread(target=target, name=name, args=args, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        listener = self._listener
        assert listener is not None
        with listener:
            while not self._over.is_set():
                if select.select([listener], [], [], 0.02)[0]:
                    sock, _ = listener.accept()
                    self._begin(sock)
                for one in [t for t in self._transports if not t.is_active()]:
                    self._transports.remove(one)

    def _begin(self, sock: socket.socket) -> None:
        transport = _Transport(sock)
        transport.local_version = BANNER
        key = paramiko.Ed25519Key(filename=str(self.service.host_key))
        transport.add_server_key(key)
        if self.service.subsystem:
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Drives, self.service.root)
        server = _Server(self.service, self._over, self._spawn)
        self._transports.append(transport)
        with suppress(paramiko.SSHException, EOFError):
            transport.start_server(threading.Event(), server=server)


def _requested(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Start the command only after the client got the reply to its request: else its end, and the
    channel's, may come first."""
    paramiko.Channel._handle_request(channel, message)
    begin = channel.__dict__.pop("begin", None)
    if begin is not None:
        begin()


class _Transport(paramiko.Transport):
    _channel_handler_table: ClassVar = {
        **paramiko.Transport._channel_handler_table,
        MSG_CHANNEL_REQUEST: _requested,
    }


class _Server(paramiko.ServerInterface):
    def __init__(
        self, service: SshService, over: threading.Event, spawn: Callable[..., None]
    ) -> None:
        self._service, self._over, self._spawn = service, over, spawn

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002  paramiko's name
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = {
            tuple(line.split()[:2])
            for line in self._service.authorized_keys.read_text().splitlines()
            if line.strip()
        }
        shown = (key.get_name(), base64.b64encode(key.asbytes()).decode())
        if username.lower() == self._service.user.lower() and shown in known:
            self._service.logins.append(username)
            return int(paramiko.AUTH_SUCCESSFUL)
        return int(paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002  the same
        if kind == "session":
            return int(paramiko.OPEN_SUCCEEDED)
        return int(paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        return self._begins(channel, "")

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self._begins(channel, command.decode())

    def _begins(self, channel: paramiko.Channel, line: str) -> bool:
        channel.__dict__["begin"] = partial(self._spawn, self._answer, "double-exec", channel, line)
        return True

    def _answer(self, channel: paramiko.Channel, line: str) -> None:
        asked = Asked(line, "ssh", user=self._service.user)
        answer = answered(self._service.respond, asked)
        with suppress(OSError, EOFError):
            for out, err in (*answer.pieces, (answer.stdout, answer.stderr)):
                channel.sendall(out)
                channel.sendall_stderr(err)
            while answer.held is not None and not answer.held.wait(0.02):
                if self._over.is_set() or channel.closed:
                    break
            channel.send_exit_status(answer.code)
        with suppress(OSError, EOFError):
            channel.close()


class _Drives(paramiko.SFTPServerInterface):
    """Files below a directory, with the paths of Windows' OpenSSH.

    ``/C:/hybridlab/x``; case is ignored; a path that is not on a drive does not exist.
    """

    def __init__(self, server: paramiko.ServerInterface, root: Path) -> None:
        super().__init__(server)
        self._root = root

    def canonicalize(self, path: str) -> str:
        return clean(path)

    def stat(self, path: str) -> paramiko.SFTPAttributes | int:
        try:
            return paramiko.SFTPAttributes.from_stat(self._place(path).stat())
        except OSError as error:
            return _status(error)

    lstat = stat

    def open(
        self,
        path: str,
        flags: int,
        attr: paramiko.SFTPAttributes,  # noqa: ARG002  Windows has no modes
    ) -> paramiko.SFTPHandle | int:
        try:
            descriptor = os.open(self._place(path), flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            return _status(error)
        mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flags & os.O_ACCMODE]
        file = os.fdopen(descriptor, mode)
        handle = paramiko.SFTPHandle(flags)
        handle.readfile = handle.writefile = file  # type: ignore[attr-defined]
        return handle

    def remove(self, path: str) -> int:
        return self._done(lambda: self._place(path).unlink())

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        return self._done(lambda: self._place(oldpath).replace(self._place(newpath)))

    @staticmethod
    def _done(act: Callable[[], object]) -> int:
        try:
            act()
        except OSError as error:
            return _status(error)
        return int(paramiko.SFTP_OK)

    def _place(self, path: str) -> Path:
        return place(self._root, path)


def _status(error: OSError) -> int:
    return int(paramiko.SFTPServer.convert_errno(error.errno or 0))
