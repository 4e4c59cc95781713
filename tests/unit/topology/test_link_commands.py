"""Slow and lossy links: the commands that make them, what they need, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shipped import bare_intent_of, intent_of

from lab.scenario.terms import Impairment
from lab.topology.intent import Intent, MachineIntent
from lab.topology.links import (
    abilities,
    impaired,
    is_shape,
    link_script,
    link_words,
    shape_of,
    unfit_links,
)

SLOW = Impairment(rate=10_000_000)
LATE = Impairment(delay=20, rate=1_500_000)
LOSSY = Impairment(loss=0.5)


def machine(**links: Impairment) -> MachineIntent:
    return replace(bare_intent_of("overlay").machine("worker1"), **links)


def lab(*names: str, scenario: str = "overlay", **links: Impairment) -> Intent:
    intent = bare_intent_of(scenario)
    machines = (
        replace(machine, **links) if machine.name in names else machine
        for machine in intent.machines
    )
    return replace(intent, machines=tuple(machines))


@pytest.mark.parametrize(
    ("impairment", "shape"),
    [
        (None, ""),
        (LOSSY, ""),
        (SLOW, "tbf rate 10mbit burst 16kb latency 100ms"),
        (Impairment(rate=1_000_000_000), "tbf rate 1gbit burst 1250kb latency 100ms"),
        (Impairment(delay=20), "netem delay 20ms"),
        (LATE, "netem delay 20ms rate 1500kbit"),
    ],
)
def test_a_delay_takes_netem_and_a_rate_alone_does_not(impairment, shape):
    assert shape_of(impairment) == shape


def test_what_is_sent_waits_at_the_card_and_what_is_received_behind_another_device():
    script = link_script(machine(sends=SLOW, receives=LATE)).splitlines()
    assert f"tc qdisc replace dev eth0 root handle 1: {shape_of(SLOW)}" in script
    assert f"tc qdisc replace dev ifb-arrivals root handle 2: {shape_of(LATE)}" in script
    assert script.index('fwd to "ifb-arrivals"') > script.index("chain ingress {")
    assert "numgen" not in "".join(script)


@pytest.mark.parametrize(("sends", "hook"), [(True, "egress"), (False, "ingress")])
def test_packets_are_lost_in_their_direction_alone(sends, hook):
    script = link_script(machine(sends=LOSSY) if sends else machine(receives=LOSSY)).splitlines()
    assert [line for line in script if line.startswith("chain")] == [f"chain {hook} {{"]
    assert "numgen random mod 1000 < 5 counter drop" in script


def test_the_script_of_a_link_as_any_other_undoes_what_an_earlier_one_did():
    script = link_script(machine())
    assert "then tc qdisc del dev eth0 root" in script
    assert "then ip link delete dev ifb-arrivals" in script
    assert script.index("delete table netdev slow-links") < script.index("ip link delete")
    assert "chain" not in script


def test_only_what_links_need_is_asked_of_the_kernel():
    def names(**links: Impairment) -> list[str]:
        return [ability.name for ability in abilities(lab("worker1", **links))]

    assert names() == []
    assert names(sends=SLOW) == ["tbf"]
    assert names(sends=LATE) == ["netem"]
    assert names(receives=SLOW) == ["tbf", "ifb", "nftables at network cards"]
    assert names(receives=LOSSY) == ["nftables at network cards"]


def test_links_are_described_together_where_they_are_alike():
    intent = lab("worker1", "worker2", sends=LATE, receives=LATE)
    assert link_words(intent) == (
        "links of worker1, worker2: sends and receives 20 ms late, at 1500kbit"
    )
    assert link_words(lab("worker1", sends=LOSSY, receives=SLOW)) == (
        "link of worker1: sends with 0.5 % lost, receives at 10mbit"
    )
    assert link_words(lab()) == ""
    assert impaired(lab()) == ()


def test_a_cluster_has_no_slow_link_on_windows():
    emulated = lab("win1", sends=SLOW)
    assert unfit_links(emulated) == ""
    cluster = replace(emulated, kubernetes=intent_of("overlay").kubernetes)
    assert "'win1' runs Windows" in unfit_links(cluster)


def test_behind_a_switch_in_user_space_a_link_only_sends():
    assert "direction: sends" in unfit_links(lab("worker1", scenario="ovn", receives=LOSSY))
    assert unfit_links(lab("worker1", scenario="ovn", sends=LOSSY)) == ""


@pytest.mark.parametrize(
    ("queue", "shape", "same"),
    [
        ("tbf rate 10Mbit burst 16Kb lat 100ms", shape_of(SLOW), True),
        ("tbf rate 1Mbit burst 16Kb lat 100ms", shape_of(SLOW), False),
        ("netem limit 1000 delay 20ms rate 1500Kbit", shape_of(SLOW), False),
        ("netem limit 1000 delay 20ms rate 1500Kbit", shape_of(LATE), True),
        ("netem limit 1000 delay 20.0ms rate 1500Kbit", shape_of(LATE), True),
        ("netem limit 1000 delay 30ms rate 1500Kbit", shape_of(LATE), False),
        ("tbf rate 10Mbit burst 16Kb lat 100ms", "", False),
    ],
)
def test_a_queue_is_known_by_its_figures_as_tc_prints_them(queue, shape, same):
    assert is_shape(queue, shape) is same
