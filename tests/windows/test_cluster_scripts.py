"""The scripts that bring a node into a cluster, and what is written for them."""

from __future__ import annotations

import dataclasses
import re

import pytest
from cluster_nodes import decided
from powershell_syntax import load, names
from test_powershell_settings import asked_of_given, kinds, shape

from lab.cluster.windows import steps
from lab.cluster.windows.network import flanneld_program

MAKER = "hns-make"
"""No step of its own: a task runs it with the settings of hns-network."""
KEEPER = "node-keep"
"""What the task of node-task runs."""
NAMES = names("cluster")
NESTED = {
    ("node-bundle", "$fileShape"): steps.BundleFile,
    ("node-images", "$imageShape"): steps.ImageFile,
    ("node-files", "$fileShape"): steps.NodeFile,
    ("node-files", "$linkShape"): steps.NodeLink,
    ("node-routes", "$routeShape"): steps.NodeRoute,
}


def test_every_cluster_step_has_its_script_and_every_script_its_step():
    ours = {"cluster/cluster.psm1", f"cluster/{MAKER}.ps1", f"cluster/{KEEPER}.ps1"}
    assert {f"cluster/{step.name}.ps1" for step in steps.STEPS} | ours == set(NAMES)


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.name)
def test_cluster_step_reads_what_is_written_for_it(step):
    assert shape(f"cluster/{step.name}.ps1", "$shape") == kinds(step)


def test_the_maker_reads_what_the_step_hands_on():
    assert shape(f"cluster/{MAKER}.ps1", "$shape") == kinds(steps.HnsNetwork)


@pytest.mark.parametrize(("where", "of"), NESTED.items(), ids=str)
def test_nested_objects_of_a_cluster_step_are_read_as_they_are_written(where, of):
    assert shape(f"cluster/{where[0]}.ps1", where[1]) == kinds(of)


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.name)
def test_cluster_step_asks_for_every_key_and_no_other(step):
    script = load(f"cluster/{MAKER if step is steps.HnsNetwork else step.name}.ps1")
    assert set(asked_of_given(script)) == {one.name for one in dataclasses.fields(step)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".ps1")])
def test_cluster_step_says_its_own_name(name):
    own = name.removeprefix("cluster/").removesuffix(".ps1")
    assert f"Invoke-Step -Name '{own}'".encode() in load(name).source


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


def test_keeper_reads_what_is_written_for_flanneld():
    plan = decided("overlay")
    written = flanneld_program(plan.cluster, plan.node)
    assert set(shape(f"cluster/{KEEPER}.ps1", "$shape")) == set(written)
    assert set(asked_of_given(load(f"cluster/{KEEPER}.ps1"))) == set(written)
