import io
import json
import tarfile
from dataclasses import replace
from ipaddress import IPv4Interface

import pytest

from lab.machines.images import medium
from lab.machines.images.seed import Identity, SeedCard, seed_files, seed_image

MANAGEMENT = SeedCard(
    "mgmt0",
    "52:54:00:00:00:0A",
    IPv4Interface("10.201.3.10/24"),
    mtu=1400,
)
NODE = SeedCard("eth0", "52:54:00:00:00:0b", mtu=1450)
WHO = Identity(
    instance="run1-abc",
    hostname="node1",
    user="debian",
    authorized_key="ssh-ed25519 AAAA lab",
    host_key="-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n",
    host_key_public="ssh-ed25519 BBBB node1",
    nics=(MANAGEMENT, NODE),
)


def light(identity: Identity) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(seed_files(identity)["light.tar"])) as tar:
        return {member.name: member for member in tar}


def text(identity: Identity, path: str) -> str:
    with tarfile.open(fileobj=io.BytesIO(seed_files(identity)["light.tar"])) as tar:
        member = tar.extractfile(path)
        assert member is not None
        return member.read().decode()


def test_light_tree_has_owners_modes_and_no_secret_that_others_can_read():
    tar_infos = light(WHO)
    assert {(member.uid, member.gid, member.uname) for member in tar_infos.values()} == {
        (0, 0, "root")
    }
    assert tar_infos["etc/ssh/ssh_host_ed25519_key"].mode == 0o600
    assert tar_infos["root/.ssh"].mode == 0o700
    assert tar_infos["root/.ssh/authorized_keys"].mode == 0o600
    assert tar_infos["etc/machine-id"].mode == 0o444
    assert all(
        member.mode == 0o755 for name, member in tar_infos.items() if name in {"etc", "root"}
    )


def test_light_tree_names_the_machine():
    assert text(WHO, "etc/hostname") == "node1\n"
    assert "127.0.1.1 node1" in text(WHO, "etc/hosts")
    assert text(WHO, "root/.ssh/authorized_keys") == "ssh-ed25519 AAAA lab\n"
    assert text(WHO, "etc/ssh/ssh_host_ed25519_key").endswith("KEY-----\n")
    assert len(text(WHO, "etc/machine-id").strip()) == 32
    other = replace(WHO, instance="run2-abc")
    assert text(other, "etc/machine-id") != text(WHO, "etc/machine-id")


def test_cards_are_named_by_mac_and_one_without_address_is_left_alone():
    assert text(WHO, "etc/hybridlab/nics") == (
        "mgmt0 52:54:00:00:00:0a 10.201.3.10/24 - 1400\neth0 52:54:00:00:00:0b - - 1450\n"
    )
    assert "PermanentMACAddress=52:54:00:00:00:0b" in text(WHO, "etc/systemd/network/10-eth0.link")
    assert not [name for name in light(WHO) if name.endswith((".network", "resolv.conf"))]


def test_cloud_init_gets_the_same_machine():
    files = seed_files(WHO)
    assert files["meta-data"] == b"instance-id: run1-abc\nlocal-hostname: node1\n"
    head, _, body = files["user-data"].partition(b"\n")
    assert head == b"#cloud-config"
    user = json.loads(body)
    assert user["users"][0]["name"] == "debian"
    assert user["users"][0]["ssh_authorized_keys"] == ["ssh-ed25519 AAAA lab"]
    assert user["ssh_keys"]["ed25519_private"] == WHO.host_key
    assert user["ssh_genkeytypes"] == ["ed25519"]
    cards = json.loads(files["network-config"])["ethernets"]
    assert cards["mgmt0"]["addresses"] == ["10.201.3.10/24"]
    assert cards["mgmt0"]["match"] == {"macaddress": "52:54:00:00:00:0a"}
    assert "addresses" not in cards["eth0"]
    assert not any(card["dhcp4"] or "routes" in card for card in cards.values())


def test_seed_is_a_medium_labelled_cidata_and_always_the_same(tmp_path):
    pytest.importorskip("pycdlib")
    image = seed_image(seed_files(WHO))
    assert seed_image(seed_files(WHO)) == image
    path = tmp_path / "seed.iso"
    path.write_bytes(image)
    with medium.opened(path, "reading", "") as found:
        assert found.label == "cidata"
        assert {name: found.read(f"/{name}") for name in found.names()} == seed_files(WHO)
