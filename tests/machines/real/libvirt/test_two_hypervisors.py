"""One lab on two hypervisors, each a real libvirtd: joined, mended, taken down, never left over."""

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from bridged_hosts import impossible
from hypervisors import Hypervisor
from processes import run_program
from real_lab import RealLab

from lab._deadline import Deadline

SCENARIO = Path(__file__).with_name("two-nodes.yaml")
NAME = "two"
IMAGES_POOL = "hybridlab-images"
STORAGE = "/var/lib/libvirt/images/hybridlab"


@dataclass(frozen=True)
class Lab(RealLab):
    """One lab on an inventory of hypervisors."""

    scenario: str = str(SCENARIO)
    name: str = NAME

    def up_words(self) -> tuple[str, ...]:
        return ("up", self.scenario, "--pods", "namespaces")

    def said(self, *words: str, code: int = 0) -> str:
        """The messages and the result of a command."""
        done = self.run(*words, code=code)
        return done.stderr + done.stdout

    def placed(self) -> dict[str, str]:
        """Machine to hypervisor."""
        layout = self.state / "labs" / self.name / "layout.json"
        return dict(json.loads(layout.read_text())["machines"])


def inventory(path: Path, hypervisors: Sequence[Hypervisor], management: str = "") -> Path:
    """Write an inventory of the hypervisors."""
    entries = "\n".join(hypervisor.entry() for hypervisor in hypervisors)
    given = f'[management]\ncidr = "{management}"\n\n' if management else ""
    path.write_text(given + entries, encoding="utf-8")
    return path


def virsh(hypervisor: Hypervisor, *words: str) -> list[str]:
    done = run_program(("virsh", "-q", "-c", hypervisor.uri, *words))
    return done.stdout.split()


def found(hypervisor: Hypervisor) -> set[str]:
    """Everything that labs have left there, except copies of images."""
    kinds = (("list", "--all"), ("net-list", "--all"), ("pool-list", "--all"))
    links = [link["ifname"] for link in json.loads(hypervisor.run("ip", "-json", "link"))]
    files = hypervisor.run(
        "sh", "-c", f"find {STORAGE}/labs /var/lib/libvirt/qemu/save -type f || true"
    )
    return {
        *(
            name
            for kind in kinds
            for name in virsh(hypervisor, *kind, "--name")
            if name != IMAGES_POOL
        ),
        *(name for name in links if name.startswith(("hl", "hx", "vnet"))),
        *files.split(),
    }


def images(hypervisor: Hypervisor) -> list[str]:
    """The disks of images on the hypervisor."""
    listed = hypervisor.run("sh", "-c", f"ls {STORAGE}/images || true").split()
    return [name for name in listed if name.endswith(".qcow2")]


KUBEINIT = "k8s-libvirt-1-2-2"
SMALL = ("controller", "compute", "services")


def _missing() -> str | None:
    if shutil.which("virsh") is None:
        return "virsh is not installed"
    try:
        importlib.metadata.version("hybridlab")
        importlib.metadata.version("libvirt-python")
    except importlib.metadata.PackageNotFoundError as error:
        return f"not installed: {error}"
    return impossible()


pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(_missing() is not None, reason=str(_missing())),
]


@pytest.fixture
def lab(tmp_path, two_hypervisors):
    """Nothing is up; whatever the test has done, nothing is left on either."""
    made = Lab(tmp_path / "state", inventory(tmp_path / "lab.toml", two_hypervisors))
    yield made
    if (made.state / "labs" / NAME).exists():
        made.said("down", NAME)
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


@pytest.fixture(scope="class")
def standing(tmp_path_factory, two_hypervisors):
    directory = tmp_path_factory.mktemp("two")
    made = Lab(directory / "state", inventory(directory / "lab.toml", two_hypervisors))
    made.said(*made.up_words())
    yield made
    made.said("down", NAME)
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


class TestOneLab:
    """Up once for all of these; the last one takes it down."""

    def test_nodes_stand_on_both_and_router_and_client_together(self, standing):
        placed = standing.placed()
        assert {placed["master"], placed["worker"]} == {"host1", "host2"}
        assert placed["router"] == placed["client"]

    def test_the_matrix_is_green_across(self, standing):
        said = standing.said("test", NAME)
        assert re.search(r"176 cells: 176 pass", said), said

    def test_guests_have_the_mtu_that_fits_between_hypervisors(self, standing, two_hypervisors):
        mtu = two_hypervisors[0].mtu - 50
        for node in ("master", "worker"):
            assert f" mtu {mtu} " in standing.said(
                "exec", NAME, node, "--", "ip", "link", "show", "eth0"
            )

    def test_each_hypervisor_has_the_image_once(self, standing, two_hypervisors):
        assert [len(images(hypervisor)) for hypervisor in two_hypervisors] == [1, 1]
        assert "copying" not in standing.said(*standing.up_words())

    def test_a_lost_tunnel_is_reported_and_repaired_without_a_boot(self, standing, two_hypervisors):
        (device,) = (name for name in found(two_hypervisors[1]) if name.startswith("hx"))
        two_hypervisors[1].run("ip", "link", "delete", device)
        assert f"tunnel end '{device}' on hypervisor 'host2' is gone" in standing.said(
            "status", NAME, code=3
        )
        said = standing.said(*standing.up_words())
        assert f"tunnel end '{device}' on 'host2' created" in said
        assert "booted" not in said
        assert "176 pass" in standing.said("test", NAME)

    def test_an_unreachable_hypervisor_is_reported_and_the_rest_taken_down(
        self, standing, two_hypervisors
    ):
        near, far = two_hypervisors
        far.unplug()
        try:
            assert "hypervisor 'host2'" in standing.said("status", NAME, code=3)
            said = standing.said("down", NAME, code=3)
            assert "connecting to hypervisor 'host2'" in said
            assert f"lab down {NAME}" in said
            assert found(near) == set()
        finally:
            far.plug()
        assert found(far) != set()
        standing.said("down", NAME)
        assert found(far) == set()


