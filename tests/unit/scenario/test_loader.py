"""Scenario files: read, refused with places, and the shipped ones' plans to the digest."""

import json
import os
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import FunctionType
from typing import get_args

import pytest
from broken_files import BrokenFiles
from pydantic import PlainSerializer

from lab._errors import ScenarioError, UsageError
from lab.plan.canonical import digest
from lab.plan.planner import make_plan
from lab.scenario import source, values
from lab.scenario.findings import SHOWN, Problem
from lab.scenario.loader import SpecString, find, load, shipped
from lab.scenario.scenario import Match, Nic
from lab.scenario.source import MAX_BYTES
from lab.scenario.special import Port
from lab.topology import registry

CASES = Path(__file__).parents[2] / "cases" / "scenario"
EVERYTHING = CASES / "valid" / "everything.yaml"
TABLE = BrokenFiles(CASES / "broken.txt", ".yaml", "scenario")
BROKEN = TABLE.read()

SMALL = """\
name: small
summary: two nodes
kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10
network:
  cidr: 10.9.176.0/24
topology:
  kind: overlay
  vni: 4096
nodes:
  - name: master
    os: linux
    role: control-plane
  - name: win
    os: windows
    count: 2
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def said_of(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path)
    return str(caught.value)


# SECURITY.md: A scenario is data.
@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_reported_with_places_and_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = BROKEN[name].write(Path())
    with pytest.raises(ScenarioError) as caught:
        load(path, topology_check=registry.check)
    TABLE.check(BROKEN[name], str(caught.value))


def test_what_is_left_out_has_its_default(small):
    scenario = load(small)
    assert scenario.network.mtu == 1500
    assert scenario.kubernetes.domain == "cluster.local"
    assert scenario.pods_per_node == 2
    assert scenario.services.node_ports == (30000, 32767)
    assert len(scenario.families) == 9
    assert scenario.matrix.protocols == ("tcp", "udp")
    assert scenario.matrix.sizes == ("small", "large")
    master = scenario.nodes[0]
    assert (master.count, master.kubelet, master.pods, master.address) == (1, True, None, None)
    assert scenario.nodes[1].role == "worker"


def test_what_is_written_arrives_converted():
    scenario = load(EVERYTHING)
    win = scenario.nodes[1]
    assert win.address == IPv4Address("10.9.176.9")
    assert win.pod_cidr == IPv4Network("10.244.7.0/24")
    assert (win.version, win.image, win.pods) == ("1.35", "windows-server-2019", 3)
    assert (win.memory_mib, win.vcpus, win.disk_gib, win.hypervisor) == (
        4096,
        2,
        1024,
        "hypervisor-02",
    )
    assert win.nics == (
        Nic(network="office", address=IPv4Address("172.16.126.216"), mac="0a:15:00:00:00:02"),
    )
    assert win.line == 28
    assert scenario.topology.kind == "hard-way"
    assert scenario.topology.parameters == {}
    assert scenario.services.node_ports == (31000, 31999)
    assert scenario.services.shared[0].backends == 4
    assert scenario.matrix.families == ("dns", "pod-pod")
    assert scenario.matrix.protocols == ("tcp",)
    assert scenario.matrix.sizes == ("large",)
    assert scenario.kubernetes.domain == "mylan.k8s"
    assert scenario.network.mtu == 9000
    limit, other = scenario.exceptions
    assert limit.id == "everything-exception-1"
    assert other.id == "everything-exception-2"
    assert other.when.name_form == "partial"
    assert limit.refusal == "timeout"
    assert limit.source == "everything.yaml:70"
    assert limit.when == Match(
        families=("nodeport",),
        protocol="tcp",
        size="large",
        source="win*",
        source_kind="node",
        source_os="windows",
        target="win:to-*",
        target_kind="nodeport",
        target_os="linux",
        relation="other-node",
        entry="own",
        entry_node="win",
        refusal="timeout",
    )
    shop, by_name = scenario.services.special
    assert (shop.pods, shop.backends, shop.affinity) == (("master-p1", "win-p2"), 2, 3600)
    assert (shop.internal_traffic, shop.external_traffic, shop.health_check) == (
        "local",
        "local",
        True,
    )
    assert shop.ports == (
        Port(name="web", port=80),
        Port(name="admin", protocols=("tcp",), port=8443, target_port=8081, node_port=31443),
    )
    assert (by_name.headless, by_name.backends, by_name.pods) == (True, 2, ())


def test_windows_line_ends_and_byte_order_mark_are_read(small):
    plain = load(small)
    small.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load(small) == plain


def test_path_that_is_not_a_readable_file_is_reported(tmp_path):
    none, pipe, big = tmp_path / "none.yaml", tmp_path / "pipe.yaml", tmp_path / "big.yaml"
    os.mkfifo(pipe)
    big.write_bytes(b"#" * (MAX_BYTES + 1))
    assert f"{none}: there is no such file; check the path" in said_of(none)
    assert f"{tmp_path}: this is a directory; give the path" in said_of(tmp_path)
    assert f"{pipe}: this is no regular file" in said_of(pipe)
    assert f"{big}: the file is larger than 256 KiB" in said_of(big)
    assert "it cannot be read: " in said_of(Path("a\0b.yaml"))


def test_unreadable_file_is_reported(small, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(source, "open", refuse, raising=False)
    assert f"{small}: it cannot be read: Permission denied; check" in said_of(small)


def test_findings_without_number_are_cut_and_counted(small):
    small.write_text(SMALL + "".join(f"    key{number}: x\n" for number in range(SHOWN + 20)))
    lines = said_of(small).splitlines()
    assert len(lines) == SHOWN + 2
    assert lines[-2] == f"{small}: 20 more findings are not shown; fix the ones above first"


def test_problem_of_the_topology_is_placed_at_its_key(small):
    def check(scenario):
        assert scenario.topology.kind == "overlay"
        yield Problem(("topology", "vni"), "too low", "raise it")
        yield Problem(("topology", "port"), "not there", "add it")
        yield Problem(("nodes", 1), "not Windows", "take Linux")
        yield Problem(("topology", "kind"), "odd", "change it", at_key=True)

    with pytest.raises(ScenarioError) as caught:
        load(small, topology_check=check)
    assert caught.value.lines == (
        f"{small}:11:1: not there; add it",
        f"{small}:12:3: odd; change it",
        f"{small}:13:8: too low; raise it",
        f"{small}:18:5: not Windows; take Linux",
    )


def test_topology_is_not_checked_on_parts_that_are_broken(small):
    def check(scenario):
        raise AssertionError(scenario)

    small.write_text(SMALL.replace("os: windows", "os: windws"))
    with pytest.raises(ScenarioError) as caught:
        load(small, topology_check=check)
    assert len(caught.value.lines) == 1


def test_broken_value_brings_no_finding_about_its_stand_in(small):
    small.write_text(SMALL.replace("10.244.0.0/16", "10.244/16").replace("96.0.10", "96.0.x"))
    assert len(said_of(small).splitlines()) == 3


def test_broken_part_does_not_hide_what_is_wrong_elsewhere(small):
    small.write_text(SMALL.replace("os: windows", "os: windws").replace("96.0.10", "112.0.10"))
    said = said_of(small)
    assert "windws" in said
    assert "outside" in said


def test_path_is_taken_as_it_is(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text(SMALL)
    for path in (str(small), "small.yaml", "./nowhere", "gone.yml", "mine"):
        assert find(path) == Path(path)


def test_shipped_name_goes_before_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlay").mkdir()
    assert find("overlay").is_file()


@pytest.mark.parametrize("name", ["overlai", "zzz", "", "a\0b"])
def test_unknown_name_is_refused_with_the_list(name):
    with pytest.raises(UsageError) as caught:
        find(name)
    assert all(known in caught.value.hint for known in shipped())
    assert caught.value.exit_code == 2
    assert ('did you mean "overlay"' in caught.value.hint) == (name == "overlai")


# SECURITY.md: A scenario is data.
@pytest.mark.parametrize(
    "text",
    [
        "root:$6$hunter2:1::\nhunter2:x:1::\nhunter2:x:1::\n",
        "password: hunter2\nhunter2: hunter2\n",
        "user: !hunter2 me\n",
        "hunter2\n",
        "- hunter2\n",
    ],
)
def test_a_file_that_is_no_scenario_is_not_quoted(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    assert "hunter2" not in said_of(path)


@pytest.mark.parametrize("kind", [values.Memory, values.Disk])
def test_value_is_written_by_a_function_that_pydantic_can_look_into(kind):
    """Of a built-in one pydantic finds no signature on Python 3.13."""
    written = [one.func for one in get_args(kind) if isinstance(one, PlainSerializer)]
    assert [type(one) for one in written] == [FunctionType]
    assert written[0](2) in {"2MiB", "2GiB"}  # type: ignore[call-arg]


DIGESTS: dict[str, str] = json.loads(
    (Path(__file__).parents[2] / "cases" / "scenario" / "plan-digests.json").read_text()
)


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenario_is_valid_and_its_plan_is_the_same_as_ever(name):
    """Labs that are up know their machines by it: it must not change for the same file.

    A change of the file itself is compared with the document that the scenario is after, which
    the head of the file names.
    """
    scenario = load(find(name), topology_check=registry.check)
    assert scenario.name == name
    assert {group.os for group in scenario.nodes} == {"linux", "windows"}
    assert digest(make_plan(scenario)) == DIGESTS[name]


def test_kubeinit_is_what_its_spec_string_makes():
    spec = "k8s-libvirt-3-3-2,compute.os=windows,compute-03.os=linux"
    shipped, made = load(find("kubeinit")), load(SpecString(spec))
    kept = {"name": "", "summary": "", "nodes": ()}
    assert shipped.replace(**kept) == made.replace(**kept)
    assert [group.replace(line=0) for group in shipped.nodes] == [
        group.replace(line=0) for group in made.nodes
    ]
