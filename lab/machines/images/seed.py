"""The seed: the small disk that gives a clone of an image its identity. Pure.

A NoCloud medium (volume ``cidata``) for cloud-init, with one more file for light images:
``light.tar``, a tree that their initramfs unpacks over ``/``.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Interface

from lab.machines.images.medium import medium

LABEL = "cidata"
"""Volume identifier that cloud-init and the light initramfs look for."""


@dataclass(frozen=True, slots=True)
class SeedCard:
    """One network interface of the machine."""

    name: str
    mac: str
    address: IPv4Interface | None = None
    """None for an interface that is only renamed."""
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a clone."""

    instance: str
    """Changes with the machine: each instance unpacks its seed once."""
    hostname: str
    user: str
    """The account that logs in; light images have only ``root``."""
    authorized_key: str
    """``ssh-ed25519 AAAA... comment``."""
    host_key: str
    """The machine's private key in OpenSSH's format."""
    host_key_public: str
    nics: tuple[SeedCard, ...]


def seed_files(identity: Identity) -> Mapping[str, bytes]:
    """Every file of the seed by name. Secret: one is the machine's private key."""
    return {
        "meta-data": _meta_data(identity),
        "user-data": b"#cloud-config\n" + _json(_user_data(identity)),
        "network-config": _json(_network(identity)),
        "light.tar": light_tree(identity),
    }


def seed_image(files: Mapping[str, bytes]) -> bytes:
    """The seed as an ISO 9660 image; the same files give the same bytes."""
    return medium(LABEL, files)


def _meta_data(identity: Identity) -> bytes:
    text = f"instance-id: {identity.instance}\nlocal-hostname: {identity.hostname}\n"
    return text.encode()


def _json(value: object) -> bytes:
    """JSON, which is valid YAML and needs no further quoting rules."""
    return json.dumps(value, indent=1).encode() + b"\n"


def _user_data(identity: Identity) -> dict[str, object]:
    return {
        "hostname": identity.hostname,
        "manage_etc_hosts": "localhost",
        "preserve_hostname": False,
        "users": [
            {
                "name": identity.user,
                "lock_passwd": True,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": [identity.authorized_key],
            }
        ],
        "disable_root": identity.user != "root",
        "ssh_pwauth": False,
        "ssh_deletekeys": True,
        "ssh_genkeytypes": ["ed25519"],
        "ssh_keys": {
            "ed25519_private": identity.host_key,
            "ed25519_public": identity.host_key_public,
        },
    }


def _network(identity: Identity) -> dict[str, object]:
    return {"version": 2, "ethernets": {card.name: _ethernet(card) for card in identity.nics}}


def _ethernet(card: SeedCard) -> dict[str, object]:
    config: dict[str, object] = {
        "match": {"macaddress": card.mac.lower()},
        "set-name": card.name,
        "dhcp4": False,
        "dhcp6": False,
        "optional": True,
    }
    if card.address:
        config["addresses"] = [str(card.address)]
    if card.mtu:
        config["mtu"] = card.mtu
    return config


def light_tree(identity: Identity) -> bytes:
    """The tree for light images; owned by root and dated 1970, so it is deterministic."""
    out = io.BytesIO()
    made: set[str] = set()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, mode, content in _tree(identity):
            for folder in _folders(path, made):
                tar.addfile(
                    _member(folder, 0o700 if folder.endswith(".ssh") else 0o755, tarfile.DIRTYPE)
                )
            member = _member(path, mode, tarfile.REGTYPE)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _folders(path: str, made: set[str]) -> Iterator[str]:
    parts = path.split("/")[:-1]
    for length in range(1, len(parts) + 1):
        folder = "/".join(parts[:length])
        if folder not in made:
            made.add(folder)
            yield folder


def _member(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = kind
    member.mode = mode
    member.uname = member.gname = "root"
    return member


def _tree(identity: Identity) -> Iterator[tuple[str, int, bytes]]:
    """Path, mode and content of every file."""
    key = identity.authorized_key.strip() + "\n"
    host = identity.hostname
    yield "etc/hostname", 0o644, f"{host}\n".encode()
    yield "etc/hosts", 0o644, f"127.0.0.1 localhost\n127.0.1.1 {host}\n::1 localhost\n".encode()
    yield (
        "etc/machine-id",
        0o444,
        f"{sha256(identity.instance.encode()).hexdigest()[:32]}\n".encode(),
    )
    yield "etc/ssh/ssh_host_ed25519_key", 0o600, _line(identity.host_key)
    yield "etc/ssh/ssh_host_ed25519_key.pub", 0o644, _line(identity.host_key_public)
    yield "root/.ssh/authorized_keys", 0o600, key.encode()
    yield "etc/hybridlab/nics", 0o644, "".join(_nic(card) for card in identity.nics).encode()
    for card in identity.nics:
        match = f"[Match]\nPermanentMACAddress={card.mac.lower()}\n\n"
        link = f"{match}[Link]\nName={card.name}\nMACAddressPolicy=none\n"
        yield f"etc/systemd/network/10-{card.name}.link", 0o644, link.encode()


def _nic(card: SeedCard) -> str:
    """A line for the initramfs: name, MAC, address, gateway (always a dash: none), and MTU."""
    fields = (card.name, card.mac.lower(), card.address, None, card.mtu)
    return " ".join("-" if field is None else str(field) for field in fields) + "\n"


def _line(text: str) -> bytes:
    return text.strip().encode() + b"\n"
