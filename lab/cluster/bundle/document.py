"""The file ``manifest.json``: one spelling of a bundle's manifest, and read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256

from lab._errors import PreflightError
from lab.cluster.bundle import names
from lab.cluster.bundle.manifest import KUBERNETES, Blob, Manifest
from lab.plan.canonical import plain

FILE = "manifest.json"
SHORT = 12
"""Hex digits of a digest in a directory's name, and in messages."""
PROGRAM = re.compile(r"(cni/)?[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
"""Names of programs; on a medium they have 64 characters."""
COMPONENT = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
VERSION = re.compile(r"[0-9][A-Za-z0-9.+-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")
PATCH = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}")
"""Versions of Kubernetes."""
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
    yield from _wrong_versions(dict(manifest.versions))
    for component, count in _repeated(name for name, _ in manifest.versions):
        yield f"versions: '{component}' is there {count} times"
    for program in manifest.programs:
        if not PROGRAM.fullmatch(program.name):
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
    for text in _words(manifest):
        if not text.isprintable():
            yield f"{text[:_AROUND]!a} cannot be printed"


def _wrong_versions(versions: Mapping[str, str]) -> Iterator[str]:
    if not PATCH.fullmatch(versions.get(KUBERNETES, "")):
        yield f"versions: there is no Kubernetes version such as '1.36.1' in {versions}"
    for name, version in versions.items():
        if not (COMPONENT.fullmatch(name) and VERSION.fullmatch(version)):
            yield f"versions: {name!a} {version[:_AROUND]!a} is no component and its version"


def _wrong_blobs(manifest: Manifest) -> Iterator[str]:
    sizes: dict[str, Blob] = {}
    for blob in manifest.blobs():
        if not _HEX.fullmatch(blob.sha256):
            yield f"'{blob.sha256}' is no SHA-256"
        if blob.size < 0 or sizes.setdefault(blob.sha256, blob) != blob:
            yield f"'{blob.sha256}' cannot have {blob.size} bytes"


def _words(manifest: Manifest) -> Iterator[str]:
    """What is not looked at otherwise, and is shown to the user."""
    for program in manifest.programs:
        yield from (program.component, program.source)
    for image in manifest.images:
        yield from (image.source, image.os_version or "")
        yield from (layer.media_type for layer in image.layers)


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
