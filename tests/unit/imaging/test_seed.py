import io
import json
import tarfile
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

import pytest

from lab.imaging import medium
from lab.imaging.seed import Identity, SeedCard, seed_files, seed_image

MANAGEMENT = SeedCard(
    "mgmt0",
    "52:54:00:00:00:0A",
    IPv4Interface("10.201.3.10/24"),
    IPv4Address("10.201.3.1"),
    mtu=1400,
)
NODE = SeedCard("eth0", "52:54:00:00:00:0b", mtu=1450)
ASKING = SeedCard("wan0", "52:54:00:00:00:0c", dhcp=True)
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
        found = tar.extractfile(path)
        assert found is not None
        return found.read().decode()


def test_light_tree_has_owners_modes_and_no_secret_that_others_can_read():
    found = light(WHO)
    assert {(member.uid, member.gid, member.uname) for member in found.values()} == {(0, 0, "root")}
    assert found["etc/ssh/ssh_host_ed25519_key"].mode == 0o600
    assert found["root/.ssh"].mode == 0o700
    assert found["root/.ssh/authorized_keys"].mode == 0o600
    assert found["etc/machine-id"].mode == 0o444
    assert all(member.mode == 0o755 for name, member in found.items() if name in {"etc", "root"})


def test_light_tree_says_who_the_machine_is():
    assert text(WHO, "etc/hostname") == "node1\n"
    assert "127.0.1.1 node1" in text(WHO, "etc/hosts")
    assert text(WHO, "root/.ssh/authorized_keys") == "ssh-ed25519 AAAA lab\n"
    assert text(WHO, "etc/ssh/ssh_host_ed25519_key").endswith("KEY-----\n")
    assert len(text(WHO, "etc/machine-id").strip()) == 32
    other = replace(WHO, instance="run2-abc")
    assert text(other, "etc/machine-id") != text(WHO, "etc/machine-id")


def test_cards_are_named_by_mac_and_one_without_address_is_left_alone():
    assert text(WHO, "etc/hybridlab/nics") == (
        "mgmt0 52:54:00:00:00:0a 10.201.3.10/24 10.201.3.1 1400\neth0 52:54:00:00:00:0b - - 1450\n"
    )
    assert "PermanentMACAddress=52:54:00:00:00:0b" in text(WHO, "etc/systemd/network/10-eth0.link")
    assert not [name for name in light(WHO) if name.endswith(".network")]


def test_resolvers_are_those_given_or_the_first_gateway():
    assert text(WHO, "etc/resolv.conf") == "nameserver 10.201.3.1\n"
    told = replace(WHO, dns=(IPv4Address("9.9.9.9"), IPv4Address("1.1.1.1")))
    assert text(told, "etc/resolv.conf") == "nameserver 9.9.9.9\nnameserver 1.1.1.1\n"
    assert "etc/resolv.conf" not in light(replace(WHO, nics=(NODE,)))


def test_networkd_runs_only_where_a_card_asks_for_its_address():
    wanted = "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    assert wanted not in light(WHO)
    asking = replace(WHO, nics=(MANAGEMENT, ASKING))
    assert light(asking)[wanted].issym()
    assert "DHCP=ipv4" in text(asking, "etc/systemd/network/10-wan0.network")


def test_cloud_init_gets_the_same_machine():
    files = seed_files(replace(WHO, nics=(MANAGEMENT, NODE, ASKING)))
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
    assert cards["mgmt0"]["routes"] == [{"to": "0.0.0.0/0", "via": "10.201.3.1"}]
    assert "addresses" not in cards["eth0"]
    assert cards["wan0"]["dhcp4"] is True


def test_seed_is_a_medium_labelled_cidata_and_always_the_same(tmp_path):
    pytest.importorskip("pycdlib")
    image = seed_image(seed_files(WHO))
    assert seed_image(seed_files(WHO)) == image
    path = tmp_path / "seed.iso"
    path.write_bytes(image)
    with medium.opened(path, "reading", "") as found:
        assert found.label == "cidata"
        assert {name: found.read(f"/{name}") for name in found.names()} == seed_files(WHO)
