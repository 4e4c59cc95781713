"""What this machine cannot do is said before anything is made, each with its fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from netns_intents import cluster

from lab._errors import PreflightError
from lab.providers.netns import namespaces, operations, preflight
from lab.providers.netns.holders import list_holders
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle

ANY = LabHandle("any", Path("/nowhere"), "0" * 16)


def test_this_machine_is_fit():
    NetnsProvider().preflight(ANY, cluster("overlay"))
    assert "works; needed for every machine and pod" in {
        ability.seen for ability in preflight.try_abilities(tunnels=True, switches=True)
    }
    names = {ability.check for ability in preflight.try_abilities(tunnels=False)}
    assert {"namespaces", "veth", "bridge", "hairpin mode", "nftables"} <= names
    assert "vxlan" not in names


@pytest.fixture
def _fresh_library():
    namespaces.libnftables.cache_clear()
    yield
    namespaces.libnftables.cache_clear()


@pytest.mark.usefixtures("_fresh_library")
def test_a_machine_without_nftables(monkeypatch):
    monkeypatch.setattr(namespaces, "LIBRARY", "libnftables-not-here.so.1")
    with pytest.raises(PreflightError, match="no libnftables, needed for Services") as raised:
        NetnsProvider().preflight(ANY, cluster("overlay"))
    assert "sudo apt-get install" in raised.value.hint


def test_a_kernel_without_vxlan(monkeypatch):
    strange = operations.LinkUp("tunnel")  # a device that is not there stands for the module
    monkeypatch.setattr(
        preflight, "_VXLAN", preflight._Trial("vxlan", "overlay tunnels", strange, "vxlan")
    )
    with pytest.raises(PreflightError, match="no vxlan, needed for overlay tunnels") as raised:
        NetnsProvider().preflight(ANY, cluster("overlay"))
    assert "sudo modprobe vxlan" in raised.value.hint
    NetnsProvider().preflight(ANY, cluster("host-gateway"))


def test_a_neighbour_table_too_small(monkeypatch):
    monkeypatch.setattr(preflight, "_neighbour_limit", lambda: 2)
    with pytest.raises(PreflightError, match="checking the neighbour table") as raised:
        NetnsProvider().preflight(ANY, cluster("overlay"))
    assert raised.value.hint.startswith("sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=")


def test_a_running_lab_is_counted_in(bring_up, monkeypatch):
    running = bring_up(cluster("overlay"))
    # The labs of other tests come and go meanwhile; a hundred of this one are above any change.
    (own,) = [holder for holder in list_holders() if holder.directory == running.lab.directory]
    monkeypatch.setattr(preflight, "list_holders", list)
    before = preflight.machine_room().neighbours_used
    monkeypatch.setattr(preflight, "list_holders", lambda: [own] * 100)
    needed = preflight.lab_need(running.intent).neighbours
    assert 99 * needed < preflight.machine_room().neighbours_used - before < 101 * needed
    running.provider.destroy(running.lab)
