"""What the values of an inventory mean together.

A rule is a pure function from the file's model to problems. A problem about a part that stands
in for something broken is dropped: it would speak of values that the author never wrote.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from lab.inventory import uri, values
from lab.inventory.schema import InventoryFile
from lab.scenario.findings import Key, Problem, quoted
from lab.scenario.values import LABEL, wrong_of

PRIVATE = 0o077
"""What others than the owner may do with a file that holds a secret: none of it."""

Mode = Callable[[Path], int | None]
"""Permissions of a file and what it is (``st_mode``), None where there is none."""


def problems(
    file: InventoryFile, broken: Collection[Key], mode: Mode, place: Callable[[str], Path]
) -> Iterator[Problem]:
    """Every problem that the rules find.

    Parameters
    ----------
    file
        The file, with stand-ins where it is broken.
    broken
        Key paths of the stand-ins, and of all else that is wrong already.
    mode
        Looks at a file.
    place
        Where a path of the inventory is.

    """
    found = (
        *_names(file),
        *_tunnel_ends(file),
        *_repeats(file, broken),
        *_sources(file),
        *_mirrors(file),
        *_secrets(file, mode, place),
    )
    yield from (one for one in found if not any(_touches(key, one.key) for key in broken))


def _touches(one: Key, other: Key) -> bool:
    """Whether one key is the other, or a part of it."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _names(file: InventoryFile) -> Iterator[Problem]:
    tables = {"hypervisors": [*file.hypervisors], "images": [*file.images]}
    for table, names in {**tables, "secrets": [*file.secrets]}.items():
        for name in names:
            if not re.fullmatch(LABEL, name):
                what = f"{quoted(name)} is no name"
                cure = "use a-z, 0-9 and -, beginning and ending with a letter or a digit"
                yield Problem((table, name), what, cure, at_key=True)


def _tunnel_ends(file: InventoryFile) -> Iterator[Problem]:
    if len(file.hypervisors) == 1:
        return
    for name, one in file.hypervisors.items():
        if one.address is None and uri.parse(one.uri).host is None:
            what = f"hypervisor {quoted(name)} is one of several and has no address"
            cure = 'add address = "192.0.2.10", where the other hypervisors reach it'
            yield Problem(("hypervisors", name), what, cure, at_key=True)


def _repeats(file: InventoryFile, broken: Collection[Key]) -> Iterator[Problem]:
    for field, words in (("uri", "the same hypervisor"), ("address", "the same address")):
        first: dict[object, str] = {}
        for name, one in file.hypervisors.items():
            key = ("hypervisors", name, field)
            value = getattr(one, field)
            if value is None or key in broken:
                continue
            other = first.setdefault(uri.place(value) if field == "uri" else value, name)
            if other != name:
                what = f"{quoted(value)} is {words} as that of {quoted(other)}"
                yield Problem(key, what, "every hypervisor has its own")


def _sources(file: InventoryFile) -> Iterator[Problem]:
    for name, image in file.images.items():
        if image.url and image.path:
            what = f'image {quoted(name)} has both "url" and "path"'
            yield Problem(("images", name, "path"), what, "keep one of the two", at_key=True)
        elif not image.url and not image.path and not image.sha256:
            what = f"image {quoted(name)} says nothing"
            yield Problem(("images", name), what, 'add "url" or "path"', at_key=True)


def _mirrors(file: InventoryFile) -> Iterator[Problem]:
    for address in file.mirrors:
        found = wrong_of(values.url, address)
        if found:
            yield Problem(("mirrors", address), *found, at_key=True)


def _secrets(file: InventoryFile, mode: Mode, place: Callable[[str], Path]) -> Iterator[Problem]:
    for name, secret in file.secrets.items():
        key = ("secrets", name)
        if secret.file and secret.env:
            what = f'secret {quoted(name)} has both "file" and "env"'
            yield Problem((*key, "env"), what, "keep one of the two", at_key=True)
        elif not secret.file and not secret.env:
            what = f"secret {quoted(name)} says not where it is"
            yield Problem(key, what, 'add "file" or "env"', at_key=True)
        elif secret.file:
            path = place(secret.file)
            bits = mode(path)
            if bits is not None:
                yield from _readable((*key, "file"), secret.file, path, bits)


def _readable(key: Key, written: str, path: Path, bits: int) -> Iterator[Problem]:
    if not stat.S_ISREG(bits):
        yield Problem(key, f"{quoted(written)} is no file", "name the file that holds the secret")
    elif bits & PRIVATE:
        what = f"{quoted(written)} can be read by others: its mode is {stat.S_IMODE(bits):04o}"
        yield Problem(key, what, f"chmod 600 '{path}'")
