"""What the scripts say on COM1 and write for containerd: the readers understand it."""

from __future__ import annotations

import re
import tomllib

from powershell_syntax import load, names
from tables import CASES

from lab.windows.images import monitor


def forbidden():
    """The characters that ConvertTo-Plain takes out: a pattern that means the same in Python."""
    module = load("hybridlab.psm1")
    function = next(function for function in module.functions if function.name == "ConvertTo-Plain")
    match = re.search(r"\$Text, '((?:[^']|'')+)'", module.text(function.node))
    assert match is not None
    return re.compile(match[1].replace("''", "'"))


def test_message_has_nothing_that_cmd_would_act_on_and_keys_stay_as_they_are():
    for text in (
        "there is no program 'C:\\x.exe'",
        'a & b | c > COM1 < d ^ e %PATH% (f) !g! "h"',
        "two\r\nlines\tand a tab",
        "Zugriff verweigert: \u00fc \u2026",
    ):
        plain = forbidden().sub(" ", text)
        assert not set(plain) & set('&|<>^%()!"`\r\n\t')
        assert plain.isascii()
    for text in ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+/x0=", "0123456789abcdef" * 4):
        assert forbidden().sub(" ", text) == text


def test_markers_are_those_the_host_knows_and_one_function_prints_them():
    texts = {name: load(name).source.decode() for name in (*names(), *names("cluster"))}
    said = "".join(texts.values())
    for word in re.findall(r"Write-Line -Word '([^']+)'", said):
        assert monitor.parse_message(f"{monitor.PREFIX}{word} x")
    assert set(re.findall(r"Write-Phase -Name '([^']+)'", said)) <= set(monitor.ORDER)
    assert len(re.findall(f"['\"]{monitor.PREFIX}", said)) == 1


def test_the_target_comes_before_the_message():
    """``echo 3> COM1`` would write to stream 3, and a fingerprint may end in a digit."""
    source = load("hybridlab.psm1").source.decode()
    assert '">COM1 echo $line"' in source
    assert not re.search(r"> ?COM1(?! echo)", source)


def test_steps_of_a_first_logon_and_a_failure_are_heard():
    heard = monitor.parse_message("hybridlab: failed openssh: there is no service sshd\r\n")
    assert heard == ("failed", "openssh: there is no service sshd")
    for name in ("bootstrap.ps1", "clone.ps1"):
        steps = list(load(name).hash_table("$steps"))
        assert steps[0] == "ports"
        assert all(monitor.parse_message(f"hybridlab: step {step}") for step in steps)
        assert all(re.fullmatch("[a-z0-9-]+", step) for step in steps)


def test_ports_open_only_at_the_end_and_ready_is_printed_last():
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
    module = load("hybridlab.psm1")
    function = next(function for function in module.functions if function.name == "Write-Ready")
    text = module.text(function.node)
    order = ["Wait-Until", "'key'", "'certificate'", "Open-Port", "'ready'"]
    assert sorted(order, key=text.index) == order


def test_containerd_has_what_the_script_sets_and_the_script_sets_all_of_it():
    text = load("containerd.ps1").source.decode()
    variables = dict(re.findall(r"\$(cri|images|cni) = '([^']+)'", text))
    found = set()
    for table, key in re.findall(r"@\(\"?(\$\w+[.\w]*)\"?, '(\w+)',", text):
        name, _, rest = table[1:].partition(".")
        found.add((f"{variables[name]}.{rest}".rstrip("."), key))
    there = set()
    for plugin, values in tomllib.loads((CASES / "containerd.toml").read_text())["plugins"].items():
        for name, value in values.items():
            keys = [f".{name}"] * isinstance(value, dict) or [""]
            inner = value if isinstance(value, dict) else [name]
            there |= {(f"plugins.{plugin}{keys[0]}", key) for key in inner}
    assert found == there
