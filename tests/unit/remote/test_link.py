"""Sessions on a connection that breaks: their room comes back, and closing one is no error."""

from __future__ import annotations

from typing import cast

import paramiko
import pytest

from lab._deadline import Deadline
from lab.remote.transport import SESSIONS, SSHServer, SSHTransport


class Broken:
    """A channel whose transport is gone, as paramiko's tells when it writes its good-bye."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def close(self) -> None:
        if self.error is not None:
            raise self.error


class Transport:
    """One that opens every channel."""

    def __init__(self, channel: Broken) -> None:
        self.channel = channel

    def open_channel(self, *_: object, timeout: float) -> Broken:
        assert timeout > 0
        return self.channel


@pytest.mark.parametrize(
    "error", [None, EOFError(), OSError("gone"), paramiko.SSHException("gone")], ids=repr
)
def test_a_session_gives_its_room_back_however_its_connection_ended(
    error: BaseException | None,
) -> None:
    transport = Transport(Broken(error))
    link = SSHTransport(cast("SSHServer", None), cast("paramiko.Transport", transport))
    for _ in range(SESSIONS + 1):
        link.done(link.open("running a command", Deadline(5.0)))


@pytest.mark.parametrize("error", [EOFError(), OSError("gone"), paramiko.SSHException("gone")])
def test_a_channel_to_another_machine_closes_however_its_connection_ended(
    error: BaseException,
) -> None:
    transport = Transport(Broken(error))
    link = SSHTransport(cast("SSHServer", None), cast("paramiko.Transport", transport))
    link.channel("connecting", "direct-tcpip", ("192.0.2.1", 22), Deadline(5.0)).close()


def test_what_is_no_end_of_a_connection_is_told_and_gives_the_room_back_too() -> None:
    transport = Transport(Broken(KeyboardInterrupt()))
    link = SSHTransport(cast("SSHServer", None), cast("paramiko.Transport", transport))
    for _ in range(SESSIONS + 1):
        channel = link.open("running a command", Deadline(5.0))
        with pytest.raises(KeyboardInterrupt):
            link.done(channel)
