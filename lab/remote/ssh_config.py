"""OpenSSH's own configuration for the machines of a lab. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lab.remote.keys import bare_key
from lab.remote.shell import Jump, Reach


def alias(lab: str, machine: str) -> str:
    """What ``ssh`` calls a machine: ``overlay-worker1``."""
    return f"{lab}-{machine}"


def known_hosts(lab: str, reaches: Iterable[Reach]) -> str:
    """A known_hosts file by those aliases, whatever addresses the machines have."""
    return "".join(f"{alias(lab, one.name)} {bare_key(one.host_key)}\n" for one in reaches)


def ssh_config(lab: str, reaches: Iterable[Reach], known: Path) -> str:
    """A configuration with a ``Host`` for every machine, and one for every jump host.

    Parameters
    ----------
    lab
        The lab's name; every alias begins with it.
    reaches
        The machines.
    known
        Where :func:`known_hosts` is written.

    """
    listed = tuple(reaches)
    jumps = {jump: number for number, jump in enumerate(_distinct(listed), 1)}
    blocks = [_block(_machine(lab, one, known, jumps)) for one in listed]
    blocks += [_block(_jump(lab, jump, number)) for jump, number in jumps.items()]
    return "\n".join(blocks)


def _distinct(reaches: Iterable[Reach]) -> dict[Jump, None]:
    return {one.jump: None for one in reaches if one.jump}


def _hop(lab: str, number: int) -> str:
    # No machine has a dot in its name.
    return f"{lab}.jump{number}"


def _machine(
    lab: str, reach: Reach, known: Path, jumps: dict[Jump, int]
) -> Iterator[tuple[str, str]]:
    name = alias(lab, reach.name)
    yield "Host", name
    yield "HostName", reach.address
    yield "HostKeyAlias", name
    yield "Port", str(reach.port)
    yield "User", reach.user
    yield "IdentityFile", _path(reach.keyfile)
    yield "IdentitiesOnly", "yes"
    yield "UserKnownHostsFile", _path(known)
    yield "GlobalKnownHostsFile", "/dev/null"
    yield "StrictHostKeyChecking", "yes"
    yield "ServerAliveInterval", "15"
    if reach.jump:
        yield "ProxyJump", _hop(lab, jumps[reach.jump])


def _jump(lab: str, jump: Jump, number: int) -> Iterator[tuple[str, str]]:
    yield "Host", _hop(lab, number)
    yield "HostName", jump.host
    yield "Port", str(jump.port)
    yield "User", jump.user
    if jump.keyfile:
        yield "IdentityFile", _path(jump.keyfile)
    if jump.no_verify:
        yield "UserKnownHostsFile", "/dev/null"
        yield "StrictHostKeyChecking", "no"
        return
    if jump.known_hosts:
        yield "UserKnownHostsFile", _path(jump.known_hosts)
    yield "StrictHostKeyChecking", "yes"


def _path(path: Path) -> str:
    """As ssh_config(5) reads it: in quotes, and with no token to expand."""
    text = str(path).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _block(lines: Iterable[tuple[str, str]]) -> str:
    (key, name), *rest = lines
    return f"{key} {name}\n" + "".join(f"  {key} {value}\n" for key, value in rest)
