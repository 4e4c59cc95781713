"""Code blocks of the pages, and the commands in them.

A block is fenced and names its language. Blocks of ``sh`` (commands) and ``console`` (commands and
their output) are run by ``tests/e2e/test_quoted_commands.py``, unless the line before the fence is
``<!-- not run: REASON -->``. ``<!-- first: COMMAND -->`` runs a command that the reader does not
see. ``# exits 1`` after a command is its exit code; the default is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("images/**/*.md")])
SHELL = frozenset({"sh", "console"})
OTHER = frozenset({"json", "powershell", "python", "text", "toml", "yaml"})
REASONS = frozenset(
    {
        "changes this machine",
        "needs a cluster",
        "needs a hypervisor",
        "needs another program",
        "needs files of the reader's",
        "needs real machines",
        "needs the network",
        "needs Windows",
        "runs until it is stopped",
        "runs the tests",
        "takes minutes",
    }
)
BLOCK = re.compile(
    r"^<!-- first: (?P<first>[^\n]*) -->$|(?:^<!-- not run: (?P<reason>[^\n]*) -->\n)?"
    r'^```(?P<language>\S*)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
CONSOLE = re.compile(r"^\$ (?P<line>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
SCRIPT = re.compile(r"^(?P<line>(?!#)(?:.*\\\n)*.+)\n", re.MULTILINE)
EXIT = re.compile(r"  # exits (\d+)$")


@dataclass(frozen=True)
class Command:
    """A line of a block; its output is None where the page does not quote it."""

    line: str
    code: int = 0
    output: str | None = None


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str | None = None
    """Under which the reader saves it."""
    reason: str | None = None
    """Why it is not run."""

    def commands(self) -> Iterator[Command]:
        if self.language not in SHELL:
            return
        for match in (CONSOLE if self.language == "console" else SCRIPT).finditer(self.text):
            line, output = match["line"], match.groupdict().get("output")
            code = EXIT.search(line)
            yield Command(EXIT.sub("", line), int(code[1]) if code else 0, output)


def blocks(page: Path) -> Iterator[Block]:
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match["first"]:
            yield Block("sh", f"{match['first']}\n")
        else:
            yield Block(match["language"], match["text"], match["file"], match["reason"])


def runnable(page: Path) -> bool:
    return any(not block.reason and next(block.commands(), None) for block in blocks(page))
