"""The agent as one file: the product's own modules that it needs, and no others.

The closure is found by reading the imports, so that it is right by itself when they change.
"""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

_AGENT = "lab.providers.node.agent"
_BY_PATH = ("lab.providers.netns.holder", "lab.providers.netns.responder")
"""Programs that the agent starts by their path, which no import tells of."""
_MAIN = "lab.providers.node.bootstrap"
_PACKAGE = "lab"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""Of a ZIP archive; the same content is the same file at any time."""
_DIGEST_LETTERS = 16


_MAKING = Lock()


@dataclass(frozen=True, slots=True)
class Archive:
    """The file, and the name it goes by."""

    content: bytes
    digest: str
    """Of what is in it, whatever library has packed it."""


def build() -> Archive:
    """The archive of this version of the product; made once, for whichever thread asks first.

    One at a time: CPython 3.11 cannot parse in several threads (python/cpython#106905).
    """
    with _MAKING:
        return _built()


@cache
def _built() -> Archive:
    files = {"__main__.py": _source(_MAIN).read_bytes()}
    for module in closure():
        path = _source(module)
        name = module.replace(".", "/")
        files[f"{name}/__init__.py" if path.name == "__init__.py" else f"{name}.py"] = (
            path.read_bytes()
        )
    whole = hashlib.sha256()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
            whole.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return Archive(packed.getvalue(), whole.hexdigest()[:_DIGEST_LETTERS])


def closure() -> tuple[str, ...]:
    """Every module of the product that the agent can come to import, in order of their names."""
    known: set[str] = set()
    waiting = [_AGENT, *_BY_PATH]
    while waiting:
        module = waiting.pop()
        if module not in known:
            known.add(module)
            waiting += _packages(module)
            waiting += _imported(module)
    return tuple(sorted(known))


def _packages(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts)))


def _imported(module: str) -> Iterator[str]:
    for node in _statements(ast.parse(_source(module).read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if _is_ours(name))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every part of a module but those that are for type checkers alone."""
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _statements(child)


def _is_ours(name: str) -> bool:
    if name.partition(".")[0] != _PACKAGE:
        return False
    parent, _, last = name.rpartition(".")
    if not parent:
        return True
    directory = _source(parent).parent
    package = _source(parent).name == "__init__.py"
    return package and (
        (directory / f"{last}.py").is_file() or (directory / last / "__init__.py").is_file()
    )


@cache
def _source(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None, f"no module '{module}'"
    assert spec.origin is not None, f"no file of '{module}'"
    return Path(spec.origin)
