"""The catalogue of faults: where each can be done, with which commands, and what is refused."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from golden_files import check_golden
from shipped import bare_intent_of, intent_of

from lab._errors import UsageError
from lab.explain.faults import registry
from lab.explain.faults.registry import Fault, FaultCommand, FaultSite
from lab.facts.command_lines import in_powershell, is_powershell, to_run
from lab.lifecycle.faults import batch_commands, script
from lab.topology.gateways import held
from lab.topology.intent import Intent

CASES = Path(__file__).parents[2] / "cases" / "faults"
LEARNING = ("calico-bgp", "upstream-vrrp")
KINDS = ("overlay", "host-gateway", "upstream-tor", "hard-way", "kubeinit", "ovn", *LEARNING)
"""Labs in which every fault of namespaces can be done in one or another."""
EVERY_KIND = (*KINDS, "calico-vxlan", "calico-bgp-tor")
FAULTS = registry.faults()


def of_clusters(fault: Fault) -> bool:
    """Whether it can be done in no lab of namespaces."""
    return not any(registry.sites(fault, bare_intent_of(kind)) for kind in EVERY_KIND)


def text(fault: Fault, lab: Intent, site: FaultSite) -> str:
    peer = site.peers[-1] if site.peers else ""
    change = fault.change(lab, site.node, peer)
    lines = [f"# {fault.name} on {site.node}" + (f", peer {peer}" if peer else "")]
    for title, commands in (("do", change.do), ("undo", change.undo)):
        lines.append(f"{title}:")
        lines += [f"  {command.place}: {command.line}" for command in commands]
    return "".join(f"{line}\n" for line in lines)


def places(fault: Fault) -> str:
    """Where it can be done; of clusters where that is elsewhere than in namespaces."""
    lines = []
    for kind in EVERY_KIND:
        ours, theirs = (
            " ".join(site.node for site in registry.sites(fault, lab))
            for lab in (bare_intent_of(kind), intent_of(kind))
        )
        lines += [f"  {kind}: {ours}"] if ours else []
        lines += [f"  {kind}, as a cluster: {theirs or 'nowhere'}"] if ours != theirs else []
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.room
def test_where_each_fault_can_be_done() -> None:
    """Those with the same places stand together."""
    names: dict[str, list[str]] = {}
    for name, fault in FAULTS.items():
        names.setdefault(places(fault), []).append(name)
    check_golden(CASES / "where.txt", "".join(f"{', '.join(names[key])}:\n{key}" for key in names))


@pytest.mark.room
def test_the_commands_of_faults_of_clusters() -> None:
    """Those of namespaces are run by tests/netns/test_put_in_faults.py and the drills."""
    written = ""
    for fault in filter(of_clusters, FAULTS.values()):
        lab = next(lab for lab in map(intent_of, EVERY_KIND) if registry.sites(fault, lab))
        systems = {machine.name: machine.os for machine in lab.everything()}
        last = {systems[site.node]: site for site in registry.sites(fault, lab)}
        written += "".join(text(fault, lab, site) for site in last.values())
    check_golden(CASES / "clusters.txt", written)


@pytest.mark.parametrize("name", FAULTS)
def test_windows_nodes_of_clusters_get_commands_of_powershell_and_no_other_machine_does(
    name: str,
) -> None:
    fault = FAULTS[name]
    for lab in map(intent_of, EVERY_KIND):
        windows = {machine.name for machine in lab.machines if machine.os == "windows"}
        for site in registry.sites(fault, lab):
            for peer in site.peers[:1] or ("",):
                change = fault.change(lab, site.node, peer)
                commands = (*change.do, *change.undo)
                assert fault.windows or site.node not in windows
                for command in commands:
                    on_windows = command.place in windows
                    assert is_powershell(command.line) == on_windows, command


def test_a_command_of_powershell_is_run_alone_and_by_powershell() -> None:
    script = in_powershell("Get-Service | Where-Object { $_.Name -eq 'it''s' }")
    commands = [FaultCommand("win", "a"), FaultCommand("win", script), FaultCommand("win", "b")]
    assert [*batch_commands(commands)] == [("win", ["a"]), ("win", [script]), ("win", ["b"])]
    *words, encoded = to_run(script)
    assert words == ["powershell", "-NoProfile", "-NonInteractive", "-EncodedCommand"]
    assert b64decode(encoded).decode("utf-16-le") == (
        "$ErrorActionPreference = 'Stop'; Get-Service | Where-Object { $_.Name -eq 'it''s' }"
    )


def test_emulated_windows_nodes_of_namespaces_get_commands_of_linux() -> None:
    lab = bare_intent_of("overlay")
    fault = FAULTS["node-link-down"]
    sites = {site.node for site in registry.sites(fault, lab)}
    assert {machine.name for machine in lab.machines if machine.os == "windows"} <= sites
    for node in sites:
        assert not any(is_powershell(each.line) for each in fault.change(lab, node, "").do)


def test_a_windows_node_is_refused_where_a_fault_is_linuxs() -> None:
    with pytest.raises(UsageError, match="'win1' runs Windows, where it cannot be done"):
        registry.choose(FAULTS["packet-loss"], intent_of("overlay"), "breaking it", "win1")


def test_of_namespaces_faults_of_clusters_are_refused_with_what_they_need() -> None:
    for fault in filter(of_clusters, FAULTS.values()):
        with pytest.raises(UsageError, match=r"it needs .*(cluster|kubeadm)"):
            registry.choose(fault, bare_intent_of("overlay"), "breaking it")


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_and_peer_has_a_change_on_machines_that_are_there(kind: str) -> None:
    for name, fault in FAULTS.items():
        lab = intent_of(kind) if of_clusters(fault) else bare_intent_of(kind)
        names = {machine.name for machine in lab.everything()}
        names |= {pod.name for machine in lab.machines for pod in machine.pods}
        for site in registry.sites(fault, lab):
            assert bool(site.peers) == (fault.peer is not None), name
            assert site.node not in site.peers, name
            for peer in site.peers or ("",):
                change = fault.change(lab, site.node, peer)
                assert change.do, name
                assert change.undo, name
                assert {command.place for command in (*change.do, *change.undo)} <= names, name


def test_what_undoes_a_fault_is_the_same_whoever_holds_the_gateways_meanwhile() -> None:
    lab = bare_intent_of("upstream-vrrp")
    other = held(lab, {gateway.node: gateway.candidates[-1] for gateway in lab.gateways})
    assert [gateway.holder for gateway in lab.gateways] != [
        gateway.holder for gateway in other.gateways
    ]
    for fault in FAULTS.values():
        for site in registry.sites(fault, other):
            for peer in site.peers or ("",):
                undo = fault.change(other, site.node, peer).undo
                assert fault.change(lab, site.node, peer).undo == undo


def test_a_stale_neighbour_is_one_that_is_sent_to() -> None:
    (site,) = registry.sites(FAULTS["stale-neighbour"], bare_intent_of("ovn"))
    assert (site.node, set(site.peers)) == ("router", {"master", "worker1", "worker2"})


def test_what_joins_a_labs_own_hypervisors_can_be_broken_too() -> None:
    lab = bare_intent_of("kubeinit")
    names = {hypervisor.name for hypervisor in lab.hypervisors}
    sites = {
        fault.name: [site for site in registry.sites(fault, lab) if site.node in names]
        for fault in FAULTS.values()
    }
    broken = [name for name, sites in sites.items() if sites]
    assert {"node-link-down", "wrong-vni"} <= set(broken)
    for name in broken:
        assert {site.node for site in sites[name]} == names
        for site in sites[name]:
            assert set(site.peers) == (names - {site.node} if FAULTS[name].peer else set())
        assert registry.choose(FAULTS[name], lab, "trying").node not in names
    assert registry.choose(FAULTS["wrong-vni"], lab, "trying", "hypervisor-02")


def test_a_hypervisors_tunnel_is_put_back_with_all_that_hangs_on_it() -> None:
    lab = bare_intent_of("kubeinit")
    undo = FAULTS["wrong-vni"].change(lab, "hypervisor-02", "").undo
    lines = [command.line for command in undo]
    assert "ip link set dev vxlan-nodes master br-nodes" in lines
    entries = [line for line in lines if line.startswith("bridge fdb")]
    assert len(entries) == len(lab.machine("hypervisor-02").forwarding)
    assert [line for line in entries if "00:00:00:00:00:00" in line] == [
        "bridge fdb append 00:00:00:00:00:00 dev vxlan-nodes dst 203.0.113.1 self permanent"
    ]


BY_OVN = (
    *("dns-unreachable", "masquerade-missing", "mtu-black-hole", "node-link-down", "packet-loss"),
    *("service-backend-stale", "service-rules-missing", "slow-link", "tunnel-udp-dropped"),
)
"""Those that are done by other means than elsewhere."""


def test_the_commands_of_faults_in_a_logical_network() -> None:
    lab = bare_intent_of("ovn")
    written = "".join(
        text(FAULTS[name], lab, registry.sites(FAULTS[name], lab)[0]) for name in BY_OVN
    )
    check_golden(CASES / "in-ovn.txt", written)


def test_an_unknown_fault_names_the_nearest() -> None:
    for wrong, meant in (
        ("wrong-vnni", "'wrong-vni'"),
        ("udp-4789-dropped", "'tunnel-udp-dropped'"),
        ("route", "'route-missing'"),
    ):
        with pytest.raises(UsageError) as raised:
            registry.find("trying", wrong)
        assert meant in raised.value.hint
    for nothing in ("xyzzy", "", "e"):
        with pytest.raises(UsageError) as raised:
            registry.find("trying", nothing)
        assert raised.value.hint == "'lab fault --list' shows every fault"


REFUSED = [
    # fault, topology, node, peer, what happened, what to try
    ("wrong-vni", "host-gateway", "", "", ("it needs a VXLAN tunnel, and no machine of a lab with "
     "topology 'host-gateway' has that"), "overlay"),
    ("wrong-vni", "overlay", "router", "",
     "it needs a VXLAN tunnel, and 'router' does not have that", "--node "),
    ("wrong-vni", "ovn", "", "", ("it needs a VXLAN tunnel, and no machine of a lab with topology "
     "'ovn' has that"),
     "in this lab there can be dns-unreachable, duplicate-pod-address, ip-forward-off, "),
    ("masquerade-missing", "ovn", "win1", "",
     "it needs masquerading of what its pods send to the outside, and 'win1' does not have that",
     "--node master, worker1, worker2"),
    ("wrong-vni", "overlay", "nobody", "", "there is no machine 'nobody'", "--node master, "),
    ("wrong-vni", "overlay", "master", "win1", "it concerns one machine only", "leave '--peer'"),
    ("route-missing", "overlay", "master", "master", "'master' can be no peer of 'master' in it",
     "--peer worker1, worker2, win1, win2"),
    ("route-missing", "overlay", "", "wroker1", "there is no node 'wroker1'",
     "did you mean 'worker1'? --peer worker1, worker2, win1, win2, master"),
    ("duplicate-pod-address", "overlay", "master", "worker1-p9", "there is no pod 'worker1-p9'",
     "did you mean 'worker1-p"),
    ("route-missing", "overlay", "", "router", "'router' can be no peer in it",
     "--peer worker1, worker2, win1, win2"),
    ("wrong-vni", "overlay", "wokrer1", "", "there is no machine 'wokrer1'", "did you mean 'wor"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "node", "peer", "happened", "hint"),
    REFUSED,
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_an_impossible_fault_is_refused_with_the_reason_and_alternatives(  # noqa: PLR0913, PLR0917  a case has as many columns
    name: str, kind: str, node: str, peer: str, happened: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        registry.choose(FAULTS[name], bare_intent_of(kind), "trying", node, peer)
    assert raised.value.happened == happened
    assert hint in raised.value.hint


def test_the_first_machine_and_peer_are_the_defaults() -> None:
    fault, lab = FAULTS["route-missing"], bare_intent_of("overlay")
    assert registry.choose(fault, lab, "trying") == FaultSite("master", ("worker1",))
    assert registry.choose(fault, lab, "trying", peer="master") == FaultSite("worker1", ("master",))


def test_commands_of_one_place_share_a_shell_as_far_as_they_fit() -> None:
    small = [
        FaultCommand("a", "1"),
        FaultCommand("a", "2"),
        FaultCommand("b", "3"),
        FaultCommand("a", "4"),
    ]
    assert list(batch_commands(small)) == [("a", ["1", "2"]), ("b", ["3"]), ("a", ["4"])]
    large = [FaultCommand("a", "x" * 40_000)] * 3
    assert [len(lines) for _, lines in batch_commands(large)] == [1, 1, 1]
    assert list(batch_commands([])) == []


def test_a_shell_stops_at_the_line_that_fails() -> None:
    lines = script(["true", "false", "true"]).splitlines()
    assert lines[0].startswith("set -e;")
    assert lines[1:] == ["at=0", "true", "at=1", "false", "at=2", "true"]


FIGURES = [
    ("packet-loss 5%", "mod 100 < 5 counter drop", "5 % of the packets"),
    ("packet-loss 2.5 %", "mod 1000 < 25 counter drop", "2.5 % of the packets"),
    ("packet-loss 100%", "mod 100 <= 99 counter drop", "100 % of the packets"),
    ("slow-link 100mbit", "tbf rate 100mbit burst 125kb", "at 100 mbit a second"),
    ("slow-link 256kbit", "tbf rate 256kbit burst 16kb", "at 256 kbit a second"),
    ("slow-link 20ms", "root netem delay 20ms", "20 ms late"),
    ("slow-link 2mbit 20ms", "netem delay 20ms rate 2mbit", "20 ms late and at 2 mbit a second"),
]


@pytest.mark.parametrize(("asked", "does", "title"), FIGURES)
def test_fault_with_figures_has_them_in_its_commands_title_and_question(
    asked: str, does: str, title: str
) -> None:
    fault = registry.find("trying", asked)
    name = registry.plain_name(fault.name)
    change = fault.change(bare_intent_of("overlay"), "worker1", "")
    plain = FAULTS[name].change(bare_intent_of("overlay"), "worker1", "")
    assert any(does in command.line for command in change.do)
    assert change.undo == plain.undo, "what removes it needs no figures"
    assert title in fault.title
    assert (
        registry.find("trying", fault.name).change(bare_intent_of("overlay"), "worker1", "")
        == change
    )
    assert ("netem" in fault.asks) == ("ms" in asked)


@pytest.mark.parametrize(
    "asked",
    [
        *("packet-loss 0%", "packet-loss 101%", "packet-loss 5", "packet-loss 5% 6%"),
        *("slow-link 0mbit", "slow-link 1mbit 2mbit", "slow-link 0ms", "slow-link fast"),
        "slow-link 5%;reboot",
    ],
)
def test_words_that_are_no_figures_are_refused_with_those_that_are(asked: str) -> None:
    with pytest.raises(UsageError, match="is not a valid value for") as raised:
        registry.find("trying", asked)
    assert raised.value.hint == FAULTS[registry.plain_name(asked)].figures


def test_fault_without_figures_names_those_that_have_them() -> None:
    with pytest.raises(UsageError, match="'wrong-vni' takes no value") as raised:
        registry.find("trying", "wrong-vni 5%")
    assert "'packet-loss' or 'slow-link'" in raised.value.hint
