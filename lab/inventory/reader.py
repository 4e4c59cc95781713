"""Read an inventory file into its model, with every error located by its key.

A rule is a pure function from the file's model to problems. A problem about a stand-in for a broken
part is dropped: the author did not write its value.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from lab.inventory import uri, values
from lab.inventory.inventory import Inventory
from lab.scenario import source
from lab.scenario.findings import (
    Document,
    FileFinding,
    FileKind,
    Key,
    Language,
    Problem,
    nearest,
    quoted,
)
from lab.scenario.source import StopError
from lab.scenario.validation import parse_document
from lab.scenario.values import LABEL, wrong_of

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_UNQUOTED = re.compile(r"""[^=#"']*=[ \t]*(?P<value>[^\s"'\[{#][^#\n]*)""")
_LONG = re.compile(r"""(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){32}""", re.ASCII)
"""A dotted key deeper than any in an inventory: tomllib takes hours for thousands of dots."""
_SYNTAX: tuple[tuple[str, str, str], ...] = (
    ("Cannot overwrite", "this key is defined twice", "keep one of the two"),
    ("Cannot declare", "this table is defined twice", "keep one of the two"),
    ("Duplicate inline table key", "a key in these brackets is set twice", "keep one of the two"),
    ("Cannot mutate", "this table is complete already", "write all its keys in one place"),
    ("after a key", 'this line has no "=" after its key', "write key = value"),
    ("of a table declaration", 'the "[" of this table is not closed', "write [name]"),
    ("Illegal character '\\n'", "the quote opened here is never closed", "close it on this line"),
    ("Unescaped '\\'", "this backslash begins no known escape", "use single quotes instead"),
    ("Expected newline", "only one key fits on a line", "delete the rest, or begin a new line"),
    ("Invalid value", "this is not a value", "write one; text needs quotes"),
)


def parse(text: str) -> dict[str, object]:
    """Parse TOML.

    Raises StopError with the finding that says why it cannot be parsed.
    """
    long = _LONG.search(text)
    if long:
        line = text.count("\n", 0, long.start()) + 1
        message = "this key has more than 32 parts"
        raise StopError(FileFinding((), line, 1, message, "write it with fewer dots"))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StopError(_syntax_finding(str(error), text)) from None
    except RecursionError:
        message = "the brackets in this file are nested too deeply"
        raise StopError(FileFinding((), 0, 0, message, "write it with fewer brackets")) from None
    except ValueError:  # Python's limit on the digits of an integer
        message = "a number in this file has more than 4300 digits"
        raise StopError(FileFinding((), 0, 0, message, "write it with fewer")) from None


def _syntax_finding(error: str, text: str) -> FileFinding:
    rows = text.rstrip("\n").split("\n")
    place = _PLACE.search(error)
    line, col = int(place[1] or len(rows)) if place else 1, int(place[2] or 1) if place else 1
    row = rows[line - 1] if line <= len(rows) else ""
    bare = _UNQUOTED.match(row)
    if bare and error.startswith(("Invalid value", "Expected newline")) and bare.start(1) < col:
        message = "this value is neither a number nor true or false, and has no quotes"
        return FileFinding((), line, bare.start(1) + 1, message, "put it in quotes")
    for part, message, hint in _SYNTAX:
        if part in error.replace("\n", "\\n"):
            return FileFinding((), line, col, message, hint)
    message = f"invalid TOML: {quoted(_PLACE.sub('', error))}"
    return FileFinding((), line, col, message, "correct this line, or put its value in quotes")


def _list_texts(node: object, key: Key = ()) -> Iterator[tuple[Key, str]]:
    """Every scalar as text, for messages."""
    if isinstance(node, dict | list):
        for name, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _list_texts(child, (*key, name))
    else:
        yield key, str(node).lower() if isinstance(node, bool) else str(node)


_SECRETS = "secrets"
_SECRET_NAME = re.compile(r"pass(word|wd|phrase)|secret|token|credential", re.IGNORECASE)
_SECRET_KEYS = ("file", "env")


def take_secrets(tree: dict[str, object]) -> tuple[Problem, ...]:
    """Remove every plain-text secret from the tree; return a problem for each."""
    keys = tuple(_secret_keys(tree))
    for *above, name in keys:
        table: dict[str, object] = tree
        for part in above:
            table = table[str(part)]  # type: ignore[assignment]
        del table[str(name)]
    return tuple(_secret_problem(key) for key in keys)


def _secret_problem(key: Key) -> Problem:
    name = key[1] if key[0] == _SECRETS and len(key) > 1 else str(key[-1]).replace("_", "-")
    message = "this is a secret in plain text"
    hint = (
        f"put it into a file of mode 0600, and write [secrets.{name}] with "
        'file = "/path/of/it", or env = "VARIABLE"; then change it: it may have been read'
    )
    return Problem(key, message, hint)


def _secret_keys(tree: dict[str, object]) -> Iterator[Key]:
    for name, value in tree.items():
        if name != _SECRETS:
            yield from _named_like_secrets(name, value, ())
        elif not isinstance(value, dict):
            yield (name,)
        else:
            for secret, parts in value.items():
                if not isinstance(parts, dict):
                    yield (name, secret)
                    continue
                for key in parts:
                    if key not in _SECRET_KEYS and not nearest(key, (*_SECRET_KEYS, "environment")):
                        yield (name, secret, key)


def _named_like_secrets(name: str, value: object, above: Key) -> Iterator[Key]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _named_like_secrets(key, child, (*above, name))
    elif _SECRET_NAME.search(name):
        yield (*above, name)


def _resolve_paths(file: Inventory, path: Path, text: str) -> Inventory:
    """The inventory with names and lines of its hypervisors, and absolute paths."""
    return file.replace(
        hypervisors={
            name: hypervisor.replace(
                name=name,
                storage=hypervisor.storage
                if "storage" in hypervisor.model_fields_set
                else file.storage.path,
                line=_line(name, text),
            )
            for name, hypervisor in file.hypervisors.items()
        },
        cache=file.cache and _place(path, file.cache),
        images={
            name: image.replace(url=str(_place(path, image.path)), path=None)
            if image.path
            else image
            for name, image in file.images.items()
        },
        secrets={
            name: secret.replace(file=secret.file and _place(path, secret.file))
            for name, secret in file.secrets.items()
        },
        path=str(path.absolute()),
    )


def _line(hypervisor: str, text: str) -> int:
    """The line of the hypervisor's table, or of its key in ``[hypervisors]``; else 1."""
    name = rf"""["']?{re.escape(hypervisor)}["']?"""
    match = re.search(
        rf"""^[ \t]*(\[[ \t]*["']?hypervisors["']?[ \t]*\.[ \t]*{name}|{name}[ \t]*[.=])""",
        text,
        re.MULTILINE,
    )
    return text.count("\n", 0, match.start()) + 1 if match else 1


PRIVATE = 0o077
"""Permission bits that a file with a secret must not have."""


def find_problems(file: Inventory, broken: Collection[Key], path: Path) -> Iterator[Problem]:
    """Every problem that the rules find.

    ``file``: the file's model, with stand-ins for broken parts. ``broken``: key paths of the
    stand-ins and of the problems found so far. ``path``: the inventory file; paths in it are
    relative to its directory.
    """
    problems = (
        *_names(file),
        *_tunnel_ends(file),
        *_find_repeats(file, broken),
        *_check_sources(file),
        *_check_mirrors(file),
        *_check_secrets(file, path),
    )
    yield from (
        problem for problem in problems if not any(_overlap(key, problem.key) for key in broken)
    )


def _overlap(key: Key, other: Key) -> bool:
    """Whether the keys are equal, or one contains the other."""
    return all(a == b for a, b in zip(key, other, strict=False))


def _names(file: Inventory) -> Iterator[Problem]:
    tables = {"hypervisors": [*file.hypervisors], "images": [*file.images]}
    for table, names in {**tables, "secrets": [*file.secrets]}.items():
        for name in names:
            if not re.fullmatch(LABEL, name):
                message = f"{quoted(name)} is not a valid name"
                hint = "use a-z, 0-9 and -, beginning and ending with a letter or a digit"
                yield Problem((table, name), message, hint)


def _tunnel_ends(file: Inventory) -> Iterator[Problem]:
    if len(file.hypervisors) == 1:
        return
    for name, hypervisor in file.hypervisors.items():
        if hypervisor.address is None and uri.parse(hypervisor.uri).host is None:
            message = f"hypervisor {quoted(name)} is one of several and has no address"
            hint = 'add address = "192.0.2.10", where the other hypervisors reach it'
            yield Problem(("hypervisors", name), message, hint)


def _find_repeats(file: Inventory, broken: Collection[Key]) -> Iterator[Problem]:
    for field, shared in (("uri", "the same hypervisor"), ("address", "the same address")):
        first: dict[object, str] = {}
        for name, hypervisor in file.hypervisors.items():
            key = ("hypervisors", name, field)
            value = getattr(hypervisor, field)
            if value is None or key in broken:
                continue
            other = first.setdefault(uri.place(value) if field == "uri" else value, name)
            if other != name:
                message = f"{quoted(value)} is {shared} as that of {quoted(other)}"
                yield Problem(key, message, "every hypervisor has its own")


def _check_sources(file: Inventory) -> Iterator[Problem]:
    for name, image in file.images.items():
        if image.url and image.path:
            message = f'image {quoted(name)} has both "url" and "path"'
            yield Problem(("images", name, "path"), message, "keep one of the two")
        elif not image.url and not image.path and not image.sha256:
            message = f'image {quoted(name)} has neither "url" nor "path"'
            yield Problem(("images", name), message, 'add "url" or "path"')


def _check_mirrors(file: Inventory) -> Iterator[Problem]:
    for address in file.mirrors:
        wrong = wrong_of(values.url, address)
        if wrong:
            yield Problem(("mirrors", address), *wrong)


def _check_secrets(file: Inventory, inventory: Path) -> Iterator[Problem]:
    for name, secret in file.secrets.items():
        key = ("secrets", name)
        if secret.file and secret.environment:
            message = f'secret {quoted(name)} has both "file" and "env"'
            yield Problem((*key, "env"), message, "keep one of the two")
        elif not secret.file and not secret.environment:
            message = f"secret {quoted(name)} has no source"
            yield Problem(key, message, 'add "file" or "env"')
        elif secret.file:
            path = _place(inventory, secret.file)
            bits = _mode_of(path)
            if bits is not None:
                yield from _check_secret_file((*key, "file"), str(secret.file), path, bits)


def _check_secret_file(key: Key, written: str, path: Path, bits: int) -> Iterator[Problem]:
    if not stat.S_ISREG(bits):
        message = f"{quoted(written)} is not a file"
        yield Problem(key, message, "name the file that holds the secret")
    elif bits & PRIVATE:
        message = f"{quoted(written)} can be read by others: its mode is {stat.S_IMODE(bits):04o}"
        yield Problem(key, message, f"chmod 600 '{path}'")


def as_toml(value: object) -> str:
    """Format a value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {as_toml(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


KIND = FileKind(
    noun="inventory",
    language=Language(
        name="TOML",
        mapping="table",
        assign=" = ",
        listing='write it in brackets, such as ["a", "b"]',
        written=as_toml,
    ),
    absent="check the path, or write one after 'lab inventory example'",
    large="no inventory needs this much",
    entries={"hypervisors": "hypervisor", "images": "image", "secrets": "secret"},
)


def read(
    path: Path, look: Callable[[int], None]
) -> tuple[Inventory | None, tuple[FileFinding, ...]]:
    """The inventory, with stand-ins for broken parts, and all findings; None if it is unreadable.

    ``look`` is called with the open file's descriptor before it is read.
    """
    try:
        text = source.decode(source.read_bytes(path, KIND, look), KIND)
        tree = parse(text)
    except StopError as stop:
        return None, (stop.finding,)
    problems = [*take_secrets(tree)]
    document = Document(value=tree, texts=dict(_list_texts(tree)))
    form = parse_document(document, Inventory, KIND)
    problems += form.problems
    inventory = None
    if form.model is not None:
        broken = {*form.tainted, *(problem.key for problem in problems)}
        problems += find_problems(form.model, broken, path)
        inventory = _resolve_paths(form.model, path, text)
    return inventory, tuple(
        FileFinding(problem.key, 0, 0, problem.what, problem.hint) for problem in problems
    )


def _place(inventory: Path, written: Path) -> Path:
    """Resolve a path in the inventory: in the home directory, absolute, or relative to the file."""
    return inventory.absolute().parent / written.expanduser()


def _mode_of(path: Path) -> int | None:
    """Type and permissions of a file (``st_mode``); None if it does not exist."""
    try:
        return path.stat().st_mode
    except OSError:
        return None
