"""Kubeinit's spec strings: what they stand for, and what is said of broken ones."""

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._errors import ScenarioError, UsageError
from lab.scenario import kubeinit_spec
from lab.scenario.loader import SpecString, load, meant
from lab.scenario.scenario import NodeGroup, Scenario
from lab.topology import registry

CASES = Path(__file__).parents[2] / "cases" / "specs"
BROKEN: dict[str, str] = json.loads((CASES / "broken.json").read_text())


def made(written: str) -> Scenario:
    return load(SpecString(written), topology_check=registry.check)


def node(scenario: Scenario, name: str) -> NodeGroup:
    return next(group for group in scenario.nodes if group.name == name)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_spec_is_reported_with_its_position_and_the_right_form(name):
    wanted = meant(BROKEN[name])
    assert isinstance(wanted, SpecString)
    with pytest.raises(ScenarioError) as caught:
        load(wanted)
    golden = CASES / f"{name}.txt"
    assert str(caught.value) + "\n" == golden.read_text()


def test_nodes_have_kubeinits_names_order_and_addresses():
    scenario = made("k8s-libvirt-1-2-2")
    assert [(group.name, group.os, group.role, str(group.address)) for group in scenario.nodes] == [
        ("controller-01", "linux", "control-plane", "10.0.0.1"),
        ("compute-01", "linux", "worker", "10.0.0.2"),
        ("compute-02", "linux", "worker", "10.0.0.3"),
        ("services", "linux", "services", "10.0.0.253"),
    ]
    assert scenario.name == "k8s-libvirt-1-2-2"
    assert scenario.network.router == IPv4Address("10.0.0.254")
    assert scenario.hypervisors
    assert scenario.hypervisors.count == 2


def test_an_option_of_one_node_goes_before_its_groups():
    scenario = made("k8s-libvirt-1-2-2,compute-02.os=windows,compute.os=linux,compute.memory=16GiB")
    first, second = node(scenario, "compute-01"), node(scenario, "compute-02")
    assert (first.os, first.memory_mib, first.image) == ("linux", 16_384, None)
    assert (second.os, second.memory_mib, second.image) == (
        "windows",
        16_384,
        "windows-server-2022",
    )
    assert scenario.name == "k8s-libvirt-1-2-2"


WRITTEN_AS_IN_KUBEINIT = {
    "the list of its announcement": "cluster_nodes_spec=[[when_group=compute_nodes,os=windows]],"
    "compute_node_ram_size=16777216",
    "a quoted list": "cluster_nodes_spec='[[when_group=compute_nodes,os=windows,ram=16777216]]'",
    "YAML": "cluster_nodes_spec=[{when_group: compute_nodes, os: windows, ram: 16777216}]",
    "JSON": 'cluster_nodes_spec=[{"when_group": "compute_nodes", "os": "windows"}, '
    '{"when_group":"compute_nodes","ram":16777216}]',
    "a later setting": "cluster_nodes_spec=[[os=debian,ram=16777216],[when_group=compute_nodes,"
    "os=windows]],controller_node_ram_size=1048576",
}


@pytest.mark.parametrize("options", WRITTEN_AS_IN_KUBEINIT.values(), ids=WRITTEN_AS_IN_KUBEINIT)
def test_kubeinits_own_variables_give_the_same_nodes_as_in_kubeinit(options):
    scenario = made(f"k8s-libvirt-3-2-1,{options}")
    ours = made("k8s-libvirt-3-2-1,compute.os=windows,compute.memory=16GiB")
    assert [group.os for group in scenario.nodes] == [*["linux"] * 3, "windows", "windows", "linux"]
    for name in ("compute-01", "compute-02"):
        assert node(scenario, name).replace(line=0) == node(ours, name).replace(line=0)


def test_kubeinits_sizes_and_processors_reach_their_groups():
    scenario = made(
        "k8s-libvirt-1-1-1,controller_node_disk_size=25G,compute_node_disk_size=30G,"
        "controller_node_ram_size=25165824,cluster_node_vcpus=8"
    )
    controller, compute, services = scenario.nodes
    assert (controller.disk_gib, controller.memory_mib, controller.vcpus) == (25, 24_576, 8)
    assert (compute.disk_gib, compute.memory_mib, compute.vcpus) == (30, None, 8)
    assert (services.disk_gib, services.memory_mib, services.vcpus) == (None, None, None)


@pytest.mark.parametrize("sixth", ["h", "c"])
def test_where_kubeinits_ci_is_launched_from_makes_no_difference(sixth):
    assert made(f"k8s-libvirt-1-2-2-{sixth}").nodes == made("k8s-libvirt-1-2-2").nodes


def test_every_option_arrives():
    scenario = made(
        "k8s-libvirt-2-1-3,services.vcpus=1,services.disk=30GiB,services.memory=512MiB,"
        "controller-02.hypervisor=3"
    )
    services = node(scenario, "services")
    assert (services.vcpus, services.disk_gib, services.memory_mib) == (1, 30, 512)
    assert node(scenario, "controller-02").hypervisor == "hypervisor-03"
    assert node(scenario, "controller-01").hypervisor is None


@pytest.mark.parametrize("written", ["k8s-libvirt-1-0-1", "k8s-libvirt-5-200-64"])
def test_the_smallest_and_the_largest_are_valid(written):
    assert made(written).nodes[-1].address == IPv4Address("10.0.0.253")


@pytest.mark.parametrize("written", ["overlay", "hard-way", "kubeinit"])
def test_a_shipped_scenario_is_no_spec(written):
    assert isinstance(meant(written), Path)


def test_a_file_goes_before_a_spec_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("k8s-libvirt-1-2-2").touch()
    assert isinstance(meant("k8s-libvirt-1-2-2"), Path)
    assert isinstance(meant("k8s-libvirt-1-2-3"), SpecString)
    assert isinstance(meant("k8s-libvirt-1-2-3.yaml"), Path)
    assert isinstance(meant("./k8s-libvirt-1-2-3"), Path)


def test_a_name_that_is_neither_file_nor_spec_is_refused_with_near_ones():
    with pytest.raises(UsageError) as caught:
        meant("kubeinti")
    assert 'did you mean "kubeinit"?' in str(caught.value)
    assert "k8s-libvirt-1-2-2" in str(caught.value)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("no-such", "give the path of a scenario file, or a name. The shipped ones are"),
        ("calico-ipip", "see docs/reference/not-modelled.md. The shipped ones are"),
    ],
)
def test_name_without_a_file_gets_whole_sentences(written, hint):
    with pytest.raises(UsageError) as caught:
        meant(written)
    assert hint in caught.value.hint


@given(st.text("k8slibvrt-123,.=oscmpute ", max_size=40))
def test_whatever_is_written_is_read_or_refused(tail):
    found, findings = kubeinit_spec.read(f"k8s-libvirt-1-2-2{tail}")
    assert (found is None) == bool(findings)
    length = len(f"k8s-libvirt-1-2-2{tail}")
    assert all(1 <= finding.col <= length + 1 for finding in findings)
