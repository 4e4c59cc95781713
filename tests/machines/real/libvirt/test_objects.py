"""Networks, pools, volumes and domains on a real libvirtd, with strangers of like names beside."""

import os
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from drill import define, lab_pool, owner_of  # noqa: E402
from real_lab import objects  # noqa: E402

from lab._errors import BrokenError, PreflightError  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.machines.libvirt import (  # noqa: E402
    connection,
    documents,
    domains,
    images,
    networks,
    ownership,
    storage,
)
from lab.machines.libvirt.host import Host  # noqa: E402
from lab.machines.libvirt.owned import remove_lab  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402
from lab.topology.intent import Segment  # noqa: E402

POOL = IPv4Network("10.217.0.0/22")
CLUSTER = Segment("cluster", "10.9.0.0/24", 1400)


@pytest.fixture
def host(tmp_path):
    host = Host(Hypervisor(name="local", uri="qemu:///system", storage=str(tmp_path)))
    try:
        before = objects(host.connected, "objects-")
    except PreflightError as error:
        pytest.skip(f"no libvirtd: {error.happened}")
    yield host
    assert objects(host.connected, "objects-") == before
    host.connected.close()


@pytest.fixture
def lab(host, tmp_path):
    handle = LabHandle("objects", tmp_path / "labs" / "objects", os.urandom(8).hex())
    yield handle
    remove_lab(host, handle.token)


def management(host: Host, lab: LabHandle, *machines: str) -> IPv4Network:
    return networks.ensure_management(
        host.connected, lab, owner_of(lab), machines, pool=POOL, mtu=1400
    )


def made_pool(host: Host, lab: LabHandle) -> Any:
    return lab_pool(host.connected, lab, storage.lab_path(host.hypervisor.storage, lab.token))


def made(host: Host, lab: LabHandle, machine: str) -> Any:
    """A domain that is defined and has a disk; it boots nothing."""
    pool = made_pool(host, lab)
    disk = storage.write(pool, f"{machine}.raw", b"\0" * 512)
    backing = Path(host.hypervisor.storage) / f"{machine}-empty.qcow2"
    run_program(["qemu-img", "create", "-q", "-f", "qcow2", backing, "1M"])
    clone = storage.clone(pool, f"{machine}.qcow2", str(backing), 1 << 20)
    return define(pool, owner_of(lab, machine), clone, disk)


def test_a_management_network_is_made_once_and_keeps_its_range(host, lab):
    first = management(host, lab, "a", "b")
    again = management(host, lab, "a", "b")
    assert first == again
    assert first.subnet_of(POOL)
    found = networks.find(host.connected, lab, ownership.MANAGEMENT)
    assert found is not None
    assert found.isActive()
    assert networks.addresses_of(found.XMLDesc()) == {"a": str(first[10]), "b": str(first[11])}


def test_ranges_that_are_in_use_are_passed_over(host, lab):
    taken = [f"{subnet[1]}/24" for subnet in POOL.subnets(new_prefix=24)][:3]
    run_program(["ip", "link", "add", "hltaken", "type", "bridge"])
    try:
        run_program(["ip", "link", "set", "hltaken", "up"])
        for address in taken:
            run_program(["ip", "address", "add", address, "dev", "hltaken"])
        subnet = management(host, lab, "a")
        assert subnet == IPv4Network("10.217.3.0/24")
        remove_lab(host, lab.token)
        run_program(["ip", "address", "add", "10.217.3.1/24", "dev", "hltaken"])
        with pytest.raises(PreflightError, match=r"every /24 of 10\.217\.0\.0/22 is in use"):
            management(host, lab, "a")
    finally:
        run_program(["ip", "link", "delete", "hltaken"])


def test_a_segment_with_another_mtu_is_made_anew(host, lab):
    networks.ensure_segment(host.connected, lab, owner_of(lab), CLUSTER)
    networks.ensure_segment(host.connected, lab, owner_of(lab), replace(CLUSTER, mtu=1350))
    bridge = ownership.bridge_name(lab, "cluster")
    assert Path(f"/sys/class/net/{bridge}/mtu").read_text().strip() == "1350"
    addresses = run_program(["ip", "-4", "-brief", "address", "show", bridge]).stdout
    assert "/" not in addresses, "the hypervisor has no address on a segment"


def test_what_is_written_into_a_volume_is_read_back(host, lab):
    pool = made_pool(host, lab)
    content = os.urandom(3_000_001)
    path = storage.write(pool, "seed", content)
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"
    assert storage.read(pool, "seed") == content
    assert storage.read(pool, "seed", -100) == content[-100:]
    assert storage.read(pool, "not there") is None
    storage.write(pool, "seed", b"new")
    assert storage.read(pool, "seed") == b"new"


