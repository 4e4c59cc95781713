"""Names of container images, as ``docker`` and ``ctr`` write them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_HUB = "docker.io"
_LONGEST = 60
"""Characters; Joliet's names have 64 with the ending."""
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_FULL = re.compile(
    rf"(?P<host>[a-zA-Z0-9.-]+(?::\d+)?)/(?P<path>{_PATH}(?:/{_PATH})*):(?P<tag>\w[\w.-]{{0,127}})"
)
"""The grammar of distribution/reference, with a tag and without a digest."""


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of an image's full name."""

    host: str
    """The registry's: ``registry.k8s.io``."""
    path: str
    """``coredns/coredns``."""
    tag: str


def parse(name: str) -> Name | None:
    """The parts of a full name; None where it is not one."""
    found = _FULL.fullmatch(name)
    return Name(found["host"], found["path"], found["tag"]) if found else None


def is_full(name: str) -> bool:
    """Whether a name says registry, path and tag: ``registry.k8s.io/pause:3.10.2``."""
    found = parse(name)
    return found is not None and _is_host(found.host)


def full(name: str) -> str | None:
    """The full name of a familiar one: ``busybox`` is ``docker.io/library/busybox:latest``.

    None where it cannot be one.
    """
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"{_HUB}/library/{name}"
    elif not _is_host(first):
        name = f"{_HUB}/{name}"
    if ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return name if is_full(name) else None


def file(name: str) -> str:
    """What a file of that image is called: ``registry.k8s.io_pause_3.10.2.tar``.

    A name that is too long for Joliet loses its middle to a hash.
    """
    plain = name.replace("/", "_").replace(":", "_")
    if len(plain) > _LONGEST:
        plain = f"{plain[: _LONGEST - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
    return f"{plain}.tar"


def _is_host(first: str) -> bool:
    return "." in first or ":" in first or first == "localhost"
