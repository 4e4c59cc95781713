"""Whether a lab fits, for machines of any size; and what mends a refused namespace."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from netns_intents import cluster

from lab._errors import PreflightError
from lab.providers.netns import isolation
from lab.providers.netns.preflight import NetnsNeed, NetnsRoom, check_capacity, lab_need

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
    monkeypatch.setattr(isolation, "privileged", lambda: False)
    monkeypatch.setattr(
        isolation, "_reading", lambda path: knobs.get(path.removeprefix("/proc/sys/"))
    )
    assert isolation.namespaces_hint(call, number).startswith(hint)
