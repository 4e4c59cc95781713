"""The documented Windows rules, each on its own."""

from dataclasses import replace

import pytest
from netns_intents import cluster

from lab._errors import UsageError
from lab.providers.netns.dns import ResolverFile, candidates
from lab.providers.netns.provider import NetnsProvider
from lab.providers.netns.windows import RULES, realise
from lab.topology.intent import Drop, Intent, MachineIntent
from lab.topology.registry import topologies
from lab.topology.windows_limits import OF_PROXY


def _only(rule: str, intent: Intent) -> MachineIntent:
    return realise(intent, frozenset(RULES) - {rule}).machine("win1")


def test_linux_machines_are_left_alone_and_others_with_every_rule_off():
    assert realise(cluster()).machine("worker1") == cluster().machine("worker1")
    assert realise(cluster(windows=0)) == cluster(windows=0)
    assert realise(cluster(), frozenset(RULES)) == cluster()


def test_every_rule_is_that_of_a_limit_which_has_its_reason_and_source():
    limits = {limit.id for topology in topologies().values() for limit in topology.limits}
    assert set(RULES) == {
        limit
        for limit in limits | {limit.limit.id for limit in OF_PROXY}
        if limit.startswith("WIN-")
    }


def test_own_node_ports_are_lost_on_every_address_of_the_node():
    machine = _only("WIN-NODEPORT-SELF", cluster("overlay"))
    addresses = ("10.244.2.0/32", "10.244.2.1/32", "10.9.176.3/32")
    assert machine.drops == (Drop("WIN-NODEPORT-SELF", addresses, (30000, 32001)),)
    assert _only("WIN-NODEPORT-SELF", cluster(services=False)).drops == ()


def test_service_addresses_are_lost_and_joined_to_prefixes():
    (drop,) = _only("WIN-HOST-SERVICE", cluster(linux=1, windows=1, pods=2)).drops
    assert drop == Drop("WIN-HOST-SERVICE", ("10.96.0.20/30", "10.96.200.1/32", "10.96.200.2/32"))


def test_only_a_2019_has_no_affinity():
    intent = _with_affinity(cluster(), "windows-server-2019")
    kept = _with_affinity(cluster(), "windows-server-2022")
    for whole, expected in ((intent, {None}), (kept, {60})):
        machine = _only("WIN-AFFINITY", whole)
        assert machine.translation
        assert {service.affinity for service in machine.translation.services} == expected


def _with_affinity(intent: Intent, image: str) -> Intent:
    machines = []
    for machine in intent.machines:
        translation = machine.translation
        if translation:
            sticky = tuple(replace(service, affinity=60) for service in translation.services)
            translation = replace(translation, services=sticky)
        hardware = replace(machine.hardware, image=image)
        machines.append(replace(machine, translation=translation, hardware=hardware))
    return replace(intent, machines=tuple(machines))


def test_what_nobody_serves_is_lost_and_own_pods_are_as_others():
    for rule, field in (("WIN-UNSERVED", "refuses"), ("WIN-NODEPORT-OWN-PODS", "short_circuits")):
        machine = _only(rule, cluster())
        assert machine.translation
        assert not getattr(machine.translation, field)
        assert machine == replace(
            cluster().machine("win1"),
            translation=replace(cluster().machine("win1").translation, **{field: False}),  # type: ignore[type-var]
        )


def test_a_node_without_services_has_nothing_to_change():
    bare = cluster(services=False)
    machines = tuple(replace(machine, translation=None) for machine in bare.machines)
    for rule in ("WIN-AFFINITY", "WIN-UNSERVED", "WIN-NODEPORT-OWN-PODS"):
        assert _only(rule, replace(bare, machines=machines)).translation is None


def test_other_nodes_pods_are_lost_on_an_overlay_only():
    (drop,) = _only("WIN-OVERLAY-NODE-POD", cluster("overlay")).drops
    assert drop.destinations == ("10.244.0.0/23",)
    assert drop.spared == ("10.244.2.0/24",)
    assert _only("WIN-OVERLAY-NODE-POD", cluster("host-gateway")).drops == ()


def _resolved(name: str, topology: str, *off: str) -> bool:
    """Whether a pod of the Windows node finds the Service 'web' by that name."""
    intent = replace(cluster("host-gateway"), topology=topology)
    resolver = realise(intent, frozenset(off)).machine("win1").pods[0].resolver
    asked = candidates(name, ResolverFile(resolver.server, resolver.search, resolver.ndots))
    return "web.default.svc.cluster.local." in asked


@pytest.mark.parametrize("topology", ["upstream-tor", "upstream-vrrp", "hard-way"])
def test_each_rule_for_names_forbids_its_own_form_and_no_other(topology):
    short, partial = "WIN-DNS-SHORT", "WIN-DNS-PARTIAL"
    for off in ((), (short,), (partial,), (short, partial)):
        assert _resolved("web", topology, *off) == (short in off)
        assert _resolved("web.default", topology, *off) == (partial in off)
        assert _resolved("web.default.svc.cluster.local.", topology, *off)
    for other in ("overlay", "host-gateway"):
        assert _resolved("web", other)
        assert not _resolved("web.default", other)


def test_a_rule_that_is_not_there_cannot_be_switched_off():
    with pytest.raises(UsageError, match="switching off the Windows rule 'WIN-NONE'"):
        NetnsProvider(frozenset({"WIN-NONE"}))


def test_the_banner_names_what_is_emulated():
    text = "netns: network namespaces on this machine"
    assert NetnsProvider().banner(cluster(windows=0)) == text
    assert NetnsProvider().banner(cluster(windows=1)) == f"{text}; Windows node win1 is emulated"
    off = NetnsProvider(frozenset({"WIN-HOST-SERVICE"}))
    assert off.banner(cluster(windows=2)) == (
        f"{text}; Windows nodes win1, win2 are emulated, without rule WIN-HOST-SERVICE"
    )
