"""Whether a lab fits, what mends a refused namespace, and how many probes go at once."""

import errno
from dataclasses import replace
from itertools import count

import pytest
from netns_intents import cluster

from lab._errors import PreflightError
from lab.lifecycle.compilation import compile_scenario
from lab.providers.netns import isolation
from lab.providers.netns.preflight import NetnsNeed, NetnsRoom, check_capacity, lab_need
from lab.providers.netns.provider import batches
from lab.providers.provider import Probe, ProbeSettings

ROOM = NetnsRoom(1024, 10, 20_000, 15_000, 4_096, 2_000)
NEED = NetnsNeed(18, 7)


def test_a_small_lab_fits_a_usual_machine():
    check_capacity(lab_need(cluster()), ROOM)


@pytest.mark.parametrize(
    ("need", "room", "says", "hint"),
    [
        pytest.param(
            NEED,
            replace(ROOM, neighbours_used=1018),
            "neighbour table.* about 7 entries and 1,018 are in use.* is limited to 1,024",
            "sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=4096",
            id="neighbours",
        ),
        pytest.param(
            NetnsNeed(10_000, 7), ROOM, "open files: .*needs 30,256", "prlimit", id="descriptors"
        ),
        pytest.param(
            NetnsNeed(5_000, 7),
            replace(ROOM, network_namespaces=100),
            "network namespaces: .*needs 5,000, the limit is 100",
            "sudo sysctl -w user.max_net_namespaces=16384",
            id="namespaces",
        ),
        pytest.param(NEED, replace(ROOM, processes=3), "processes", "ulimit -u", id="processes"),
        pytest.param(
            NetnsNeed(2_104, 7, 2_001),
            ROOM,
            "memory: .*needs about 2,001 MiB, and 2,000 MiB are free",
            "fewer pods",
            id="memory",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cure(need, room, says, hint):
    with pytest.raises(PreflightError, match=says) as raised:
        check_capacity(need, room)
    assert hint in raised.value.hint


def test_permanent_entries_are_not_counted_and_missing_ones_are():
    check_capacity(NEED, replace(ROOM, neighbours_used=1017))  # to its last entry
    intent = cluster(linux=2, windows=1, pods=2)
    assert lab_need(intent).neighbours == len(intent.machines) == 5
    bare = tuple(replace(machine, neighbours=()) for machine in intent.machines)
    # One router for each of three nodes and the client, and two tunnel ends for each node.
    assert lab_need(replace(intent, machines=bare)).neighbours == 5 + 4 + 3 * 2
    assert lab_need(cluster(linux=1, windows=0, pods=2)).namespaces == 1 + 1 + 2 + 2


@pytest.mark.parametrize(
    ("knobs", "number", "call", "hint"),
    [
        ({}, errno.ENOSPC, "unshare", "sudo sysctl -w user.max_user_namespaces=15000"),
        (
            {"kernel/unprivileged_userns_clone": 0},
            errno.EPERM,
            "unshare",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": 1},
            errno.EACCES,
            "mount on /",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({}, errno.EPERM, "mount on /proc", "run on the host itself"),
        ({}, errno.EPERM, "unshare", "run as root"),
        ({}, errno.EAGAIN, "None", "end some processes"),
    ],
)
def test_a_refused_namespace_names_the_knob(knobs, number, call, hint, monkeypatch):
    monkeypatch.setattr(isolation, "is_privileged", lambda: False)
    monkeypatch.setattr(
        isolation, "_read_number", lambda path: knobs.get(path.removeprefix("/proc/sys/"))
    )
    assert isolation.namespaces_hint(call, number).startswith(hint)


ASKED = ProbeSettings(1.0, 256)
_KEYS = count()


def _probe(protocol: str, size: str, *, unanswered: bool = False) -> Probe:
    where = ("10.0.1.4", 8080, 1442)
    return Probe(next(_KEYS), "p", protocol, size, *where, unanswered=unanswered)  # type: ignore[arg-type]


PROBES = [
    _probe("tcp", "small"),
    _probe("udp", "small"),
    _probe("tcp", "large"),
    _probe("udp", "large"),
    _probe("udp", "small", unanswered=True),
    _probe("udp", "small"),
]


def test_a_switch_in_user_space_is_probed_by_kinds_one_after_another():
    paced = list(batches(compile_scenario("ovn").intent, PROBES, ASKED))
    assert [[PROBES.index(probe) for probe in own] for own, _ in paced] == [
        [1, 5],
        [3],
        [0, 2],
        [4],
    ]
    assert [settings for _, settings in paced] == [
        ProbeSettings(2.0, 32),
        ProbeSettings(2.0, 12),
        ProbeSettings(4.0, 12),
        ASKED,
    ]


def test_fewer_large_packets_are_sent_at_once_where_they_are_larger():
    intent = replace(compile_scenario("ovn").intent, node_mtu=9000)
    small, large, *_ = batches(intent, PROBES, ASKED)
    assert (small[1].in_flight, large[1].in_flight) == (32, 2)


def test_no_more_at_once_than_asked():
    paced = batches(compile_scenario("ovn").intent, PROBES, ProbeSettings(1.0, 4))
    assert {settings.in_flight for _, settings in paced} == {4}


@pytest.mark.parametrize("scenario", ["overlay", "calico-bgp"])
def test_the_kernel_is_probed_as_asked(scenario):
    assert list(batches(compile_scenario(scenario).intent, PROBES, ASKED)) == [(PROBES, ASKED)]
