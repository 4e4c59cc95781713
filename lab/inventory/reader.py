"""An inventory file, read: from bytes to frozen data, with all that is wrong on the way."""

from __future__ import annotations

from pathlib import Path

from lab.inventory import build, clear, rules, toml
from lab.inventory.inventory import Inventory
from lab.inventory.schema import TOML, InventoryFile
from lab.scenario import reading
from lab.scenario.findings import Finding
from lab.scenario.reading import Kind, StopError
from lab.scenario.shape import Form, shaped

KIND = Kind(
    noun="inventory",
    absent="check the path, or write one after docs/lab.example.toml",
    large="this is more than any inventory needs",
    language="TOML",
)
FORM = Form(InventoryFile, TOML)


def read(path: Path) -> tuple[Inventory | None, tuple[Finding, ...]]:
    """The inventory in a file, as far as it can be made out, and everything wrong with it."""
    try:
        text = reading.decoded(reading.read(path, KIND), KIND)
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
        problems += rules.problems(form.model, broken, _mode, lambda one: _place(path, one))
        inventory = build.inventory(
            form.model,
            str(path.absolute()),
            lambda key: document.position(key).line,
            lambda one: _place(path, one),
        )
    return inventory, (*findings, *(document.finding(problem) for problem in problems))


def _place(inventory: Path, written: str) -> Path:
    """Where a path of the inventory is: at home, absolute, or beside the file."""
    if written.startswith("~/"):
        return Path.home() / written[2:]
    return inventory.absolute().parent / written


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None
