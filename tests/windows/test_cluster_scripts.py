"""The scripts that bring a node into a cluster pass the gate that all scripts pass."""

from __future__ import annotations

import dataclasses
import re

import pytest
from cluster_nodes import decided
from powershell_lint import lint
from powershell_syntax import FOLDER, Script, load, within
from test_powershell_settings import kinds

from lab.cluster.windows import flannel, steps

SHARED = Script("modules.psm1", load("hybridlab.psm1").source + load("cluster/cluster.psm1").source)
MAKER = "hns-make"
"""No step of its own: a task runs it with the settings of hns-network."""
NAMES = tuple(sorted(f"cluster/{path.name}" for path in (FOLDER / "cluster").iterdir()))
NESTED = {
    ("node-bundle", "$fileShape"): steps.BundleFile,
    ("node-images", "$imageShape"): steps.ImageFile,
    ("node-files", "$fileShape"): steps.NodeFile,
    ("node-files", "$linkShape"): steps.NodeLink,
    ("node-routes", "$routeShape"): steps.NodeRoute,
}
BREAKING = {
    "a service is never started": (
        "node-service.ps1",
        b"Start-Service -Name",
        b"Start-Servce -Name",
    ),
    "a parameter is misspelt": (
        "hns-make.ps1",
        b"-Wanted $wanted -Network",
        b"-Wants $wanted -Network",
    ),
    "a mandatory one is left out": ("source-vip.ps1", b" -Command ADD", b""),
    "a program runs beside the wrapper": (
        "node-images.ps1",
        b"Invoke-Native -Path $ctr -Arguments '-n', 'k8s.io', 'images', 'import', $file",
        b"ctr.exe 'import' $file",
    ),
    "a token goes to the command line": (
        "node-join.ps1",
        b"'join', '--config', $file",
        b"'join', '--secret', $file",
    ),
    "a variable is misspelt": ("node-routes.ps1", b"$index = Get-Addr", b"$indx = Get-Addr"),
    "a step speaks on standard output": (
        "node-leave.ps1",
        b"Stop-Service -Name",
        b"Write-Output -Name",
    ),
}


def shape(name, variable="$shape"):
    read = load(f"cluster/{name}.ps1").hash_table(variable)
    return {key: value.strip("'") for key, value in read.items()}


@pytest.mark.parametrize("name", NAMES)
def test_cluster_script_parses_without_an_error(name):
    assert load(name).errors == ()


@pytest.mark.parametrize("name", NAMES)
def test_cluster_script_is_in_the_house_style(name):
    module = load("hybridlab.psm1") if name.endswith(".psm1") else SHARED
    assert lint(load(name), module) == []


@pytest.mark.parametrize(("name", "sound", "broken"), BREAKING.values(), ids=BREAKING)
def test_linter_finds_what_is_broken_in_a_cluster_script(name, sound, broken):
    source = load(f"cluster/{name}").source
    assert sound in source
    assert lint(Script(name, source.replace(sound, broken)), SHARED)


def test_every_cluster_step_has_its_script_and_every_script_its_step():
    ours = {"cluster/cluster.psm1", f"cluster/{MAKER}.ps1"}
    assert {f"cluster/{step.name}.ps1" for step in steps.STEPS} | ours == set(NAMES)


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.name)
def test_cluster_step_reads_what_is_written_for_it(step):
    assert shape(step.name) == kinds(step)


def test_the_maker_reads_what_the_step_hands_on():
    assert shape(MAKER) == kinds(steps.HnsNetwork)


@pytest.mark.parametrize(("where", "of"), NESTED.items(), ids=str)
def test_nested_objects_of_a_cluster_step_are_read_as_they_are_written(where, of):
    assert shape(*where) == kinds(of)


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.name)
def test_cluster_step_asks_for_every_key_and_no_other(step):
    script = load(f"cluster/{MAKER if step is steps.HnsNetwork else step.name}.ps1")
    asked = asked_of_given(script)
    assert asked == {one.name for one in dataclasses.fields(step)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".ps1")])
def test_cluster_step_says_its_own_name(name):
    own = name.removeprefix("cluster/").removesuffix(".ps1")
    assert f"Invoke-Step -Name '{own}'".encode() in load(name).source


def test_no_shared_function_of_the_cluster_is_there_for_nobody():
    called = {str(call.name).lower() for name in NAMES for call in load(name).calls}
    own = [one.name for one in load("cluster/cluster.psm1").functions]
    assert [name for name in own if name.lower() not in called] == []


def test_no_function_of_the_cluster_is_there_twice():
    shared = [one.name.lower() for one in SHARED.functions]
    for name in NAMES:
        own = [one.name.lower() for one in load(name).functions]
        both = shared if name.endswith(".psm1") else own + shared
        assert len(both) == len(set(both)), name


FLAGS = {
    "kubeadm's own form": (
        'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=npipe:////./pipe/x --v=4"\n',
        ["--container-runtime-endpoint=npipe:////./pipe/x", "--v=4"],
    ),
    "line ends of DOS": ('KUBELET_KUBEADM_ARGS="--v=4"\r\n', ["--v=4"]),
    "nothing between the quotes": ('KUBELET_KUBEADM_ARGS=""\n', []),
    "nothing at all": ("KUBELET_KUBEADM_ARGS=\n", []),
    "an empty file": ("", []),
    "a flag that begins with the letters of the name": (
        'KUBELET_KUBEADM_ARGS="K--x=1"\n',
        ["K--x=1"],
    ),
    "another line before it": ('# by kubeadm\nKUBELET_KUBEADM_ARGS="--v=2"\n', ["--v=2"]),
}


@pytest.mark.parametrize(("text", "wanted"), FLAGS.values(), ids=FLAGS)
def test_flags_of_kubeadm_are_read_whatever_stands_in_their_file(text, wanted):
    """The script's own pattern: it means the same in Python."""
    source = load("cluster/node-service.ps1").source.decode()
    found = re.search(r"Match\(\$text, '([^']+)'\)", source)
    assert found is not None
    match = re.search(found[1], text)
    assert (match[1].split() if match else []) == wanted


def test_start_script_of_flannel_passes_the_gate_too():
    plan = decided("overlay")
    script = Script("StartFlanneld.ps1", flannel.start_script(plan.cluster, plan.node).encode())
    assert script.errors == ()
    assert lint(script, SHARED) == []


def asked_of_given(script):
    """Names that are read of ``$Given``, in code and in strings."""
    found = set()
    for node in script.of("member_access"):
        variable, *rest = node.named_children
        if script.text(variable) == "$Given" and rest:
            found.add(script.text(rest[0]))
    for node in script.of("expandable_string_literal"):
        for one in within(node):
            if one.type == "member_access" and script.text(one).startswith("$Given."):
                found.add(script.text(one).split(".")[1])
    return found
