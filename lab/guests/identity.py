"""The keys that this user can show at a door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import BrokenError
from lab.guests.door import Door, ssh_path

if TYPE_CHECKING:
    import paramiko

OWN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""Below ``~/.ssh``, in the order in which they are offered."""


class KeyFileError(BrokenError):
    """The key file that is to be shown cannot be. Trying again is no cure."""


@contextmanager
def identities(doing: str, door: Door) -> Iterator[Iterator[tuple[str, paramiko.PKey]]]:
    """Every key to offer, with the words for it; the agent is let go at the end.

    Raises
    ------
    KeyFileError
        When the door's own key file cannot be used.

    """
    if door.keyfile is not None:
        yield iter((_from_file(doing, door.keyfile),))
        return
    from paramiko import Agent, SSHException  # noqa: PLC0415  slow to import

    try:
        agent = Agent()
    except SSHException:  # whatever answers at SSH_AUTH_SOCK is no agent
        yield _own()
        return
    try:
        yield _agent_then_own(agent)
    finally:
        agent.close()


def _agent_then_own(agent: paramiko.Agent) -> Iterator[tuple[str, paramiko.PKey]]:
    for key in agent.get_keys():
        yield f"'{key.comment or key.get_name()}' of the agent", key
    yield from _own()


def _own() -> Iterator[tuple[str, paramiko.PKey]]:
    """The user's own key files, but for those that are not there or need a passphrase."""
    for name in OWN_KEYS:
        path = ssh_path(f"~/.ssh/{name}")
        try:
            yield _from_file("", path)
        except KeyFileError:
            continue


def _from_file(doing: str, path: Path) -> tuple[str, paramiko.PKey]:
    from paramiko import PKey, SSHException  # noqa: PLC0415  slow to import
    from paramiko.pkey import UnknownKeyType  # noqa: PLC0415  the same

    try:
        return f"'{path}'", PKey.from_path(path)
    except OSError as error:
        raise KeyFileError(
            doing, f"the key file '{path}' cannot be read: {(error.strerror or '').lower()}"
        ) from error
    except TypeError as error:  # what cryptography says of a key with a passphrase
        raise KeyFileError(
            doing,
            f"the key file '{path}' has a passphrase",
            "load it into an agent with ssh-add, and name no key file",
        ) from error
    except (ValueError, SSHException, UnknownKeyType) as error:
        raise KeyFileError(doing, f"the file '{path}' holds no private key: {error}") from error
