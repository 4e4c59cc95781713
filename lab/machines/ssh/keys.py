"""OpenSSH's files: Ed25519 key pairs, known hosts, and the client's configuration."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.shells import programs
from lab.shells.shell import Jump, Reach


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """Both keys as text, each ending with a newline. ``repr`` omits the private key."""

    private: str
    """``-----BEGIN OPENSSH PRIVATE KEY-----``, without a passphrase."""
    public: str
    """``ssh-ed25519 AAAA... comment``."""

    def __repr__(self) -> str:
        return f"KeyPair({self.public.strip()!r})"


def make_key_pair(comment: str) -> KeyPair:
    """Generate a key pair.

    ``comment``: the comment in the public key, one line: ``"lab overlay"``. No user or host name is
    added.
    """
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415  slow to import
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  the same
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private.decode("ascii"), f"{public.decode('ascii')} {comment}\n")


def bare_key(public: str) -> str:
    """Type and base64 of a public key, without its comment. ValueError if one is missing."""
    words = public.split()
    if len(words) < 2:  # noqa: PLR2004  type and base64
        raise ValueError(f"not a public key: {public!r}")
    return f"{words[0]} {words[1]}"


def fingerprint(public: str) -> str:
    """``ssh-ed25519 SHA256:...`` of a public key, as ``ssh-keygen -l`` shows it."""
    kind, blob = bare_key(public).split()
    digest = hashlib.sha256(base64.b64decode(blob)).digest()
    return f"{kind} SHA256:{base64.b64encode(digest).decode('ascii').rstrip('=')}"


SSH_PORT = 22


def host_keys(file: Path, host: str, port: int = SSH_PORT) -> tuple[str, ...]:
    """The host's keys in a known_hosts file, ``"ssh-ed25519 AAAA..."``, in the file's order.

    ``ssh-keygen`` finds the lines, whatever form their names have. Keys that the file revokes for
    the host are left out; certificate authorities are ignored. Empty if the file cannot be
    read.
    """
    name = host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"
    known: dict[str, None] = {}
    revoked: set[str] = set()
    for line in programs.read_output(("ssh-keygen", "-F", name, "-f", str(file))).splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):  # noqa: PLR2004  names, type, base64
            continue
        key = f"{words[1]} {words[2]}"
        if marker == "@revoked":
            revoked.add(key)
        elif not marker:
            known[key] = None
    return tuple(key for key in known if key not in revoked)


def alias(lab: str, machine: str) -> str:
    """A machine's name for ``ssh``: ``overlay-worker1``."""
    return f"{lab}-{machine}"


def known_hosts(lab: str, reaches: Iterable[Reach]) -> str:
    """A known_hosts file by alias, independent of the machines' addresses."""
    return "".join(f"{alias(lab, reach.name)} {bare_key(reach.host_key)}\n" for reach in reaches)


def ssh_config(lab: str, reaches: Iterable[Reach], known: Path) -> str:
    """An ssh configuration with a ``Host`` for every machine and every jump host.

    ``lab``: the lab's name, the prefix of every alias. ``reaches``: the machines. ``known``: the
    path of the :func:`known_hosts` file.
    """
    listed = tuple(reaches)
    jumps = {jump: number for number, jump in enumerate(_distinct(listed), 1)}
    blocks = [host_block(_machine(lab, machine, known, jumps)) for machine in listed]
    blocks += [host_block(_jump(lab, jump, number)) for jump, number in jumps.items()]
    return "\n".join(blocks)


def _distinct(reaches: Iterable[Reach]) -> dict[Jump, None]:
    return {reach.jump: None for reach in reaches if reach.jump}


def _hop(lab: str, number: int) -> str:
    # Machine names contain no dots.
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
    yield "IdentityFile", config_path(reach.keyfile)
    yield "IdentitiesOnly", "yes"
    yield "UserKnownHostsFile", config_path(known)
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
        yield "IdentityFile", config_path(jump.keyfile)
    if jump.no_verify:
        yield "UserKnownHostsFile", "/dev/null"
        yield "StrictHostKeyChecking", "no"
        return
    if jump.known_hosts:
        yield "UserKnownHostsFile", config_path(jump.known_hosts)
    yield "StrictHostKeyChecking", "yes"


def config_path(path: Path) -> str:
    """The path for ssh_config(5): quoted, with tokens escaped."""
    text = str(path).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def host_block(lines: Iterable[tuple[str, str]]) -> str:
    """A ``Host`` block of a configuration; the first line is the ``Host`` line."""
    (key, name), *rest = lines
    return f"{key} {name}\n" + "".join(f"  {key} {value}\n" for key, value in rest)
