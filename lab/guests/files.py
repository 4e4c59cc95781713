"""Files of a machine over SFTP: written whole or not at all, and read."""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.lifeline import as_root
from lab.guests.link import Link, patience
from lab.guests.session import Request, request

if TYPE_CHECKING:
    import paramiko

_PIECE = 32_768
"""The largest that every SFTP server takes."""
_PRIVATE = 0o600
_SERVER = (
    "for s in /usr/lib/openssh /usr/libexec/openssh /usr/libexec /usr/lib/ssh; do "
    '[ -x "$s/sftp-server" ] && exec "$s/sftp-server"; done; exit 127'
)
"""Where distributions keep OpenSSH's server, for running it as another user than the subsystem
does."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a machine, through one session channel."""

    doing: str
    link: Link
    channel: paramiko.Channel
    deadline: Deadline
    become: bool
    """Whether the user is not root."""
    cure: str = "install openssh-sftp-server on it"
    """Where no SFTP server answers."""

    def put(self, content: bytes, path: str, mode: int | None) -> None:
        """Write the file beside its place, with its mode if it is to have one, and move it there.

        Raises
        ------
        BrokenError
            With what the machine said; what was there before stays.
        DeadlineError
            When it took too long; the same.

        """
        directory, name = posixpath.split(path)
        draft = posixpath.join(directory, f".{name}.{secrets.token_hex(4)}")
        with self._client() as client:
            try:
                with client.open(draft, "wbx") as file:
                    if mode is not None:
                        file.chmod(_PRIVATE)
                    file.set_pipelined(pipelined=True)
                    for begin in range(0, len(content), _PIECE):
                        self._in_time(f"{begin:,} of {len(content):,} bytes")
                        file.write(content[begin : begin + _PIECE])
                    if mode is not None:
                        file.chmod(mode)
                client.posix_rename(draft, path)
            except BaseException:
                with suppress(Exception):  # a lost connection takes no more; the first error counts
                    client.remove(draft)
                raise

    def get(self, path: str) -> bytes:
        """Read the file.

        Raises
        ------
        BrokenError
            With what the machine said.
        DeadlineError
            When it took too long.

        """
        content = bytearray()
        with self._client() as client, client.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                content += piece
                self._in_time(f"{len(content):,} bytes")
        return bytes(content)

    def look(self) -> None:
        """See that files can be had at all; errors as of :meth:`get`."""
        with self._client() as client:
            client.normalize(".")

    def remove(self, path: str) -> None:
        """Remove the file; errors as of :meth:`get`."""
        with self._client() as client:
            client.remove(path)

    @contextmanager
    def _client(self) -> Iterator[paramiko.SFTPClient]:
        from paramiko import SFTPClient, SSHException  # noqa: PLC0415  slow to import
        from paramiko.sftp import SFTPError  # noqa: PLC0415  the same

        self.channel.settimeout(patience(self.deadline))
        line = shlex.join(as_root(("sh", "-c", _SERVER), become=True)) if self.become else None
        try:
            request(self.doing, self.link, self.channel, Request("sftp", line), self.deadline)
            with SFTPClient(self.channel) as client:
                yield client
        except TimeoutError as error:
            raise self._late("the SFTP server did not answer") from error
        except (SSHException, SFTPError, EOFError) as error:
            if not self.link.alive():
                raise self.link.lost(self.doing) from error
            raise BrokenError(
                self.doing,
                f"no SFTP server answers there ({error or 'it ended at once'})",
                self.cure,
            ) from error
        except OSError as error:
            if not self.link.alive():
                raise self.link.lost(self.doing) from error
            raise BrokenError(self.doing, _words(error)) from error

    def _in_time(self, done: str) -> None:
        if self.deadline.left() == 0.0:
            raise self._late(done)

    def _late(self, last: str) -> DeadlineError:
        words = f"not done within {self.deadline.seconds:g} s; last seen: {last}"
        return DeadlineError(self.doing, words)


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
