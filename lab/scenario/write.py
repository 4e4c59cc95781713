"""A scenario as the text of a file: what :mod:`lab.scenario.loader` reads back as the same."""

from __future__ import annotations

import json

from lab.scenario.scenario import Scenario

_LEFT_OUT: tuple[object, ...] = (None, [], {})


def to_yaml(scenario: Scenario, *comment: str) -> str:
    """The file, with those lines of comment at its head.

    Every value is written in JSON's form, which YAML takes as it is, one key of the top and one
    node a line; a text is always in quotes, so that no version becomes a number.
    """
    lines = [f"# {_one_line(line)}" if line else "#" for line in comment]
    document = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key, value in document.items():
        if value in _LEFT_OUT:
            continue
        if isinstance(value, list):
            lines += [f"{key}:", *(f"  - {_inline(entry)}" for entry in value)]
        elif isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {_inline(one)}" for name, one in value.items())]
        else:
            lines.append(f"{key}: {_inline(value)}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """What can stand in a comment: nothing that ends a line, or that no such file may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _inline(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
