"""Keys of the JSON documents: what scripts read is what the product writes, kind for kind."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing

import pytest
from powershell_syntax import line, load, names, within

from lab.imaging.windows import steps
from lab.imaging.windows.settings import (
    CloneCard,
    CloneSettings,
    Region,
    Settings,
    WantedImage,
    clone_document,
    settings_document,
)

ALL = (
    steps.PatchLevel(17763, 379, "reasons"),
    steps.Features(),
    steps.Containerd("pause:3"),
    steps.HnsClean(),
    steps.Firewall((steps.FirewallRule("kubelet", "TCP", ("10250",)),)),
    steps.Observe(),
    steps.RegistryMirrors((steps.Mirror("docker.io", ("https://mirror.example",)),)),
    steps.NodeSettings(steps.EVERY_RELEASE),
    steps.WsMan(),
    steps.SysprepPrepare(),
    steps.Sysprep(),
)
NESTED = {
    ("clone.ps1", "$cardShape"): CloneCard,
    ("clone.ps1", "$regionShape"): Region,
    ("firewall.ps1", "$ruleShape"): steps.FirewallRule,
    ("registry-mirrors.ps1", "$mirrorShape"): steps.Mirror,
    ("settings.ps1", "$valueShape"): steps.RegistryValue,
}
KINDS = {str: "string", int: "int", bool: "bool"}


def kind_of(hint):
    """As the scripts call it: ``string``, ``int?``, ``object[]``."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return "string"
    if origin is tuple:
        return kind_of(typing.get_args(hint)[0]) + "[]"
    if origin in {typing.Union, types.UnionType}:
        (inner,) = (one for one in typing.get_args(hint) if one is not type(None))
        return kind_of(inner) + "?"
    return "object" if dataclasses.is_dataclass(hint) else KINDS[hint]


def kinds(of):
    hints = typing.get_type_hints(of)
    return {one.name: kind_of(hints[one.name]) for one in dataclasses.fields(of)}


def shape(script, variable):
    return {key: value.strip("'") for key, value in load(script).hash_table(variable).items()}


def clone():
    card = CloneCard("cluster", "52:54:00:00:00:01", "192.0.2.10/24", None, (), None)
    return CloneSettings("WIN1", "secret", "ssh-ed25519 AAAA x", "192.0.2.10", (card,), None)


def test_every_step_has_its_script_and_every_script_its_step():
    ours = {"bootstrap.ps1", "clone.ps1", steps.MODULE}
    assert {f"{step.name}.ps1" for step in ALL} | ours == set(names())
    assert len({step.name for step in ALL}) == len(ALL)
    assert all(step.deadline_s > 0 for step in ALL)


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_step_reads_what_is_written_for_it(step):
    read = shape(f"{step.name}.ps1", "$shape")
    assert read == kinds(type(step))
    assert set(steps.settings(step)) == set(read)


@pytest.mark.parametrize(("where", "of"), NESTED.items(), ids=str)
def test_nested_objects_are_read_as_they_are_written(where, of):
    assert shape(*where) == kinds(of)


def test_bootstrap_reads_what_is_written_for_it():
    read = shape("bootstrap.ps1", "$shape")
    wanted = WantedImage("2022", "standard", "core")
    settings = Settings(wanted, "bios", "virtio", None, "BUILD", "Secret-Password.1")
    written = json.loads(settings_document(settings, "ssh-ed25519 AAAA x", has_openssh=True))
    kinds_of = {key: "bool" if value is True else "string" for key, value in written.items()}
    assert read == {**kinds_of, "openssh": "string?"}


def test_clone_reads_what_is_written_for_it_and_no_password():
    read = shape("clone.ps1", "$shape")
    written = json.loads(clone_document(clone()))
    expected = {key: kind for key, kind in kinds(CloneSettings).items() if "password" not in key}
    assert read == expected
    assert set(written) == set(read)
    assert set(written["cards"][0]) == set(shape("clone.ps1", "$cardShape"))
    assert set(written["region"]) == set(shape("clone.ps1", "$regionShape"))


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_body_of_a_step_asks_for_no_other_key(step):
    script = load(f"{step.name}.ps1")
    asked = set(asked_of_given(script))
    assert asked
    assert asked == set(shape(script.name, "$shape"))


@pytest.mark.parametrize("name", ["bootstrap.ps1", "clone.ps1"])
def test_first_logon_asks_for_no_other_key(name):
    assert set(asked_of_given(load(name))) <= set(shape(name, "$shape"))


def test_shapes_hold_kinds_that_the_module_knows():
    module = load("hybridlab.psm1").source.decode()
    known = set(re.findall(r"^        '(\w+)' \{ return \$Value", module, re.MULTILINE))
    assert known == {"string", "int", "bool", "object"}


def asked_of_given(script):
    """Names that are read of ``$Given``, by the line of the first."""
    found = {}
    for node in script.of("member_access"):
        variable, *rest = node.named_children
        if script.text(variable) == "$Given" and rest:
            found.setdefault(script.text(rest[0]), line(node))
    for node in script.of("expandable_string_literal"):
        for one in within(node):
            if one.type == "member_access" and script.text(one).startswith("$Given."):
                found.setdefault(script.text(one).split(".")[1], line(one))
    return found
