"""Where machines go: a table of cases with their answers; and the MTU between hypervisors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from lab._errors import LabError, PreflightError
from lab.inventory.inventory import Hypervisor, Inventory
from lab.machines.libvirt.placement import Capacity, fitting_mtu, labs_at_once, place
from lab.topology.intent import Hardware, MachineIntent

CASES = YAML(typ="safe").load(Path(__file__).parents[2] / "cases/placement.yaml")
MODEL = MachineIntent(
    "", "node", "linux", (), None, None, (), (), (), (), (), None, (), forwards=False
)


def machine(row: dict[str, Any]) -> MachineIntent:
    where = {"hypervisor": row.get("hypervisor"), "place": row.get("place")}
    hardware = replace(Hardware("debian-12", *row["needs"]), **where)
    kind, system = row.get("kind", "node"), row.get("os", "linux")
    return replace(MODEL, name=row["name"], kind=kind, os=system, hardware=hardware)


def host(row: dict[str, Any]) -> Capacity:
    return Capacity(row["name"], frozenset(row.get("tags", ())), *row["room"])


def answer(case: dict[str, Any]) -> object:
    machines, hosts = map(machine, case["machines"]), map(host, case["hypervisors"])
    try:
        return dict(place([*machines], [*hosts], case.get("kept", {})))
    except LabError as error:
        return [f"exit {error.exit_code}", *str(error).splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_lab_is_placed_or_refused_as_expected(case):
    assert answer(case) == case["expected"]


AMOUNT = st.integers(0, 9)


@given(
    needs=st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), max_size=6),
    rooms=st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=3),
    data=st.data(),
)
def test_no_hypervisor_is_ever_given_more_than_it_has(needs, rooms, data):
    machines = [
        replace(MODEL, name=f"m{at}", hardware=Hardware("debian-12", *need))
        for at, need in enumerate(needs)
    ]
    hosts = [Capacity(f"h{at}", frozenset(), *room) for at, room in enumerate(rooms)]
    names = st.sampled_from([capacity.name for capacity in hosts])
    kept = data.draw(st.dictionaries(st.sampled_from(["m0", "m1"]), names, max_size=2))
    try:
        placed = place(machines, hosts, kept)
    except PreflightError:
        assert not _fits(machines, hosts, kept)
        return
    assert list(placed) == [machine.name for machine in machines]
    assert _within(machines, hosts, placed)
    assert all(placed[name] == where for name, where in kept.items() if name in placed)
    assert place(machines, hosts, placed) == placed


def _within(machines: list[MachineIntent], hosts: list[Capacity], placed: Any) -> bool:
    return all(
        sum(
            getattr(machine.hardware, what)
            for machine in machines
            if placed[machine.name] == host.name
        )
        <= getattr(host, what)
        for host in hosts
        for what in ("vcpus", "memory_mib", "disk_gib")
    )


def _fits(machines: list[MachineIntent], hosts: list[Capacity], placed: dict[str, str]) -> bool:
    """Whether there is any placement at all, by trying every one."""
    rest = [machine for machine in machines if machine.name not in placed]
    if not rest:
        return _within(machines, hosts, placed)
    return any(
        _fits(machines, hosts, {**placed, rest[0].name: capacity.name}) for capacity in hosts
    )


def inventory(*mtus: int) -> Inventory:
    return Inventory(
        hypervisors={
            f"h{at}": Hypervisor(name=f"h{at}", uri=f"qemu+ssh://h{at}/system").replace(mtu=one)
            for at, one in enumerate(mtus)
        }
    )


@pytest.mark.parametrize(
    ("mtus", "hosts", "asked", "expected"),
    [
        pytest.param((1400,), ("h0",), 1500, 1500, id="within one hypervisor any fits"),
        pytest.param((1400, 9000), ("h1", "h1"), 9000, 9000, id="only those used count"),
        pytest.param((1500, 1500), ("h0", "h1"), 1500, 1450, id="the tunnel takes fifty"),
        pytest.param((1500, 1400, 9000), ("h2", "h0", "h1"), 1500, 1350, id="the narrowest"),
        pytest.param((9000, 9000), ("h0", "h1"), 1500, 1500, id="never more than was asked"),
        pytest.param((676, 1500), ("h0", "h1"), 1500, 626, id="the smallest that is taken"),
    ],
)
def test_the_mtu_that_fits_from_end_to_end(mtus, hosts, asked, expected):
    assert fitting_mtu(inventory(*mtus), hosts, asked) == expected


def test_an_uplink_too_narrow_for_the_lab_is_refused_by_name():
    with pytest.raises(PreflightError, match="hypervisor 'h1' has an uplink of 675 bytes") as told:
        fitting_mtu(inventory(1500, 675), ("h0", "h1"), 1500)
    assert "'mtu' of 'h1'" in told.value.hint


HOSTS = (
    Hypervisor(name="big", uri="qemu+ssh://h1/system", memory=65_536),
    Hypervisor(name="unknown", uri="qemu+ssh://h2/system"),
    Hypervisor(name="here", uri="qemu:///system"),
)


@pytest.mark.parametrize(
    ("hosts", "lab_mib", "jobs"),
    [
        (HOSTS[:1], 16_384, 4),
        (HOSTS[:1], 30_000, 2),
        (HOSTS[:1], 100_000, 1),
        (HOSTS[1:2], 16_384, 1),
        (HOSTS[:2], 16_384, 5),
        (HOSTS[2:], 16_384, 3),
        ((), 16_384, 1),
    ],
)
def test_labs_at_once_are_bounded_by_memory(hosts, lab_mib, jobs):
    assert labs_at_once(hosts, lab_mib, own_mib=65_536) == jobs
