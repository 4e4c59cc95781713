"""What is decided without a guest: command lines, scripts, CLIXML, where to knock, meanings."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from powershell_syntax import Script
from tables import CASES, named

from lab._errors import UsageError
from lab.shells.shell import Reach, WindowsReach
from lab.windows.shell import (
    SCRIPT_LONGEST,
    command_line,
    decode_clixml,
    encoded_command,
    fits_command_line,
    interactive_script,
    quote,
    sftp_path,
    wrap_script,
)
from lab.windows.step_runner import QUERY
from lab.windows.winrm import WinrmPool, pinned_digest, service_url

CLIXML = sorted((CASES / "clixml").glob("*.in"))
COMMANDS = json.loads((CASES / "command-lines.json").read_text())
WORDS = st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=12)
PIN = "0123456789abcdef" * 4


@pytest.mark.parametrize("path", CLIXML, ids=lambda path: path.stem)
def test_clixml_is_read(path):
    wanted = path.with_suffix(".out").read_bytes().decode()
    assert decode_clixml(path.read_bytes().decode()) == wanted


@given(st.text(max_size=60))
def test_whatever_comes_as_clixml_is_never_an_error(text):
    decode_clixml(f"#< CLIXML\r\n<Objs>{text}</Objs>")


@pytest.mark.parametrize("case", COMMANDS, ids=named)
def test_a_command_line_is_written(case):
    assert command_line(case["command"]).line == case["line"]


def microsoft_c(line: str) -> list[str]:
    """Arguments as the Microsoft C runtime splits them (documented as 'Parsing C command-line
    arguments'), without the program itself."""
    words, word, quoted, begun, i = [], "", False, False, 0
    while i < len(line):
        slashes = 0
        while i < len(line) and line[i] == "\\":
            slashes, i = slashes + 1, i + 1
        if i < len(line) and line[i] == '"':
            word, begun = word + "\\" * (slashes // 2), True
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
            i += 1
            continue
        if slashes:
            word, begun = word + "\\" * slashes, True
        elif line[i] in " \t" and not quoted:
            words, word, begun = [*words, word] if begun else words, "", False
            i += 1
        else:
            word, begun, i = word + line[i], True, i + 1
    return [*words, word] if begun else words


def cmd(line: str) -> str:
    """What cmd.exe hands on of a line whose every special character has a caret before it."""
    text, i = "", 0
    while i < len(line):
        if line[i] == "^":
            i += 1
        else:
            assert line[i] not in '()%!"<>&|', f"cmd.exe would interpret {line[i]!r}"
        text, i = text + line[i], i + 1
    return text


@given(st.lists(WORDS))
def test_a_program_gets_the_arguments_that_were_given_also_through_cmd(arguments):
    made = command_line(["C:\\it.exe", *arguments])
    assert made.program == "C:\\it.exe"
    assert microsoft_c(made.arguments) == arguments
    made = command_line(["net", *arguments])
    assert microsoft_c(cmd(made.arguments.removeprefix("/d /s /c "))) == ["net", *arguments]


@pytest.mark.parametrize("command", [[], [""], ["C:\\it.exe", "a\0"], ["net", "x" * 8_200]])
def test_what_cannot_be_a_command_line_is_refused(command):
    with pytest.raises(UsageError):
        command_line(command)


@pytest.mark.parametrize(
    "script",
    [
        QUERY,
        wrap_script("Get-Item -Path 'C:\\x'"),
        interactive_script("C:\\it's.exe", 'a "b" \u2019'),
    ],
    ids=["boot", "whole", "interactive"],
)
def test_our_scripts_parse(script):
    assert Script("", script.encode()).errors == ()


def test_a_literal_ends_at_no_quote_that_is_in_it():
    assert quote("it's \u2018so\u2019") == "'it''s \u2018\u2018so\u2019\u2019'"


def test_a_script_that_just_fits_makes_a_line_that_cmd_takes():
    longest = "x" * SCRIPT_LONGEST
    assert fits_command_line(longest)
    assert not fits_command_line(f"{longest}x")
    assert not fits_command_line("\U0001f600" * (SCRIPT_LONGEST // 2 + 1))
    line = command_line(encoded_command(longest)).line
    assert len(f"cmd /c {line}") <= 8_191
    assert base64.b64decode(line.split()[-1]).decode("utf-16-le") == longest


def test_paths_are_those_of_openssh():
    table = {"C:\\a\\b c.txt": "/C:/a/b c.txt", "c:/a": "/c:/a", "D:\\": "/D:/"}
    assert {path: sftp_path(path) for path in table} == table


def reach(**changes: object) -> WindowsReach:
    ssh = Reach("win1", str(changes.pop("address", "192.0.2.5")), "Administrator", Path("k"), "a b")
    return WindowsReach(ssh, "secret", **changes)


def test_the_service_is_reached_by_https_alone():
    assert service_url(reach()) == "https://192.0.2.5:5986/wsman"
    assert service_url(reach(port=15986)) == "https://192.0.2.5:15986/wsman"
    assert service_url(reach(address="2001:db8::5")) == "https://[2001:db8::5]:5986/wsman"


def test_a_pin_may_be_written_in_any_usual_way_and_a_machine_without_one_is_refused():
    for written in (PIN, PIN.upper(), ":".join(re.findall("..", PIN))):
        assert pinned_digest(reach(certificate=written)) == PIN
        assert "secret" not in repr(reach(certificate=written))
    for wrong in ("", "ab" * 20, "zz" * 32):
        with pytest.raises(UsageError, match="not a SHA-256 digest"):
            WinrmPool(reach(certificate=wrong), None)
