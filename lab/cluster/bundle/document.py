"""The file ``manifest.json``: one spelling of a bundle's manifest, and read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256

from lab._errors import PreflightError
from lab.cluster.bundle import names
from lab.cluster.bundle.manifest import KUBERNETES, Blob, Manifest
from lab.plan.canonical import plain

FILE = "manifest.json"
SHORT = 12
"""Hex digits of a digest in a directory's name, and in messages."""
_PROGRAM = re.compile(r"(cni/)?[A-Za-z0-9][A-Za-z0-9._-]*")
_HEX = re.compile(r"[0-9a-f]{64}")
_PATCH = re.compile(r"\d+\.\d+\.\d+")
_AROUND = 40
"""Characters shown of a file from where it differs."""


def settled(manifest: Manifest) -> Manifest:
    """The same manifest with everything in its one order."""
    return Manifest(
        tuple(sorted(manifest.versions)),
        tuple(sorted(manifest.programs, key=lambda one: (one.os, one.name))),
        tuple(sorted(manifest.images, key=lambda one: (one.name, one.os, one.os_version or ""))),
    )


def encoded(manifest: Manifest) -> bytes:
    """The bytes of ``manifest.json``; the same content gives the same bytes."""
    found = json.dumps(plain(settled(manifest)), indent=1, sort_keys=True, ensure_ascii=False)
    return (found + "\n").encode()


def digest(manifest: Manifest) -> str:
    """Hex SHA-256 of those bytes: the bundle's own."""
    return sha256(encoded(manifest)).hexdigest()


def decoded(content: bytes, where: str) -> Manifest:
    """The manifest in a file, if the lab wrote it.

    Parameters
    ----------
    where
        The file, for messages.

    Raises
    ------
    PreflightError
        What is wrong with it, and at which place of the file.

    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  slow, and for few commands

    try:
        found = TypeAdapter(Manifest).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise _foreign(where, f"{place}: {first['msg'].lower()}") from error
    for problem in wrong(found):
        raise _foreign(where, problem)
    own = encoded(found)
    if own != content:
        at = next(
            (n for n, (a, b) in enumerate(zip(own, content, strict=False)) if a != b),
            min(len(own), len(content)),
        )
        line = content[:at].count(b"\n") + 1
        shown = content[at : at + _AROUND].decode(errors="replace")
        raise _foreign(where, f"line {line} is not as the lab writes it, from {shown!r} on")
    return found


def wrong(manifest: Manifest) -> Iterator[str]:
    """What a manifest must not say, a clause each."""
    versions = dict(manifest.versions)
    if not _PATCH.fullmatch(versions.get(KUBERNETES, "")):
        yield f"versions: there is no Kubernetes version such as '1.36.1' in {versions}"
    for component, count in _repeated(name for name, _ in manifest.versions):
        yield f"versions: '{component}' is there {count} times"
    for program in manifest.programs:
        if not _PROGRAM.fullmatch(program.name):
            yield f"programs: '{program.name}' is no name of a program"
    for (os, name), count in _repeated((one.os, one.name) for one in manifest.programs):
        yield f"programs: '{name}' for {os} is there {count} times"
    for image in manifest.images:
        if not names.is_full(image.name):
            yield f"images: '{image.name}' is no full name of an image"
    keys = ((one.name, one.os, one.os_version) for one in manifest.images)
    for (name, os, build), count in _repeated(keys):
        yield f"images: '{name}' for {os}{f' {build}' if build else ''} is there {count} times"
    yield from _wrong_blobs(manifest)


def _wrong_blobs(manifest: Manifest) -> Iterator[str]:
    sizes: dict[str, Blob] = {}
    for blob in manifest.blobs():
        if not _HEX.fullmatch(blob.sha256):
            yield f"'{blob.sha256}' is no SHA-256"
        if blob.size < 0 or sizes.setdefault(blob.sha256, blob) != blob:
            yield f"'{blob.sha256}' cannot have {blob.size} bytes"


def _repeated(keys: Iterator[object]) -> Iterator[tuple[tuple[object, ...], int]]:
    counts: dict[object, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    for key, count in counts.items():
        if count > 1:
            yield (key if isinstance(key, tuple) else (key,)), count


def _foreign(where: str, problem: str) -> PreflightError:
    return PreflightError(
        f"reading the bundle's '{where}'",
        problem,
        "it is damaged, or not the lab's: remove its directory, and make the bundle anew with "
        "'lab bundle create'",
    )