def test_a_domain_runs_is_saved_goes_on_and_goes(host, lab):
    domain = made(host, lab, "a")
    assert domains.state(domain) == "off"
    assert domains.start(domain) == "off"
    assert domains.start(domain) == "running"
    assert domains.screenshot(domain)
    assert domains.save(domain)
    assert not domains.save(domain)
    assert domains.state(domain) == "saved"
    assert domains.start(domain) == "saved"
    assert domains.state(domain) == "running"
    domain.suspend()
    assert domains.state(domain) == "paused"
    assert domains.start(domain) == "paused"


def test_destroying_takes_all_of_a_lab_and_nothing_of_others(host, lab):
    """A stranger's domain, network and pool have the lab's name; so has another lab of ours."""
    twin = replace(lab, token=lab.token[:4] + os.urandom(6).hex())
    stranger = f"{ownership.name_prefix(lab)}-stranger"
    storage = Path(host.hypervisor.storage)
    (storage / "theirs").mkdir()
    domain = host.connected.defineXML(
        f"<domain type='qemu'><name>{stranger}</name><memory unit='MiB'>32</memory>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    network = host.connected.networkDefineXML(f"<network><name>{stranger}</name></network>")
    pool = host.connected.storagePoolDefineXML(
        documents.pool(stranger, ownership.object_uuid(twin, "x", "x"), str(storage / "theirs"))
    )
    try:
        management(host, lab, "a")
        networks.ensure_segment(host.connected, lab, owner_of(lab), CLUSTER)
        made(host, lab, "a").create()
        made(host, lab, "b")
        removed = remove_lab(host, lab.token)
        assert len(removed) == 5, removed
        assert remove_lab(host, lab.token) == ()
        left = objects(host.connected, "objects-")
        assert {f"domain {stranger}", f"network {stranger}", f"pool {stranger}"} <= left
        assert not (storage / "hybridlab" / "labs" / lab.token).exists()
    finally:
        domain.undefine()
        network.undefine()
        pool.undefine()


def test_a_stranger_with_our_name_is_refused_not_touched(host, lab):
    name = ownership.domain_name(lab, "a")
    domain = host.connected.defineXML(
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    try:
        with pytest.raises(BrokenError, match="does not belong to this lab"):
            domains.find(host.connected, lab, "a")
        assert remove_lab(host, lab.token) == ()
        assert f"domain {name}" in objects(host.connected, "objects-")
    finally:
        domain.undefine()


def test_pools_of_labs_are_recognised_by_their_path():
    assert storage.token_of(storage.lab_path("/srv", "abc")) == "abc"
    assert storage.token_of("/srv/abc") is None
    assert storage.token_of(storage.images_path("/srv")) is None


def test_copies_of_images_go_unless_current_or_in_use(host, lab, monkeypatch):
    """Any disk may be a clone of a copy: this lab's, or one of another controller's."""
    monkeypatch.setattr(ownership, "IMAGES_POOL", "objects-images")
    digests = {name: os.urandom(32).hex() for name in ("old", "new", "used")}
    shared = storage.ensure_pool(
        host.connected,
        "objects-images",
        ownership.object_uuid(lab, "pool", "images"),
        storage.images_path(host.hypervisor.storage),
    )
    try:
        for name, digest in digests.items():
            storage.write(shared, f"{name}-{digest[:16]}.qcow2", b"x")
            storage.write(shared, f"{name}-{digest[:16]}.qcow2.ok", b"\n")
        backing = f"{storage.directory_of(shared)}/used-{digests['used'][:16]}.qcow2"
        run_program(["qemu-img", "create", "-q", "-f", "qcow2", backing, "1M"])
        pool = made_pool(host, lab)
        storage.clone(pool, "a.qcow2", backing, 1 << 20)
        old = f"old-{digests['old'][:16]}.qcow2"
        dry = images.collect_copies(host, [digests["new"]], yes=False)
        assert dry.names == (old, f"{old}.ok")
        assert images.collect_copies(host, [digests["new"]], yes=True).names == dry.names
        assert images.collect_copies(host, [digests["new"]], yes=True).names == ()
        assert len(shared.listAllVolumes()) == 4
    finally:
        storage.remove_pool(shared)


def test_what_others_remove_while_it_is_looked_at_is_passed_over(host):
    network = host.connected.networkDefineXML("<network><name>objects-going</name></network>")
    listed = host.connected.listAllNetworks()
    network.undefine()
    names = [one.name() for one, _ in connection.each(listed, lambda one: one.XMLDesc())]
    assert "objects-going" not in names
