"""From a document to the checked models, and a tree mended where it is broken.

So that every error comes at once, each broken part is replaced by a stand-in (a default, or the
first example of its field) and named as tainted: the rules that read it are not run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lab.scenario.dialect import YAML, Dialect
from lab.scenario.document import Document, look
from lab.scenario.findings import Key, Problem
from lab.scenario.json_schema import Schema, of
from lab.scenario.published import is_required, stand_in
from lab.scenario.schema import ScenarioFile
from lab.scenario.words import Words

Model = TypeVar("Model", bound=BaseModel)

_ROUNDS = 4
"""Times a tree is mended and checked again. Two are enough unless a stand-in is invalid."""


@dataclass(frozen=True)
class Form(Generic[Model]):
    """The form of a kind of file."""

    model: type[Model]
    dialect: Dialect


SCENARIO = Form(ScenarioFile, YAML)


@dataclass(frozen=True)
class Shaped(Generic[Model]):
    """A document in its shape."""

    model: Model | None
    """None where the document is too broken to be mended."""
    problems: tuple[Problem, ...]
    tainted: frozenset[Key]
    """Parts of ``model`` that the author did not write."""


def shaped(document: Document, form: Form[Model]) -> Shaped[Model]:
    """The document as a model, with every problem of shape and of single values."""
    tree = copy.deepcopy(document.value)
    problems: list[Problem] = []
    tainted: set[Key] = set()
    empty = [*_nothings(tree, ())]
    if empty:
        published = of(form.model)
        words = Words(published, document, form.dialect)
        problems += [words.nothing(key) for key in empty]
        tainted |= {*empty}
        _mend(tree, tainted, published)
    for _ in range(_ROUNDS):
        try:
            return Shaped(form.model.model_validate(tree), (*problems,), frozenset(tainted))
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        published = of(form.model)
        problems += Words(published, document, form.dialect).problems(errors)
        tainted |= {error["loc"] for error in errors if not _is_unknown(error)}
        _mend(tree, {error["loc"] for error in errors}, published)
    return Shaped(None, (*problems,), frozenset(tainted))


def _is_unknown(error: ErrorDetails) -> bool:
    """Whether an unknown key was found: no rule reads it, so none misses it."""
    return error["type"] == "extra_forbidden"


def _nothings(node: object, key: Key) -> Iterator[Key]:
    """Every key or entry that has no value."""
    children: dict[str | int, object] = {}
    if isinstance(node, (dict, list)):
        children = dict(node.items() if isinstance(node, dict) else enumerate(node))
    for name, child in children.items():
        if child is None:
            yield (*key, name)
        else:
            yield from _nothings(child, (*key, name))


def _mend(tree: object, broken: set[Key], published: Schema) -> None:
    """Put a stand-in at each required key or entry of a list; drop any other key."""
    for key in sorted(broken, key=len):
        parent: Any = look(tree, key[:-1])
        name: Any = key[-1]
        if isinstance(parent, list) or is_required(published, key):
            parent[name] = stand_in(published, key)
        else:
            parent.pop(name, None)
