"""Keys of the JSON documents: what scripts read is what the product writes, kind for kind."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing

import pytest
from cluster_nodes import decided
from powershell_syntax import line, load, names, walk
from tables import table

from lab.machines.images.terms import Region, WantedImage
from lab.windows.images import image_steps
from lab.windows.images.settings import (
    CloneCard,
    CloneSettings,
    Settings,
    clone_document,
    settings_document,
)
from lab.windows.nodes import join_steps
from lab.windows.nodes.network import flanneld_program

IMAGE = [
    subclass
    for subclass in image_steps.ImageStep.__subclasses__()
    if subclass is not join_steps.ClusterStep
]
CLUSTER = join_steps.ClusterStep.__subclasses__()
SCRIPTS = {f"{step.name}.ps1": step for step in IMAGE} | {
    f"cluster/{step.name}.ps1": step for step in CLUSTER
}
MAKER, KEEPER = "cluster/hns-make.ps1", "cluster/node-keep.ps1"
"""Scheduled tasks run them: the first with the settings of hns-network."""
SHAPES = {(name, "$shape"): step for name, step in SCRIPTS.items()} | {
    (MAKER, "$shape"): join_steps.HnsNetwork,
    ("clone.ps1", "$cardShape"): CloneCard,
    ("clone.ps1", "$regionShape"): Region,
    ("firewall.ps1", "$ruleShape"): image_steps.FirewallRule,
    ("registry-mirrors.ps1", "$mirrorShape"): image_steps.Mirror,
    ("settings.ps1", "$valueShape"): image_steps.RegistryValue,
    ("cluster/node-bundle.ps1", "$fileShape"): join_steps.BundleFile,
    ("cluster/node-images.ps1", "$imageShape"): join_steps.ImageFile,
    ("cluster/node-files.ps1", "$fileShape"): join_steps.NodeFile,
    ("cluster/node-files.ps1", "$linkShape"): join_steps.NodeLink,
    ("cluster/node-routes.ps1", "$routeShape"): join_steps.NodeRoute,
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
    return {field.name: kind_of(hints[field.name]) for field in dataclasses.fields(of)}


def shape(script, variable="$shape"):
    return {key: value.strip("'") for key, value in load(script).hash_table(variable).items()}


def asked_of_given(script):
    """Names that are read of ``$Given``, by the line of the first."""
    found = {}
    for node in script.of("member_access"):
        variable, *rest = node.named_children
        if script.text(variable) == "$Given" and rest:
            found.setdefault(script.text(rest[0]), line(node))
    for node in script.of("expandable_string_literal"):
        for one in walk(node):
            if one.type == "member_access" and script.text(one).startswith("$Given."):
                found.setdefault(script.text(one).split(".")[1], line(one))
    return found


def test_every_step_has_its_script_and_every_script_its_step():
    others = {
        "bootstrap.ps1",
        "clone.ps1",
        image_steps.MODULE,
        "cluster/cluster.psm1",
        MAKER,
        KEEPER,
    }
    assert {*SCRIPTS, *others} == {*names(), *names("cluster")}
    assert all(step.deadline_s > 0 for step in SCRIPTS.values())


@pytest.mark.parametrize(("where", "of"), SHAPES.items(), ids=str)
def test_objects_are_read_as_they_are_written(where, of):
    assert shape(*where) == kinds(of)


@pytest.mark.parametrize("name", SCRIPTS)
def test_step_asks_for_every_key_and_no_other(name):
    script = MAKER if name == "cluster/hns-network.ps1" else name
    assert set(asked_of_given(load(script))) == set(shape(name))


@pytest.mark.parametrize("name", [name for name in names("cluster") if name.endswith(".ps1")])
def test_cluster_step_has_its_own_name(name):
    own = name.removeprefix("cluster/").removesuffix(".ps1")
    assert f"Invoke-Step -Name '{own}'".encode() in load(name).source


def test_first_logon_reads_what_is_written_for_it_and_no_password():
    wanted = WantedImage("2022", "standard", "core")
    settings = Settings(wanted, "bios", "virtio", None, "BUILD", "Secret-Password.1")
    written = json.loads(settings_document(settings, "ssh-ed25519 AAAA x", has_openssh=True))
    assert shape("bootstrap.ps1") == {**dict.fromkeys(written, "string"), "openssh": "string?"}
    of_clone = {key: kind for key, kind in kinds(CloneSettings).items() if "password" not in key}
    assert shape("clone.ps1") == of_clone
    card = CloneCard("cluster", "52:54:00:00:00:01", "192.0.2.10/24", None, (), None)
    clone = CloneSettings("WIN1", "secret", "ssh-ed25519 AAAA x", "192.0.2.10", (card,), None)
    assert set(json.loads(clone_document(clone))) == set(of_clone)
    for name in ("bootstrap.ps1", "clone.ps1"):
        assert set(asked_of_given(load(name))) <= set(shape(name))


def test_shapes_hold_kinds_that_the_module_knows():
    module = load("hybridlab.psm1").source.decode()
    known = set(re.findall(r"^        '(\w+)' \{ return \$Value", module, re.MULTILINE))
    assert known == {"string", "int", "bool", "object"}


def test_keeper_reads_what_is_written_for_flanneld():
    plan = decided("overlay")
    written = flanneld_program(plan.cluster, plan.node, plan.network, 5)
    assert set(shape(KEEPER)) == set(asked_of_given(load(KEEPER))) == set(written)


def test_flags_of_kubeadm_are_read_whatever_stands_in_their_file():
    """The script's own pattern: it means the same in Python."""
    source = load("cluster/node-service.ps1").source.decode()
    found = re.search(r"Match\(\$text, '([^']+)'\)", source)
    assert found is not None
    for case in table("kubeadm-flags"):
        match = re.search(found[1], case["text"])
        assert (match[1].split() if match else []) == case["flags"]


@pytest.mark.parametrize("year", ["2019", "2022", "2025"])
def test_golden_image_refuses_first_and_has_the_values_of_its_own_release_alone(year):
    steps_ = image_steps.golden_steps(year, "ab" * 32)
    made: dict[str, typing.Any] = {step.name: step for step in steps_}
    order = ["patch-level", "wsman", "features", "settings", "sysprep-prepare", "sysprep"]
    assert list(made) == order
    own = {
        "2019": {"HNSControlFlag": 80, "WcifsSOPCountDisabled": 0},
        "2022": {"1114842764": 0},
        "2025": {"520997518": 1},
    }[year]
    every = {"NoAutoUpdate": 1, "EnableCompartmentNamespace": 1}
    assert {one.name: one.number for one in made["settings"].registry} == every | own
    patch = made["patch-level"]
    assert ("KB4489899" in patch.why) == (year == "2019") == (patch.least_revision == 379)


def test_deadlines_leave_room_for_what_the_script_itself_waits():
    assert image_steps.PatchLevel.deadline_s > image_steps.PatchLevel(1, 1, "").update_seconds
    assert image_steps.Containerd.deadline_s > image_steps.Containerd("a", "b", "c").pipe_seconds
