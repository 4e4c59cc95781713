"""What is printed: the story on standard error, and results on standard output."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from unit.reports.made_runs import made_run

import lab
from lab._errors import UsageError
from lab._log import clean, say
from lab.reports.terminal import show


class Terminal(StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x9b31m"


# SECURITY.md: Control characters do not reach the terminal.
def test_words_of_strangers_do_not_paint_the_terminal(capsys):
    say("it says '\x1b[2J\x1b]0;owned\x07\r\x9b31m'\n  try:\tthis, \u00e4")
    told = capsys.readouterr().err
    assert told == "it says '\\x1b[2J\\x1b]0;owned\\x07\\x0d\\x9b31m'\n  try:\tthis, \u00e4\n"


# SECURITY.md: Control characters do not reach the terminal.
@pytest.mark.parametrize(
    ("mark", "shown"),
    [
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\u200b", "\\u200b"),
        ("\u2028", "\\u2028"),
        ("\ufeff", "\\ufeff"),
        ("\xad", "\\xad"),
    ],
)
def test_what_hides_or_turns_words_round_is_shown_by_its_number(mark, shown):
    assert clean(f"a{mark}b \u00e4\u65e5") == f"a{shown}b \u00e4\u65e5"


def test_what_is_clean_can_stand_in_a_junit_file():
    said = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code <= 0xDFFF)
    told = ET.tostring(ET.Element("error", {"message": clean(said)}), encoding="unicode")
    assert "\\ufffe\\uffff" in ET.fromstring(told).attrib["message"]


def test_what_an_error_was_about_is_one_line():
    error = UsageError("choosing the provider 'x\nforged'", "there is none")
    assert str(error) == "choosing the provider 'x\\x0aforged': there is none"


def test_line_ends_and_tabs_stay_as_they_are():
    assert clean("one\r\ntwo\tthree\n") == "one\r\ntwo\tthree\n"


# SECURITY.md: Control characters do not reach the terminal.
@pytest.mark.parametrize("stream", [StringIO(), Terminal()], ids=["plain", "rich"])
def test_words_of_strangers_in_a_summary_do_not_paint_the_terminal(stream):
    run = made_run("dead-node", families=("hairpin",))
    results = tuple(
        replace(result, detail=f"{result.detail} {HOSTILE}", repeat="x\nforged")
        for result in run.results
    )
    run = replace(run, results=results, lab=f"{HOSTILE}\nforged", banner=HOSTILE)
    show(run, HOSTILE, stream, {"TERM": "xterm"})
    told = stream.getvalue()
    assert "\\x1b]0;owned\\x07" in told
    assert "forged" in told
    assert "\nforged" not in told
    assert not {"\x07", "\x9b", "\r"} & set(told)
    assert "\x1b]" not in told
    assert "\x1b[2J" not in told


def _prints(path: Path) -> Iterator[str]:
    """Calls that write to standard output past :func:`lab.cli.output.echo`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"click.echo", "click.secho", "print", "sys.stdout.write"} or (
                called.startswith("sys.stdout.buffer")
            ):
                yield f"{path.name}:{node.lineno}: {called}"


# SECURITY.md: Control characters do not reach the terminal.
def test_every_command_prints_by_the_one_that_cleans():
    root = Path(lab.__file__).parent
    paths = [one for path in sorted((root / "cli").glob("*.py")) for one in _prints(path)]
    assert [one for one in paths if not one.startswith("output.py:")] == []
