"""Commands of the pages are run, and their output compared with what the pages quote.

Each page is read from the beginning, in a copy of the repository, with a home and a state of its
own. In a quoted output a line ``...`` stands for any lines, and ``…`` for any text in a line.
Times, sizes, rates, numbers of packets, ports of probes and the width of columns may differ, and
the first line, which names the provider, may be left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest

PAGES = [
    pytest.param(
        page,
        marks=pytest.mark.slow,
        id=str(page.relative_to(pages.ROOT).with_suffix("")),
    )
    for page in filter(pages.runnable, pages.PAGES)
]
PROVIDER = "netns: network namespaces on this machine"
FIGURE = re.compile(r"\d[\d,]*(\\\.\d+)?(\\)? (s|ms|MiB|Mbit|packets|out|in)\b")
PORT = re.compile(r"(?<=:)\d{5}(?=\\ >)")
PYTHON = f"""#!/bin/sh
# The tests' own Python; it makes no environment anew and fetches nothing
case "$*" in
*"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*"-m pip"*) ln -sf {Path(sys.executable).parent}/lab .venv/bin/lab ;;
*) exec {sys.executable} "$@" ;;
esac
"""


def narrow(text: str) -> str:
    """With one space between columns, and before a number."""
    return re.sub(r"(?<=\S) +| +(?=\d)", " ", text)


def pattern(output: str) -> re.Pattern[str]:
    """What the real output must match."""
    lines = [
        "(?:.*\n)*?"
        if line == "..."
        else PORT.sub(r"\\d+", FIGURE.sub(r"[\\d.,]+ \3", re.escape(line))).replace("…", ".*")
        + "\n"
        for line in narrow(output).splitlines()
    ]
    return re.compile("".join(lines))


class Shell:
    """A reader's terminal in a checkout."""

    def __init__(self, directory: Path) -> None:
        self.checkout = directory / "hybridlab"
        self.state = directory / "state"
        listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        files = subprocess.run(listed, cwd=pages.ROOT, capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            if (pages.ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(pages.ROOT / name, self.checkout / name)
        python = directory / "python"
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)
        self.environment = {
            **os.environ,
            "BROWSER": "true",  # shows nothing, and succeeds
            "HOME": str(directory / "home"),
            "HYBRIDLAB_STATE": str(self.state),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHON": str(python),
            "SETUP": "0",
            "XDG_CACHE_HOME": str(directory / "home/.cache"),
        }

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.checkout,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def settled(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line, up to three times while a busy machine makes cells flaky."""
        done = self.run(line)
        for _ in range(2):
            if re.search(r"\d flaky", done.stdout):
                done = self.run(line)
        return done


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    for lab in (shell.state / "labs").glob("*"):
        shell.run(f"lab down {lab.name}")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_has_the_documented_result(page, shell):
    for block in pages.blocks(page):
        if block.file:
            file = shell.checkout / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        if block.reason:
            continue
        for command in block.commands():
            done = shell.settled(command.line)
            text = f"$ {command.line}\n{done.stdout}"
            assert done.returncode == command.code, text
            if command.output is None:
                continue
            printed = done.stdout
            if not command.output.startswith(PROVIDER):
                printed = re.sub(f"^{PROVIDER}.*\n", "", printed)
            assert pattern(command.output).fullmatch(narrow(printed)), (
                f"{text}\nThe page has:\n{command.output}"
            )
