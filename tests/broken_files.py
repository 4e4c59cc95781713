"""Tables of broken files: each as its edits of one good file, and what loading it must print.

    == count-is-zero
    19 |    count: 0
    > 19:12: "count" cannot be the number 0; write a whole number from 1 to 1000

``19 |`` replaces a line, ``19-22 |`` several (without ``|`` it deletes them), ``20+ |`` inserts
before line 20; ``|`` alone goes on. What comes before the first ``==`` is the good file. A file
beside the table, ``NAME`` with the ending of such files, is the case's text itself. After a wanted
change of the words, see :mod:`golden_files`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from golden_files import REGENERATE

EDIT = re.compile(r"(?:(\d+)(?:-(\d+)|(\+))? ?)?(?:\|(.*))?")


@dataclass(frozen=True)
class BrokenFile:
    """One case: ``data`` is its file, ``findings`` what the table says is wrong with it."""

    name: str
    data: bytes
    findings: tuple[str, ...]

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        path.write_bytes(self.data)
        return path


@dataclass(frozen=True)
class BrokenFiles:
    """The table at ``path``, of files called ``NAME`` and ``ending``."""

    path: Path
    ending: str
    kind: str

    def read(self) -> dict[str, BrokenFile]:
        good, *cases = re.split(r"^== ", self.path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        damaged = [self._case(good.splitlines(), case.splitlines()) for case in cases]
        return {case.name.removesuffix(self.ending): case for case in damaged}

    def _case(self, good: list[str], case: list[str]) -> BrokenFile:
        name = case[0] + self.ending
        findings = tuple(
            f"{name}:{'' if line[2].isdigit() else ' '}{line[2:]}"
            for line in case[1:]
            if line.startswith("> ")
        )
        whole = self.path.parent / name
        if whole.exists():
            return BrokenFile(name, whole.read_bytes(), findings)
        edits = [line for line in case[1:] if not line.startswith("> ")]
        data = "".join(f"{line}\n" for line in edited(good, edits)).encode()
        return BrokenFile(name, data, findings)

    def printed(self, name: str, findings: tuple[str, ...]) -> str:
        """The text that an error of such a file is."""
        count = f"{len(findings)} error{'s' if len(findings) != 1 else ''}"
        return "\n".join((*findings, f'reading {self.kind} "{name}": {count}'))

    def check(self, case: BrokenFile, said: str) -> None:
        if said != self.printed(case.name, case.findings) and REGENERATE:
            self._replace_findings(case, said)
            pytest.fail(f"wrote {case.name} in {self.path}; run again without LAB_REGENERATE")
        assert said == self.printed(case.name, case.findings)
        assert case.findings
        places = [place(case.name, finding) for finding in case.findings]
        assert places == sorted(places)

    def _replace_findings(self, case: BrokenFile, said: str) -> None:
        head, *cases = re.split(r"^(?=== )", self.path.read_text("utf-8"), flags=re.MULTILINE)
        for at, one in enumerate(cases):
            if one.splitlines()[0] == f"== {case.name.removesuffix(self.ending)}":
                edits = re.sub(r"^> .*\n", "", one, flags=re.MULTILINE)
                findings = said.splitlines()[:-1]
                cases[at] = edits + "".join(
                    f"> {finding.removeprefix(f'{case.name}:').lstrip()}\n" for finding in findings
                )
        self.path.write_text("".join((head, *cases)), encoding="utf-8")


def place(name: str, finding: str) -> tuple[int, int]:
    """Where a finding of ``name`` is, (0, 0) if it names a key; it has a hint after a semicolon."""
    match = re.fullmatch(rf"{re.escape(name)}:(?:(\d+):(\d+):| [\w. :/-]+:) (.+); (.+)", finding)
    assert match, finding
    return int(match[1] or 0), int(match[2] or 0)


def edited(good: list[str], edits: list[str]) -> Iterator[str]:
    at = 0
    for edit in edits:
        match = EDIT.fullmatch(edit)
        assert match, edit
        first, last, inserts, text = match.groups()
        if first:
            yield from good[at : int(first) - 1]
            at = int(first) - 1 if inserts else int(last or first)
        if text is not None:
            yield text
    yield from good[at:]
