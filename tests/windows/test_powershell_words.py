"""What the scripts say on COM1: cmd.exe leaves it alone, and the host understands it."""

from __future__ import annotations

import re

import pytest
from powershell_syntax import Script, load, names

from lab.imaging.windows import monitor

SPECIAL = "&|<>^%()!\"'`\r\n\t"
SAID = (
    "there is no program 'C:\\x.exe'",
    'a & b | c > COM1 < d ^ e %PATH% (f) !g! "h"',
    "two\r\nlines\tand a tab",
    "Zugriff verweigert: \u00fc \u2026",
    "x" * 1000,
)


def forbidden():
    """The characters that ConvertTo-Plain takes out: a pattern that means the same in Python."""
    module = load("hybridlab.psm1")
    function = next(one for one in module.functions if one.name == "ConvertTo-Plain")
    found = re.search(r"\$Text, '((?:[^']|'')+)'", module.text(function.node))
    assert found is not None
    return re.compile(found[1].replace("''", "'"))


@pytest.mark.parametrize("text", SAID)
def test_message_has_nothing_that_cmd_would_act_on(text):
    plain = forbidden().sub(" ", text)
    assert not set(plain) & set(SPECIAL) - {"'"}
    assert plain.isascii()


def test_keys_and_fingerprints_are_left_as_they_are():
    for text in ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+/x0=", "0123456789abcdef" * 4):
        assert forbidden().sub(" ", text) == text


def test_target_stands_before_what_is_said():
    """``echo 3> COM1`` would write to stream 3, and a fingerprint may end in a digit."""
    source = load("hybridlab.psm1").source.decode()
    assert '">COM1 echo $line"' in source
    assert not re.search(r"> ?COM1(?! echo)", source)


def test_failure_is_heard_with_its_step_and_message():
    heard = monitor.parse_message("hybridlab: failed openssh: there is no service sshd\r\n")
    assert heard == monitor.ConsoleMessage("failed", "openssh: there is no service sshd")


@pytest.mark.parametrize("name", ["bootstrap.ps1", "clone.ps1"])
def test_steps_of_a_first_logon_have_names_that_are_heard(name):
    steps = first_logon(load(name))
    assert steps[0] == "ports"
    assert all(monitor.parse_message(f"hybridlab: step {step}") for step in steps)
    assert all(re.fullmatch("[a-z0-9-]+", step) for step in steps)


def test_ports_open_only_where_all_is_done():
    """Nobody but the end of a first logon and a failed sysprep opens them."""
    callers = {
        (script.name, function.name)
        for script in map(load, names())
        for function in script.functions
        if "Open-Port\n" in script.text(function.node) and function.name != "Open-Port"
    }
    scripts = {name for name in names() if b"Open-Port\n" in load(name).source}
    assert callers == {("hybridlab.psm1", "Write-Ready"), ("sysprep.ps1", "Invoke-Sysprep")}
    assert scripts == {"hybridlab.psm1", "sysprep.ps1"}


def test_ready_is_said_last():
    module = load("hybridlab.psm1")
    function = next(one for one in module.functions if one.name == "Write-Ready")
    text = module.text(function.node)
    order = ["Wait-Until", "'key'", "'certificate'", "Open-Port", "'ready'"]
    assert sorted(order, key=text.index) == order


def first_logon(script: Script) -> list[str]:
    return list(script.hash_table("$steps"))
