"""An inventory file, read: from bytes to frozen data, with all that is wrong on the way.

A rule is a pure function from the file's model to problems. A problem about a part that stands
in for something broken is dropped: it would speak of values that the author never wrote.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from lab.inventory import clear, toml, uri, values
from lab.inventory.inventory import Inventory
from lab.scenario import source
from lab.scenario.findings import Dialect, Document, FileFinding, Key, Problem, quoted
from lab.scenario.shape import Form, shaped
from lab.scenario.source import Kind, StopError
from lab.scenario.values import LABEL, wrong_of

Place = Callable[[Path], Path]
"""Where a path of the inventory is."""


def _placed(file: Inventory, path: Path, document: Document) -> Inventory:
    """The inventory with the names and lines of its hypervisors, and its paths made absolute."""
    storage = file.storage.path
    return file.replace(
        hypervisors={
            name: one.replace(
                name=name,
                storage=one.storage if "storage" in one.model_fields_set else storage,
                line=document.position(("hypervisors", name)).line,
            )
            for name, one in file.hypervisors.items()
        },
        cache=file.cache and _place(path, file.cache),
        images={
            name: image.replace(url=str(_place(path, image.path)), path=None)
            if image.path
            else image
            for name, image in file.images.items()
        },
        secrets={
            name: one.replace(file=one.file and _place(path, one.file))
            for name, one in file.secrets.items()
        },
        path=str(path.absolute()),
    )


PRIVATE = 0o077
"""What others than the owner may do with a file that holds a secret: none of it."""

Mode = Callable[[Path], int | None]
"""Permissions of a file and what it is (``st_mode``), None where there is none."""


def find_problems(
    file: Inventory, broken: Collection[Key], mode: Mode, place: Place
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


def _names(file: Inventory) -> Iterator[Problem]:
    tables = {"hypervisors": [*file.hypervisors], "images": [*file.images]}
    for table, names in {**tables, "secrets": [*file.secrets]}.items():
        for name in names:
            if not re.fullmatch(LABEL, name):
                what = f"{quoted(name)} is no name"
                hint = "use a-z, 0-9 and -, beginning and ending with a letter or a digit"
                yield Problem((table, name), what, hint, at_key=True)


def _tunnel_ends(file: Inventory) -> Iterator[Problem]:
    if len(file.hypervisors) == 1:
        return
    for name, one in file.hypervisors.items():
        if one.address is None and uri.parse(one.uri).host is None:
            what = f"hypervisor {quoted(name)} is one of several and has no address"
            hint = 'add address = "192.0.2.10", where the other hypervisors reach it'
            yield Problem(("hypervisors", name), what, hint, at_key=True)


def _repeats(file: Inventory, broken: Collection[Key]) -> Iterator[Problem]:
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


def _sources(file: Inventory) -> Iterator[Problem]:
    for name, image in file.images.items():
        if image.url and image.path:
            what = f'image {quoted(name)} has both "url" and "path"'
            yield Problem(("images", name, "path"), what, "keep one of the two", at_key=True)
        elif not image.url and not image.path and not image.sha256:
            what = f"image {quoted(name)} says nothing"
            yield Problem(("images", name), what, 'add "url" or "path"', at_key=True)


def _mirrors(file: Inventory) -> Iterator[Problem]:
    for address in file.mirrors:
        found = wrong_of(values.url, address)
        if found:
            yield Problem(("mirrors", address), *found, at_key=True)


def _secrets(file: Inventory, mode: Mode, place: Place) -> Iterator[Problem]:
    for name, secret in file.secrets.items():
        key = ("secrets", name)
        if secret.file and secret.environment:
            what = f'secret {quoted(name)} has both "file" and "env"'
            yield Problem((*key, "env"), what, "keep one of the two", at_key=True)
        elif not secret.file and not secret.environment:
            what = f"secret {quoted(name)} says not where it is"
            yield Problem(key, what, 'add "file" or "env"', at_key=True)
        elif secret.file:
            path = place(secret.file)
            bits = mode(path)
            if bits is not None:
                yield from _readable((*key, "file"), str(secret.file), path, bits)


def _readable(key: Key, written: str, path: Path, bits: int) -> Iterator[Problem]:
    if not stat.S_ISREG(bits):
        yield Problem(key, f"{quoted(written)} is no file", "name the file that holds the secret")
    elif bits & PRIVATE:
        what = f"{quoted(written)} can be read by others: its mode is {stat.S_IMODE(bits):04o}"
        yield Problem(key, what, f"chmod 600 '{path}'")


def as_toml(value: object) -> str:
    """A value as one would write it in TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {as_toml(one)}" for name, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(as_toml(one) for one in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


TOML = Dialect(
    whole="the inventory",
    entries={"hypervisors": "hypervisor", "images": "image", "secrets": "secret"},
    other_entry="entry",
    mapping="table",
    assign=" = ",
    listing='write it in brackets, such as ["a", "b"]',
    written=as_toml,
)
"""Inventory files."""

KIND = Kind(
    noun="inventory",
    absent="check the path, or write one after docs/lab.example.toml",
    large="this is more than any inventory needs",
    language="TOML",
)
FORM = Form(Inventory, TOML)


def read(path: Path) -> tuple[Inventory | None, tuple[FileFinding, ...]]:
    """The inventory in a file, as far as it can be made out, and everything wrong with it."""
    try:
        text = source.decoded(source.read_bytes(path, KIND), KIND)
    except StopError as stop:
        return None, (stop.finding,)
    document, findings = toml.parse(text)
    if document is None:
        return None, findings
    secrets = clear.take_out(document)
    form = shaped(document, FORM)
    problems = [*secrets, *form.problems]
    inventory = None
    if form.model is not None:
        broken = {*form.tainted, *(problem.key for problem in problems)}
        problems += find_problems(form.model, broken, _mode, lambda one: _place(path, one))
        inventory = _placed(form.model, path, document)
    return inventory, (*findings, *(document.finding(problem) for problem in problems))


def _place(inventory: Path, written: Path) -> Path:
    """Where a path of the inventory is: at home, absolute, or beside the file."""
    return inventory.absolute().parent / written.expanduser()


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None
