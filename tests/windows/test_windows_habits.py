"""Windows' habits against what the product hands to it: hostile where Windows is.

The sources are in docs/how-to/windows.md, "What has stopped others".
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import answers
import pytest
from cluster_nodes import JOIN, decided, seen
from lxml import etree
from powershell_syntax import load
from stand_in.guest import habits
from tables import CASES, table

from lab.explain import check
from lab.facts.signatures import match
from lab.machines.libvirt import documents
from lab.machines.libvirt.documents import VirtualMachine
from lab.topology import registry as topologies
from lab.topology.windows_limits import DNS_SHORT
from lab.windows.images.image_steps import Observe, Sysprep, WsMan, golden_steps
from lab.windows.nodes.network import FLANNEL, STATIC

UNATTEND = "{urn:schemas-microsoft-com:unattend}"
DOCUMENTS = answers.documents()


def commands(document: bytes) -> list[tuple[str, str, str]]:
    """Pass, line and WillReboot of every command that runs in a pass."""
    found = []
    for settings in etree.fromstring(document).iter(f"{UNATTEND}settings"):
        for one in settings.iter(f"{UNATTEND}RunSynchronousCommand"):
            line, reboot = one.findtext(f"{UNATTEND}Path"), one.findtext(f"{UNATTEND}WillReboot")
            found.append((settings.get("pass"), line, reboot or ""))
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_of_a_pass_stop_nothing_and_speak_where_there_is_a_serial_port(name):
    """W1, W17; every echo on COM1 ends in success, also at the first logon."""
    found = commands(DOCUMENTS[name])
    assert [why for one in found if (why := habits.why_it_stops(*one))] == []
    assert not [line for place, line, _ in found if place == "windowsPE" and "COM1" in line]
    assert {reboot for place, _, reboot in found if place != "windowsPE"} == {"Never"}
    for line in re.findall(r"cmd(?:\.exe)? /c [^<]*COM1[^<]*", DOCUMENTS[name].decode()):
        assert "exit /b 0" in line, line


@pytest.mark.parametrize("hours", [-8, 0, 9])
def test_the_clock_is_right_whatever_zone_the_hypervisor_is_in(hours):
    """W6."""
    now, zone = datetime(2026, 11, 21, 12, tzinfo=UTC), timedelta(hours=hours)
    machine = VirtualMachine("windows", "x", "x", True, 1, 1, "bios", "/d", "/c", ())
    offset = etree.fromstring(documents.domain(machine)).find("clock").get("offset")
    rtc = now if offset == "utc" else now + zone
    for document in (DOCUMENTS[answers.CORE], DOCUMENTS["clone"]):
        lines = [line for place, line, _ in commands(document) if place == "specialize"]
        universal = any("RealTimeIsUniversal /t REG_DWORD /d 1 " in line for line in lines)
        for guest in (timedelta(0), timedelta(hours=1)):  # of the recipe's time_zone
            assert habits.guest_utc(rtc, guest, universal=universal) == now


def test_an_evaluation_is_rearmed_and_no_shell_gets_less_memory_than_windows_gives_it():
    """W7: askcore 2011, SkipRearm must not be left for the last sysprep. W15: 2147483647 MB."""
    (seal,) = [step for step in golden_steps("2022", "") if isinstance(step, Sysprep)]
    assert not seal.skip_rearm
    assert not [name for name, document in DOCUMENTS.items() if b"<SkipRearm>1" in document]
    assert not [field for field in WsMan.__dataclass_fields__ if "memory" in field]


@pytest.mark.parametrize("name", [document for document in DOCUMENTS if "virtio" in document])
def test_setup_has_few_driver_paths_and_2025_only_one_that_is_there(name):
    """W8: the drivers are on the answer medium, which is the second CD."""
    paths = [
        one.findtext(f"{UNATTEND}Path")
        for one in etree.fromstring(DOCUMENTS[name]).iter(f"{UNATTEND}PathAndCredentials")
    ]
    assert r"E:\drivers" in paths
    loads = [line for place, line, _ in commands(DOCUMENTS[name]) if place == "windowsPE"]
    if name.startswith("2025"):
        assert paths == [r"E:\drivers"]
        assert set("CDEF") <= set(re.split(r"\W+", loads[0]))
    else:
        assert (len(paths), loads) == (6, [])
        assert r"C:\drivers" in paths


@pytest.mark.parametrize("case", table("powershell/habits"), ids=str)
def test_scripts_meet_habits(case):
    text = load(case["script"]).source.decode()
    assert re.search(case["has"], text)
    assert not ("lacks" in case and re.search(case["lacks"], text))


def test_no_network_is_made_before_flannel_s_overlay():
    """W5: flanneld names the adapter of the node's address, which may not be a virtual one."""
    assert not habits.hns_refuses("Ethernet", switched=False)
    assert "(0x57)" in habits.hns_refuses("vEthernet (Ethernet)", switched=True)
    for topology in ("overlay", "kubeinit", "calico-vxlan"):
        assert decided(topology).hns_network() is None
    bridge = decided("upstream-tor").hns_network()
    assert bridge is not None
    # one network alone: a second one without a card's name lands on a card that is in no switch
    (network,) = bridge.networks
    assert json.loads(network)["Name"] == "l2bridge"
    assert "NetworkAdapterName" not in network  # the node adds it


@pytest.mark.parametrize("topology", sorted(FLANNEL | STATIC))
def test_a_pod_gets_its_own_dns_suffixes_where_short_names_are_expected_to_resolve(topology):
    """W14: with the capability "dns" they take the place of the configuration's."""
    plan = decided(topology)
    (file,) = plan.plugin_files(seen("2022")).files
    config = json.loads(file.text)
    fails = DNS_SHORT in topologies.topologies()[topology].limits
    assert ("dns" in config["capabilities"]) is not fails
    if fails:
        (search,) = (value for key, value in config["dns"].items() if key.lower() == "search")
        assert search == [f"svc.{plan.cluster.domain}"]


def test_words_for_flanneld_on_windows_name_the_task():
    """W18: there is no service of that name."""
    for words in (check.RESTART_FLANNEL, check.RECREATE_NETWORK):
        assert "Start-ScheduledTask -TaskName hybridlab-flanneld" in words
        assert not re.search(r"-Service [^;]*flanneld", words)
    assert "flanneld" not in Observe().services
    assert r"C:\etc\kubernetes\manifests" in decided("overlay").files(JOIN).folders


@pytest.mark.parametrize("name", ["parameter", "adapter", "attached", "diskette"])
def test_recorded_words_of_hns_are_explained_or_met(name):
    recorded = json.loads((CASES / "recorded.json").read_text())
    said = recorded["hns"][name]
    if name == "attached":
        assert "already attached" in said  # what the script takes for success
    elif name == "parameter":
        refused = habits.hns_refuses("vEthernet (Ethernet)", switched=True)
        assert refused.endswith(said)
        assert [match.id for match in match([refused])] == ["hns-parameter"]
    else:
        assert match([said]), said
