"""Drafts that begin from files of other tools, and what is said to be left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_files import check_golden

from lab._errors import ScenarioError, UsageError
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.conversion import Conversion, convert
from lab.lifecycle.draft import write_draft
from lab.scenario.foreign import FILES, recognise
from lab.scenario.loader import load

CASES = Path(__file__).parents[2] / "cases" / "foreign"
FILES_OF_TOOLS = {path.stem: path for path in sorted(CASES.glob("*.yaml"))}


def converted(case: str, **options: object) -> Conversion:
    path = FILES_OF_TOOLS[case]
    return convert(path.read_bytes(), path.name, "mine", **options)


def without_comments(text: str) -> str:
    lines = (line.partition("  # ")[0].rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.lstrip().startswith("#"))


@pytest.mark.parametrize("case", FILES_OF_TOOLS)
def test_draft_and_what_is_left_out(case):
    conversion = converted(case)
    parts = (
        without_comments(write_draft(conversion.draft)),
        *(f"left out: {line}\n" for line in conversion.left_out),
        *(f"chosen: {line}\n" for line in conversion.chosen),
    )
    check_golden(CASES / f"{case}.txt", "".join(parts))


@pytest.mark.parametrize("case", FILES_OF_TOOLS)
def test_scenario_begun_from_the_file_compiles(case, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(write_draft(converted(case).draft))
    assert compile_scenario(file).scenario.name == "mine"


@pytest.mark.parametrize("case", FILES_OF_TOOLS)
def test_file_of_a_tool_is_one_error_that_names_the_tool(case):
    with pytest.raises(ScenarioError) as caught:
        load(FILES_OF_TOOLS[case])
    first, *others = str(caught.value).splitlines()
    tool = recognise(FILES_OF_TOOLS[case].read_bytes())
    assert tool
    assert f"this is {tool.name}, not a scenario" in first
    assert f'"lab new NAME --from {FILES_OF_TOOLS[case]}"' in first
    assert len(others) == 1  # the count


OTHERS = {
    "a containerlab topology": "name: two\ntopology:\n  nodes:\n    r1: {kind: linux}\n",
    "a netlab topology": "provider: clab\nnodes: [r1, r2]\nlinks: [r1-r2]\n",
    "a Windows answer file": '<?xml version="1.0"?>\n<unattend xmlns="urn:x"></unattend>\n',
    "a libvirt domain": "<domain type='kvm'><name>n</name></domain>\n",
    "a libvirt network": "<network><name>n</name></network>\n",
    "a Kubernetes manifest": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
    "a kubeconfig": "apiVersion: v1\nkind: Config\nclusters: []\n",
    "a file of Calico's resources": "apiVersion: projectcalico.org/v3\nkind: IPPool\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_file_that_no_scenario_begins_from_is_named_with_what_there_is_instead(name, tmp_path):
    file = tmp_path / "theirs.yaml"
    file.write_text(OTHERS[name])
    way = next(file.way for file in FILES if file.name == name)
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert f"this is {name}, not a scenario; {way}" in str(caught.value)
    with pytest.raises(UsageError) as refused:
        convert(file.read_bytes(), file.name, "mine")
    assert (refused.value.happened, refused.value.hint) == (f"this is {name}", way)


def test_utf_16_is_read_too():
    answers = "<unattend></unattend>".encode("utf-16")
    tool = recognise(answers)
    assert tool
    assert tool.name == "a Windows answer file"


def test_scenario_with_a_mistake_is_no_file_of_another_tool(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nkind: overlay\nnodes: []\ntopology: {kind: overlay}\n")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert "not a scenario" not in str(caught.value)


def test_windows_nodes_can_be_added():
    draft = converted("kind-by-default", windows=2).draft
    assert [(group.os, group.count) for group in draft.nodes if group.count][-1] == ("windows", 2)
    assert "name: win" in write_draft(draft)


def test_topology_and_nodes_can_be_chosen_where_the_file_has_none():
    conversion = converted("kubeadm", topology="calico-bgp", linux=4)
    assert conversion.draft.kind == "calico-bgp"
    assert sum(group.count for group in conversion.draft.nodes) == 4
    assert conversion.chosen == ()


@pytest.mark.parametrize(
    ("case", "options", "option"),
    [
        ("flannel-vxlan", {"topology": "overlay"}, "--topology"),
        ("kind-by-default", {"linux": 3}, "--linux"),
    ],
)
def test_an_option_set_in_the_file_cannot_be_given_as_well(case, options, option):
    with pytest.raises(UsageError) as caught:
        converted(case, **options)
    assert "the file already sets it" in caught.value.happened
    assert option in str(caught.value.hint)


KIND = b"kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"


@pytest.mark.parametrize(
    ("raw", "happened"),
    [
        (b"name: mine\n", "it is not a file of a tool that is known"),
        (KIND + b"nodes: [\n", "line 4: "),
        (KIND + b"nodes: &all []\n", "line 3: anchors"),
        (KIND + b"---\n# only a comment\n---\na: b: c\n", "line 6: "),
        (KIND + b"\xff", "is not UTF-8"),
        (b"kind: ConfigMap\napiVersion: v1\ndata:\n  net-conf.json: '{\"a'\n", "line 1: "),
    ],
)
def test_broken_file_is_one_error(raw, happened):
    with pytest.raises(UsageError) as caught:
        convert(raw, "theirs.yaml", "mine")
    assert happened in caught.value.happened
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["net-conf.json: 3", 'net-conf.json: ""', 'net-conf.json: "[]"', "other: 1"]
)
def test_configmap_without_a_configuration_is_refused(text):
    raw = f"kind: ConfigMap\napiVersion: v1\ndata:\n  {text}\n# \n  \n".encode()
    with pytest.raises(UsageError):
        convert(raw, "theirs.yaml", "mine")


def draft_or_hint(raw: bytes) -> str | None:
    try:
        return write_draft(convert(raw, "theirs.yaml", "mine").draft)
    except UsageError as error:
        return error.hint


@pytest.mark.parametrize("case", FILES_OF_TOOLS)
def test_file_without_any_one_of_its_lines_is_converted_or_refused(case):
    lines = FILES_OF_TOOLS[case].read_bytes().splitlines(keepends=True)
    for number in range(len(lines)):
        for kept in (lines[:number], [*lines[:number], *lines[number + 1 :]]):
            assert draft_or_hint(b"".join(kept))
