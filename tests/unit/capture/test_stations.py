"""Where a packet shows on its way: every device is there, and each way is whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from shipped import cell_of, cells_of, intent_of

from lab.explain.capture.probe import listening
from lab.providers.netns.compile import compile_intent
from lab.scenario.loader import shipped

EVERY = 37
"""Of a scenario's thousands of cells each so manieth: all families, pairs of all kinds."""


@pytest.mark.parametrize("name", shipped())
def test_every_device_that_is_listened_at_is_there(name):
    intent = intent_of(name)
    there = {(one.namespace, device) for one in compile_intent(intent) for device, _ in one.indexes}
    for cell in cells_of(name)[::EVERY]:
        taps = {(tap.place, tap.device) for tap, _ in listening(intent, cell).taps}
        assert taps <= there, cell.id
        assert taps or listening(intent, cell).end, cell.id


@pytest.mark.parametrize("name", shipped())
def test_what_leaves_one_namespace_comes_into_the_next(name):
    """Between two namespaces a packet leaves by a device of one and comes in by the other's."""
    intent = intent_of(name)
    for cell in cells_of(name)[::EVERY]:
        for there, back in listening(intent, cell).ways:
            for way in (there, back):
                for left, right in pairwise(way):
                    if left.place != right.place:
                        assert (left.passing, right.passing) == ("out", "in"), cell.id


WAYS = [
    ("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small",
     "worker1-p1 eth0 out, worker1 veth1 in, worker1 veth2 out, worker1-p2 eth0 in"),
    ("overlay", "hairpin/worker1-p1/to-worker1-p1/tcp-small",
     ("worker1-p1 eth0 out, worker1 veth1 in, worker1 cni0 in, "
     "worker1 cni0 out, worker1 veth1 out, worker1-p1 eth0 in")),
    ("overlay", "pod-external/worker1-p1/client/tcp-small",
     ("worker1-p1 eth0 out, worker1 veth1 in, worker1 cni0 in, worker1 eth0 out, "
     "router eth0 in, router eth1 out, client eth0 in")),
    ("kubeinit", "pod-node/controller-02-p2/compute-03/tcp-small",
     ("controller-02-p2 eth0 out, controller-02 veth2 in, controller-02 cni0 in, "
     "controller-02 eth0 out, hypervisor-01 vnet1 in, hypervisor-01 vxlan-nodes out, "
     "hypervisor-01 eth0 out, hypervisor-02 eth0 in, hypervisor-02 vxlan-nodes in, "
     "hypervisor-02 vnet1 out, compute-03 eth0 in")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cell", "there"), WAYS)
def test_a_way_is_every_passing_of_a_device(name, cell, there):
    ((way, back),) = listening(intent_of(name), cell_of(name, cell)).ways
    assert ", ".join(f"{one} {one.passing}" for one in way) == there
    turned = [f"{one} {'in' if one.passing == 'out' else 'out'}" for one in reversed(way)]
    assert [f"{one} {one.passing}" for one in back] == turned
