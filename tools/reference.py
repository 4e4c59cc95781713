"""Write what is made from the code: docs/reference, and the JSON Schema of scenarios.

python tools/reference.py           writes the files
python tools/reference.py --check   exits 1 and names each file that would change
"""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from lab import _errors
from lab.cli import main
from lab.explain.check import checks, kinds
from lab.explain.faults.registry import faults
from lab.inventory.inventory import Inventory
from lab.matrix.cells import families
from lab.scenario.topics import TOPICS
from lab.scenario.validation import schema
from lab.topology.registry import schemas

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reference"
HEADER = "<!-- Written by `make reference`. Change the code, not this page. -->\n\n"
EXIT_CODES = {
    0: "every cell passed, or is a known limit that held",
    1: "cells failed",
    2: "wrong usage or configuration",
    3: "the lab is broken, no cell was chosen, or 'lab explain' could not ask everything",
    4: "this machine cannot do what is asked; nothing was made",
    70: "a bug in `lab` itself; the last line names the log with the traceback",
}
NOT_RUN = {
    "ansible ": "needs another program",
    "git bisect ": "needs files of the reader's",
    "kubectl ": "needs a cluster",
    "lab ansible-inventory ": "needs real machines",
    "lab attach ": "needs a cluster",
    "lab capture overlay worker1 eth0 -o - |": "needs another program",
    "lab capture overlay win1-p1 -o - |": "needs another program",
    "lab check": "needs a cluster",
    "lab detach ": "needs a cluster",
    "lab diff overlay nightly-overlay": "needs files of the reader's",
    "lab graph overlay --format dot |": "needs another program",
    "lab kubeconfig ": "needs a cluster",
    "lab readiness ": "needs a cluster",
    "lab ssh": "needs real machines",
    "lab test prod": "needs a cluster",
    "ssh ": "needs real machines",
}
"""Why tests/e2e/test_quoted_commands.py does not run an example that begins like this."""
FIRST = {
    "lab down": [f"lab up {name}" for name in ("overlay", "services", "kubeinit", "host-gateway")],
    "lab test": ["lab up overlay"],
}
"""Commands that tests/e2e/test_quoted_commands.py runs before the examples of one: their labs."""
Schema = Mapping[str, Any]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def literal(text: str) -> str:
    """Escape text for Markdown."""
    return text.replace("*", r"\*").replace("<", "&lt;")


def first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).replace("``", "`")


def command_pages() -> Iterator[str]:
    yield "# Commands\n"
    yield "`lab COMMAND --help` prints the same. Wherever a command takes a lab, it also takes the"
    yield "scenario file that the lab was made from. See also [make](make.md) and"
    yield "[exit codes](exit-codes.md).\n"
    for group, members in main.GROUPS.items():
        yield f"## {group}\n"
        for name in members:
            command = main.command.get_command(click.Context(main.command), name)
            assert command is not None
            yield from command_section(f"lab {name}", command)


