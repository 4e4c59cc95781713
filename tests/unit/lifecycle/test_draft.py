import re
from ipaddress import IPv4Network

import pytest

from lab._errors import UsageError
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.draft import ScenarioDraft, draft_nodes, write_draft
from lab.topology.registry import topologies


def draft(name: str, kind: str, linux: int, windows: int) -> str:
    return write_draft(ScenarioDraft(name, draft_nodes(linux, windows), kind))


@pytest.mark.parametrize("kind", topologies())
@pytest.mark.parametrize(("linux", "windows"), [(1, 0), (2, 1), (4, 2), (60, 40)])
def test_draft_of_every_topology_is_a_lab_with_those_nodes(kind, linux, windows, tmp_path):
    if "windows" not in topologies()[kind].systems:
        windows = 0
    file = tmp_path / "mine.yaml"
    file.write_text(draft("mine", kind, linux, windows))
    made = compile_scenario(file)
    systems = [node.os for node in made.plan.nodes if node.role != "services"]
    assert (systems.count("linux"), systems.count("windows")) == (linux, windows)
    assert made.plan.topology == kind


@pytest.mark.parametrize("kind", topologies())
def test_every_parameter_of_the_topology_is_there_as_a_comment(kind):
    text = draft("mine", kind, 2, 0)
    for name in topologies()[kind].parameters:
        assert f"\n  # {name}: " in text


@pytest.mark.parametrize("kind", ["overlay", "calico-bgp", "upstream-vrrp"])
def test_draft_is_the_same_lab_with_its_commented_parameters_set(kind, tmp_path):
    text = draft("mine", kind, 2, 1)
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(text)
    for name in topologies()[kind].parameters:
        text = text.replace(f"  # {name}: ", f"  {name}: ")
    other.write_text(text)
    assert compile_scenario(one).intent == compile_scenario(other).intent


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("Mine", "overlay", 'write "mine"'),
        ("mine", "vxlan", 'did you mean "overlay"'),
    ],
)
def test_draft_that_could_not_be_loaded_is_refused_in_words(name, kind, said):
    with pytest.raises(UsageError) as caught:
        draft(name, kind, 2, 1)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("version", "older"), [("1.36", ['"1.35"']), ("1.34", ['"1.33"']), ("1.33", [])]
)
def test_draft_offers_only_an_older_kubelet(version, older):
    text = write_draft(ScenarioDraft("mine", draft_nodes(2, 0), version=version))
    assert re.findall(r"# version: (\S+)  # of the kubelet, if older", text) == older


def test_nodes_get_a_range_that_no_other_overlaps():
    taken = IPv4Network("192.0.0.0/16")
    text = write_draft(ScenarioDraft("mine", draft_nodes(2, 0), pod_cidr=taken))
    assert "cidr: 10.9.176.0/24" in text
