"""Commands of the pages are run, and their output compared with what the pages quote.

All of a tutorial, and on other pages the blocks called ``console``. In a quoted output a line
``...`` stands for any lines, and ``…`` for any text in a line. Times, sizes, rates, numbers of
packets, ports of probes and the width of columns may differ, and the first line, which names the
provider, may be left out. ``# exits 1`` after a command is its exit code; the default is 0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = "first-lab"
ROOT = Path(__file__).parents[2]
PAGES = [
    pytest.param(page, marks=() if page.stem == QUICK else pytest.mark.slow, id=page.stem)
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if "```console\n" in page.read_text(encoding="utf-8")
]
BLOCK = re.compile(
    r'^```(console|yaml title="(?P<file>[^"]+)")\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
COMMAND = re.compile(
    r"^\$ (?P<line>.*?)(  # exits (?P<code>\d+))?\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE
)
PROVIDER = "netns: network namespaces on this machine"
FIGURE = re.compile(r"\d+(\\\.\d+)?(\\)? (s|ms|MiB|Mbit|packets|out|in)\b")
PORT = re.compile(r"(?<=:)\d{5}(?=\\ >)")


def narrow(text: str) -> str:
    """With one space between columns, and before a number."""
    return re.sub(r"(?<=\S) +| +(?=\d)", " ", text)


def pattern(output: str) -> re.Pattern[str]:
    """What the real output must match."""
    lines = [
        "(?:.*\n)*?"
        if line == "..."
        else PORT.sub(r"\\d+", FIGURE.sub(r"[\\d.]+ \3", re.escape(line))).replace("…", ".*") + "\n"
        for line in narrow(output).splitlines()
    ]
    return re.compile("".join(lines))


class Shell:
    """A reader's terminal: a directory, and a state of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "HYBRIDLAB_STATE": str(directory / "state"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture
def shell(tmp_path):
    found = Shell(tmp_path)
    yield found
    for lab in (tmp_path / "state/labs").glob("*"):
        found.run(f"lab down {lab.name}")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_prints_what_the_page_quotes(page, shell):
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            (shell.directory / block["file"]).write_text(block["text"], encoding="utf-8")
            continue
        for command in COMMAND.finditer(block["text"]):
            done = shell.run(command["line"])
            seen = f"$ {command['line']}\n{done.stdout}"
            assert done.returncode == int(command["code"] or 0), seen
            printed = done.stdout
            if not command["output"].startswith(PROVIDER):
                printed = re.sub(f"^{PROVIDER}.*\n", "", printed)
            assert pattern(command["output"]).fullmatch(narrow(printed)), (
                f"{seen}\nThe page has:\n{command['output']}"
            )