def test_kubeinits_nodes_stand_on_the_hypervisors_of_their_spec(tmp_path, two_hypervisors):
    spec = ",".join((KUBEINIT, "compute.os=linux", *(f"{one}.memory=512MiB" for one in SMALL)))
    file = inventory(tmp_path / "lab.toml", two_hypervisors)
    lab = Lab(tmp_path / "state", file, scenario=spec, name=KUBEINIT)
    lab.said(*lab.up_words())
    placed = lab.placed()
    assert placed["compute-01"] == "host2"
    assert {placed[one] for one in ("controller-01", "compute-02", "services")} == {"host1"}
    said = lab.said("test", KUBEINIT)
    assert re.search(r"^node-names +90 +90$", said, re.MULTILINE), said

    lab.said("fault", KUBEINIT, "dns-unreachable", "--node", "services")
    said = lab.said("test", KUBEINIT, "-m", "node-names", code=1)
    assert "Not as expected: 90 cells" in said, said
    said = lab.said(
        "explain",
        KUBEINIT,
        "node-names/compute-01-p1/compute-02.k8scluster.kubeinit.local./udp-small",
        code=1,
    )
    assert "dns-unreachable" in said
    lab.said("heal", KUBEINIT)
    lab.said("test", KUBEINIT, "-m", "node-names")
    lab.said("down", KUBEINIT)
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


def test_a_hypervisor_out_of_reach_refuses_before_anything_is_made(lab, two_hypervisors):
    two_hypervisors[1].unplug()
    try:
        said = lab.said(*lab.up_words(), code=4)
    finally:
        two_hypervisors[1].plug()
    assert "connecting to hypervisor 'host2'" in said
    assert found(two_hypervisors[0]) == set()


def test_a_range_in_use_on_a_hypervisor_is_refused_and_nothing_left(tmp_path, two_hypervisors):
    management = "10.222.7.0/24"
    file = inventory(tmp_path / "lab.toml", two_hypervisors, management)
    lab = Lab(tmp_path / "state", file)
    second = two_hypervisors[1]
    second.run("ip", "link", "add", "office0", "type", "bridge")
    second.run("ip", "address", "add", "10.222.7.5/24", "dev", "office0")
    second.run("ip", "link", "set", "office0", "up")
    try:
        said = lab.said(*lab.up_words(), code=3)
        assert f"every /24 of {management} is in use on host 'host2'" in said
        lab.said("down", NAME)
    finally:
        second.run("ip", "link", "delete", "office0")
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


NETWORKS, MACHINES = "  step 3 of 6: networks", "  step 4 of 6: machines"


@pytest.mark.parametrize("story", [NETWORKS, "tunnel end", MACHINES])
def test_up_that_was_killed_leaves_nothing_after_down(lab, two_hypervisors, story):
    assert lab.killed_after(lab.up_words(), story)[-1].startswith(story)
    lab.said("down", NAME)
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


def test_up_that_was_killed_with_guests_on_both_leaves_nothing_after_down(lab, two_hypervisors):
    running = subprocess.Popen(
        lab.command(*lab.up_words()), env=lab.environment(), stderr=subprocess.DEVNULL
    )
    Deadline(120).wait(
        "waiting for guests on both",
        lambda: [virsh(hypervisor, "list", "--name") for hypervisor in two_hypervisors],
        until=all,
        every=0.2,
    )
    running.kill()
    running.wait()
    lab.said("down", NAME)
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]


def test_what_a_lost_state_directory_knew_of_is_collected_from_both(lab, two_hypervisors):
    lab.killed_after(lab.up_words(), MACHINES)
    assert all(found(hypervisor) for hypervisor in two_hypervisors)
    shutil.rmtree(lab.state)
    said = lab.said("gc", "--yes")
    assert "removing lab 'two': " in said
    assert "is in no journal" in said
    assert [found(hypervisor) for hypervisor in two_hypervisors] == [set(), set()]