def command_section(words: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=words)
    yield f"### {words}\n"
    for line in FIRST.get(words, ()):
        yield f"<!-- first: {line} -->\n"
    if not isinstance(command, click.Group):
        yield f"`{' '.join((words, *command.collect_usage_pieces(context)))}`\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):  # click keeps the line breaks of such a paragraph
            yield from examples(inspect.cleandoc(paragraph[1:]).splitlines())
        else:
            yield f"{literal(paragraph)}\n"
    options = (param for param in command.params if isinstance(param, click.Option))
    records = (option.get_help_record(context) for option in options)
    if rows := [(f"`{record[0]}`", literal(record[1])) for record in records if record]:
        yield from table(("option", "meaning"), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from command_section(f"{words} {name}", below)


def examples(lines: list[str]) -> Iterator[str]:
    """Blocks of commands, each with the reason why its commands are not run, if they are not."""
    reasons = {
        line: next((why for start, why in NOT_RUN.items() if line.startswith(start)), "")
        for line in lines
    }
    for reason, group in itertools.groupby(lines, reasons.__getitem__):
        if reason:
            yield f"<!-- not run: {reason} -->"
        yield "\n".join(("```sh", *group, "```\n"))


def exit_codes() -> Iterator[str]:
    yield "# Exit codes\n"
    errors: dict[int, list[str]] = {}
    for name, kind in inspect.getmembers(_errors, inspect.isclass):
        if issubclass(kind, _errors.LabError):
            errors.setdefault(kind.exit_code, []).append(f"`{name}`")
    rows = (
        (str(code), meaning, ", ".join(errors.get(code, ())))
        for code, meaning in EXIT_CODES.items()
    )
    yield from table(("code", "meaning", "exceptions of `lab._errors`"), rows)
    yield "Under `make`, every failure exits 2."


def keys(title: str, text: str, root: Schema) -> Iterator[str]:
    yield f"# {title}\n\n{text}\n"
    yield from section(root, "", root["$defs"])


def section(part: Schema, path: str, parts: Mapping[str, Schema]) -> Iterator[str]:
    """Lines of one section of a file, and of the sections inside it."""
    rows, inside = [], []
    for name, key in part.get("properties", {}).items():
        inner, brackets = referred(key, parts)
        where = f"{path}{name}{brackets}"
        meaning = key.get("description") or inner.get("description", "")
        if inner.get("properties") or inner.get("oneOf"):
            inside.append((inner, where))
        given = key if "default" in key else inner
        default = "required" if name in part.get("required", ()) else shown(given.get("default"))
        rows.append((f"`{name}`", literal(meaning), values(key, inner), default))
    if path:
        yield f"## {path.rstrip('.')}\n\n{literal(part.get('description', ''))}\n"
    if rows:
        yield from table(("key", "meaning", "values", "default"), rows)
    for choice in part.get("oneOf", ()):
        kind = choice["properties"]["kind"]["const"]
        others = {name: variant for name, variant in choice["properties"].items() if name != "kind"}
        yield f"### kind: {kind}\n\n{literal(choice['title'])}.\n"
        if others:
            yield from section({**choice, "properties": others}, "", parts)
    for inner, where in inside:
        yield from section(inner, f"{where}.", parts)


def referred(key: Schema, parts: Mapping[str, Schema]) -> tuple[Schema, str]:
    """The section of a key, and the brackets after its name, for a list or free names."""
    for alternative in (key, *key.get("anyOf", ())):
        for brackets, inner in (
            ("", alternative),
            ("[]", alternative.get("items", {})),
            (".NAME", alternative.get("additionalProperties") or {}),
        ):
            if isinstance(inner, dict) and "$ref" in inner:
                return parts[inner["$ref"].rpartition("/")[2]], brackets
    return {}, ""


def values(key: Schema, inner: Schema) -> str:
    """A short description of the values of a key."""
    if "anyOf" in key:
        return ", ".join(
            values(option, inner) for option in key["anyOf"] if option != {"type": "null"}
        )
    if inner:
        return {"array": "list of sections", "object": "sections by name"}.get(
            key.get("type", ""), "section"
        )
    if "enum" in key:
        return ", ".join(f"`{word}`" for word in key["enum"])
    if key.get("type") == "array":
        return f"list of {values(key.get('items', {}), {})}"
    kind = {"boolean": "`true`, `false`", "string": "text"}.get(key.get("type", ""), "") or key.get(
        "type", "any"
    )
    if "minimum" in key:
        upper = f" to {key['maximum']}" if "maximum" in key else " or more"
        kind = f"{key['minimum']}{upper}"
    if kind == "text" and key.get("examples"):
        kind = f"text, as `{key['examples'][0]}`"
    return kind


def shown(default: object) -> str:
    """A default as written in the file; empty if there is none."""
    if default is None or default in ([], {}, ""):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def family_page() -> Iterator[str]:
    yield "# Families of cells\n"
    yield "Parts of [the matrix](matrix.md).\n"
    yield from table(
        ("family", "cells", "a lab has it"),
        (
            (
                f"`{name}`",
                literal(first_paragraph(family.ends.__doc__)),
                "with a services node"
                if family.services_node
                else f"with Services that have {literal(family.needs)}"
                if family.special
                else f"where `-m {name}` or the scenario asks for it"
                if family.on_request
                else "always",
            )
            for name, family in families().items()
        ),
    )


def fault_page() -> Iterator[str]:
    yield "# Faults\n"
    yield "`lab fault LAB NAME` breaks a lab in a known way, and `lab heal LAB` repairs it. See"
    yield "[Explain a failure](../how-to/explain-a-failure.md#break-a-lab-on-purpose).\n"
    rows = (
        (
            f"`{fault.name}`",
            literal(fault.title),
            literal(fault.needs),
            fault.peer or "",
            fault.figures,
        )
        for fault in faults().values()
    )
    yield from table(("fault", "what is broken", "needs", "`--peer`", "figures"), rows)


def check_page() -> Iterator[str]:
    yield "# Checks of explain\n"
    yield "What `lab explain`, `lab test` and `lab status --deep` compare, in this order.\n"
    rows = (
        (
            f"`{type(check).__name__}`",
            literal(first_paragraph(type(check).__doc__)),
            ", ".join(
                f"`{kind.name}`" + (f" (fault `{kind.fault}`)" if kind.fault else "")
                for kind in (kinds()[declared.name] for declared in check.kinds)
            ),
        )
        for check in checks()
    )
    yield from table(("check", "compares", "kinds of differences"), rows)


def topic_page() -> Iterator[str]:
    yield "# What is not modelled\n"
    yield "What clusters have and a lab does not, and what is nearest to it. A scenario that names"
    yield "one of them gets this as the hint of its error.\n"
    for heading, modelled in (("Not modelled", False), ("Under another name", True)):
        yield f"## {heading}\n"
        rows = (
            (literal(topic.name), literal(topic.what), literal(topic.nearest).replace('"', "`"))
            for topic in TOPICS
            if topic.modelled is modelled
        )
        yield from table(("what", "that is", "nearest" if not modelled else "here"), rows)


def pages() -> Mapping[str, Iterable[str]]:
    return {
        "commands.md": command_pages(),
        "exit-codes.md": exit_codes(),
        "scenario-keys.md": keys(
            "Keys of a scenario file",
            "`lab validate FILE` checks a file; `lab schema` prints this as JSON Schema.",
            schema(schemas()),
        ),
        "inventory-keys.md": keys(
            "Keys of an inventory",
            "`lab inventory check` checks `lab.toml`. [An example](../lab.example.toml).",
            Inventory.model_json_schema(),
        ),
        "families.md": family_page(),
        "faults.md": fault_page(),
        "checks.md": check_page(),
        "not-modelled.md": topic_page(),
    }


def files() -> Iterator[tuple[Path, str]]:
    """Yield every file that is generated from the code, with its text."""
    for name, lines in pages().items():
        yield PAGES / name, HEADER + "\n".join(lines).rstrip() + "\n"
    text = json.dumps(schema(schemas()), indent=2)
    yield ROOT / "scenarios/scenario.schema.json", f"{text}\n"


def run(*, check: bool) -> int:
    """Write the files, or print those that differ; return the exit code."""
    stale = []
    for path, text in files():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"not as written from the code: {', '.join(stale)}; run 'make reference'")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(run(check="--check" in sys.argv[1:]))
