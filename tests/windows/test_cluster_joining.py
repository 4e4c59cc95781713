"""A Windows node on its way into a cluster, as a double answers: no Windows is there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping

import pytest
from cluster_node_double import Node
from cluster_nodes import JOIN, decided, join_of
from tables import named, table

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.cluster.cluster import ClusterNode
from lab.shells.shell import Completed, ConnectionLostError, UnreachableError
from lab.windows import step_runner
from lab.windows.nodes import bring_up, paths
from lab.windows.step_runner import StepError

Steps = Mapping[str, Callable[[], object]]
NAMES = [
    *("survey", "earlier-life", "features", "bundle", "containerd", "images", "firewall"),
    *("node", "join", "network", "proxy", "routes", "settled"),
]


CASES = table("joining")


class Api:
    """The cluster's, as far as a joining node goes."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.cidrs: dict[str, str | None] = {}
        self.never = ""

    def registered(self, name: str, deadline: Deadline) -> bool:
        assert deadline.left() > 0
        return name in self.known

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        assert deadline.left() > 0
        if self.never:
            raise DeadlineError(f"waiting for Node '{node.name}'", self.never)
        self.known.add(node.name)
        self.cidrs[node.name] = node.pod_cidr


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def node():
    return Node()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(bring_up, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(step_runner, "LOOK_SECONDS", 0.02)


@pytest.fixture
def joining(node, api):
    def made(topology: str = "overlay", **changes: object) -> bring_up.WindowsBringUp:
        plan = decided(topology)
        given = {"shell": node, "join": lambda: join_of(plan), "api": api, **changes}
        runner = bring_up.Runner(given.pop("shell"))
        return bring_up.WindowsBringUp(plan, runner, **given)

    return made


@pytest.fixture
def way(joining):
    def made(topology: str = "overlay", **changes: object) -> Steps:
        return joining(topology, **changes).steps()

    return made


def through(steps: Steps) -> None:
    for run in steps.values():
        run()


def up_to(steps: Steps, name: str) -> Callable[[], object]:
    """All before a step are run; the step."""
    for before in itertools.takewhile(name.__ne__, steps):
        steps[before]()
    return steps[name]


@pytest.mark.parametrize("topology", ["overlay", "host-gateway", "upstream-tor", "hard-way"])
def test_node_gets_into_its_cluster_and_a_second_run_changes_nothing(topology, node, way, api):
    plan = decided(topology)
    node.vip = plan.network.endpoint_address or node.vip
    steps = way(topology)
    assert [*steps] == NAMES
    through(steps)
    assert api.cidrs == {plan.node.name: plan.node.pod_cidr}
    for service in ("containerd", "kubelet", "kube-proxy"):
        assert node.services[service]["state"] == "Running"
    assert node.services["kube-proxy"]["depends"] == ["kubelet"]
    assert node.services["kubelet"]["depends"] == ["containerd"]
    assert plan.network.name in {network["name"] for network in node.networks}
    node.changed.clear()
    through(way(topology))
    assert node.changed == []


PROGRAMS = [
    *("features", "node-bundle", "containerd", "registry-mirrors", "node-images", "firewall"),
]


def test_programs_are_there_before_there_is_a_control_plane(joining, node):
    joining(join=lambda: pytest.fail("there is no control plane yet")).prepare()
    assert node.steps == ["node-survey", *PROGRAMS]
    through(joining(prepared=True).steps())
    assert [step for step in node.steps if step in PROGRAMS] == PROGRAMS


def test_programs_that_are_in_place_are_not_copied(joining, node):
    names = [program.name for program in decided("overlay").bundle_programs()]
    joining(in_place=lambda: names[1:]).prepare()
    assert node.steps.count("node-bundle") == 1
    (copied,) = node.given["node-bundle"]["files"]
    assert copied["source"].endswith(names[0])
    node.steps.clear()
    joining(in_place=lambda: names).prepare()
    assert "node-bundle" not in node.steps
    assert "containerd" in node.steps


@pytest.mark.parametrize("left", [paths.KUBELET_CONF, paths.SOURCE_VIP])
def test_programs_of_what_has_been_a_node_wait_until_it_is_clean(left, joining, node):
    node.there.add(left)
    joining().prepare()
    assert node.steps == ["node-survey"]
    through(joining(prepared=True).steps())
    assert node.steps[1:].index("node-leave") < node.steps[1:].index("node-bundle")


def test_a_network_flanneld_cannot_make_is_reported_with_its_message_and_meaning(
    node, way, monkeypatch
):
    """W5, of the habit itself: a node whose card is in a virtual switch already."""
    monkeypatch.setattr(bring_up, "BACK_SECONDS", 0.5)
    step = up_to(way(), "network")
    node.networks.append({"name": "nat", "type": "nat", "prefix": "172.24.144.0/20"})
    with pytest.raises(StepError, match=r"HostComputeNetwork flannel\.4096(.|\n)*that means: "):
        step()


@pytest.mark.parametrize("step", ["node-task", "hns-clean"])
def test_step_that_cuts_its_own_shell_off_is_run_again(step, node, way):
    if step == "hns-clean":
        node.networks.append({"name": "External", "type": "Overlay", "prefix": "192.168.255.0/30"})

    def cut() -> Completed:
        del node.before[step]
        raise ConnectionLostError("a double", "connection reset")

    node.before[step] = cut
    through(way())
    assert node.steps.count(step) == 2


def test_token_leaves_nothing_on_the_guest(node, way):
    through(way())
    left = b"".join(node.files.values())
    assert JOIN.token.encode() not in left
    assert JOIN.proxy_kubeconfig not in left
    assert not [line for line in node.lines if JOIN.token in line]


def test_plugin_comes_only_when_the_network_is_there(node, way):
    node.looks_until_made = 3
    node.vip = decided("host-gateway").network.endpoint_address or ""
    through(way("host-gateway"))
    order = [name for name in node.steps if name in {"hns-state", "node-task", "node-files"}]
    assert order[-1] == "node-files"
    assert order.count("hns-state") >= 5
    assert f"{paths.CNI_CONF}\\10-flannel.conf" in node.texts


def test_reboot_that_a_step_asks_for_is_made_and_proved(node, way):
    node.once["features"] = [True]
    through(way())
    assert node.boots == 1


@pytest.mark.parametrize("case", CASES["refused"], ids=named)
def test_node_that_cannot_be_one_is_refused_before_anything_changes(case, node, way):
    vars(node).update(case["fault"])
    with pytest.raises(BrokenError, match=case["said"]):
        through(way())
    assert set(node.steps) == {"node-survey"}
    assert node.changed == []


@pytest.mark.parametrize("case", CASES["evaluations"])
def test_an_evaluation_that_ends_soon_is_warned_of(case, node, way, capsys):
    node.evaluation = case["minutes"]
    through(way())
    heard = capsys.readouterr().err
    assert case["said"] in heard
    assert ("evaluation" in heard) == bool(case["said"])


@pytest.mark.parametrize("case", CASES["failed"], ids=named)
def test_a_failed_join_is_reported_with_the_nodes_message_and_meaning(case, node, way, api):
    for one in (api, node):
        vars(one).update(case["fault"])
    with pytest.raises(StepError, match=case["said"]):
        through(way(case.get("topology", "overlay")))


def test_node_that_never_comes_back_is_given_up_with_the_last_that_was_seen(node, way, monkeypatch):
    monkeypatch.setattr(bring_up, "BACK_SECONDS", 0.5)
    step = up_to(way("upstream-tor"), "network")

    def away(_: str) -> None:
        """The link drops, and nothing brings it back."""
        node.away = True

    monkeypatch.setattr(bring_up, "say", away)
    with pytest.raises(DeadlineError) as caught:
        step()
    words = str(caught.value)
    assert "waiting for 'node009' to come back with its HNS networks" in words
    assert "'win1' does not answer" in words
    assert "C:\\hybridlab\\log" in caught.value.hint


def test_networks_that_never_come_are_given_up_with_what_there_is(node, way, monkeypatch):
    monkeypatch.setattr(bring_up, "BACK_SECONDS", 0.5)
    node.looks_until_made = 10_000
    step = up_to(way("upstream-tor"), "network")
    with pytest.raises(DeadlineError, match="hns-make is Running, it has no HNS network"):
        step()


def test_a_network_on_another_card_is_not_taken_for_the_nodes(node, way, monkeypatch):
    """X1: HNS puts a network without a card's name on a card that is in no switch."""
    monkeypatch.setattr(bring_up, "BACK_SECONDS", 0.5)
    step = up_to(way("upstream-tor"), "network")
    nat = {"name": "nat", "type": "nat", "prefix": "", "management": "", "vsid": 0}
    node.networks.append(nat)
    with pytest.raises(DeadlineError, match=r"'l2bridge' is on the card of 198\.51\.100\.5"):
        step()


def test_an_overlay_that_a_plugin_made_before_flanneld_is_made_anew(node, way):
    """X3: after a restart sdnoverlay finds subnet.env, and makes the network without its VSID."""
    step = up_to(way(), "network")
    bare = {"name": "flannel.4096", "type": "Overlay", "prefix": "10.244.3.0/24"}
    node.networks.append({**bare, "management": decided("overlay").node.address, "vsid": 0})
    node.there.add(paths.SUBNET_ENV)
    step()
    assert [network["vsid"] for network in node.networks] == [4096]


def test_an_overlay_that_stays_without_its_vsid_is_not_flannels(node, way, monkeypatch):
    """X3, where nobody removes it."""
    monkeypatch.setattr(bring_up, "BACK_SECONDS", 0.5)

    def forget_vsids() -> None:
        for network in node.networks:
            network["vsid"] = 0

    node.before["hns-state"] = forget_vsids
    step = up_to(way(), "network")
    with pytest.raises(StepError, match=r"'flannel\.4096' has VSID 0, not 4096"):
        step()


def test_link_that_drops_while_networks_are_made_is_waited_out(node, way):
    node.looks_until_made = 2
    drops = iter((ConnectionLostError, UnreachableError))

    def drop() -> None:
        for kind in drops:
            raise kind("a double", "connection reset")

    node.before["hns-state"] = drop
    through(way("upstream-tor"))
    assert next(drops, None) is None


@pytest.mark.parametrize("last", ["bundle", "join", "network", "proxy"])
def test_way_that_was_cut_off_after_a_step_goes_on(last, node, way):
    """As after a kill: what was done is done again, and finds itself done."""
    up_to(way(), last)()
    through(way())
    node.changed.clear()
    through(way())
    assert node.changed == []
    assert node.boots == 0


@pytest.mark.parametrize(
    "at", ["node-join", "hns-network", "node-task", "source-vip", "node-service"]
)
def test_step_that_breaks_midway_is_fixed_by_the_next_run(at, node, way, api):
    def broken() -> Completed:
        del node.before[at]
        return Completed(1, "", "killed")

    node.before[at] = broken
    node.vip = decided("host-gateway").network.endpoint_address or ""
    with pytest.raises(BrokenError):
        through(way("host-gateway"))
    through(way("host-gateway"))
    assert api.known == {"win1"}
    assert node.services["kube-proxy"]["state"] == "Running"


def test_node_that_was_deleted_is_cleaned_rebooted_and_joins_again(node, way, api):
    through(way())
    api.known.clear()
    node.steps.clear()
    through(way())
    order = [name for name in node.steps if name in {"node-leave", "hns-clean", "node-join"}]
    assert order == ["node-leave", "hns-clean", "node-join"]
    assert node.boots == 1
    assert api.known == {"win1"}


def test_node_that_got_a_certificate_and_no_node_joins_again_without_a_reboot(node, way, api):
    """Cut off between the two: nothing of a network is there, so nothing needs a restart."""
    up_to(way(), "network")
    api.known.clear()
    through(way())
    assert node.steps.count("node-leave") == 1
    assert node.steps.count("node-join") == 2
    assert "hns-clean" not in node.steps
    assert node.boots == 0


@pytest.mark.parametrize("known", [False, True])
def test_networks_of_an_earlier_life_go_before_a_node_that_never_joined(known, node, way, api):
    """Also those of a machine that was made anew: the Node of its name is of the one before."""
    api.known |= {"win1"} if known else set()
    node.networks.append({"name": "cbr0", "type": "L2Bridge", "prefix": "10.1.0.0/24"})
    through(way())
    assert "hns-clean" in node.steps
    assert "cbr0" not in {network["name"] for network in node.networks}
    assert node.boots == 1


def test_address_of_an_earlier_life_is_not_used(node, way):
    node.vip = "10.99.0.2"
    with pytest.raises(BrokenError, match=r"says 10.99.0.2, which is not in its pod CIDR 10.244"):
        through(way())


@pytest.mark.parametrize(
    ("services", "said"),
    [
        (
            {"kubelet": {"start": "Manual"}, "kube-proxy": {"state": "StopPending"}},
            "kubelet starts Manual, kube-proxy is StopPending, task flanneld is Ready",
        ),
        ({"kube-proxy": {"depends": []}}, "kube-proxy does not depend on kubelet"),
    ],
)
def test_service_that_would_not_come_back_after_a_restart_is_named(
    services, said, node, way, monkeypatch
):
    monkeypatch.setattr(bring_up, "HEALTH_SECONDS", 0.5)
    step = up_to(way(), "settled")
    for name, change in services.items():
        node.services[name] |= change
    if "kubelet" in services:
        node.tasks["flanneld"] = "Ready"
    with pytest.raises(DeadlineError, match=said):
        step()


def test_by_hand_nobody_asks_for_kubeadm(node, way):
    through(way("hard-way"))
    assert "node-join" not in node.steps
    config = json.loads(node.texts[paths.KUBELET_CONFIG])
    assert config["clusterDNS"] == ["10.32.0.10"]
    assert "--bootstrap-kubeconfig" not in node.services["kubelet"]["command"]
