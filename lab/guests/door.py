"""An SSH server as this machine must find it: where it is, who knocks, and which key it shows."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.guests.keys import bare_key
from lab.guests.known_hosts import SSH_PORT, host_keys
from lab.guests.shell import Jump, Reach

SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True, slots=True)
class Door:
    """One SSH server."""

    name: str
    """For messages: the machine's name in the lab, or the host's."""
    host: str
    port: int
    user: str
    keyfile: Path | None
    """None for the user's own agent and keys."""
    host_keys: tuple[str, ...] | None
    """The keys it may show, ``"ssh-ed25519 AAAA..."``; none at all for a host that is not known;
    None where it is not to be checked."""
    source: str
    """Where those keys come from, for messages: ``"the lab's own record"``."""

    @property
    def address(self) -> str:
        """Host and port as people write them."""
        return self.host if self.port == SSH_PORT else f"{self.host} port {self.port}"


def way(reach: Reach) -> tuple[Door, ...]:
    """The doors to go through to a guest, its own last."""
    own = Door(
        reach.name,
        reach.address,
        reach.port,
        reach.user,
        reach.keyfile,
        (bare_key(reach.host_key),),
        "the lab's own record",
    )
    return (jump_door(reach.jump), own) if reach.jump else (own,)


def jump_door(jump: Jump) -> Door:
    """The door of a host that is gone through; its key is looked up in the known hosts."""
    files = (jump.known_hosts,) if jump.known_hosts else own_known_hosts()
    keys = None if jump.no_verify else _known(files, jump.host, jump.port)
    source = " and ".join(f"'{file}'" for file in files)
    return Door(jump.host, jump.host, jump.port, jump.user, jump.keyfile, keys, source)


def own_known_hosts() -> tuple[Path, ...]:
    """The files that ``ssh`` looks in."""
    return (ssh_path("~/.ssh/known_hosts"), SYSTEM_KNOWN_HOSTS)


def ssh_path(written: str) -> Path:
    """The path as ``ssh`` reads it: ``~`` is the account's home, whatever ``HOME`` says."""
    if written.startswith("~/"):
        with suppress(KeyError):  # a user id without an account, for which ssh does not run at all
            return Path(pwd.getpwuid(os.getuid()).pw_dir, written[2:])
    return Path(os.path.expanduser(written))  # noqa: PTH111  a home that is not set leaves the text as it is


def _known(files: Iterable[Path], host: str, port: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found.update(dict.fromkeys(host_keys(text, host, port)))
    return tuple(found)
