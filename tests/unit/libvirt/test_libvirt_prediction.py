"""What a lab of virtual machines is said to take before any of it is made."""

from __future__ import annotations

import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import STOCK, Hypervisor
from lab.lifecycle.compilation import compile_scenario
from lab.providers.libvirt.placement import predict_cost
from lab.providers.libvirt.provider import LibvirtProvider

INTENT = compile_scenario("overlay", only="linux").intent
ONE = (Hypervisor(name="one", uri="qemu:///system", parallel_boots=1),)
TWO = (*ONE, Hypervisor(name="two", uri="qemu+ssh://two/system", parallel_boots=1))


def test_memory_and_disks_are_what_the_machines_are_given() -> None:
    found = predict_cost(INTENT, ONE, {"debian-12": True})
    assert found.memory_mib == 3 * 2048 + 2 * 512
    assert found.disk_gib == 3 * 20 + 2 * 8
    assert found.counts["machine"] == 5


def test_an_image_that_is_not_built_takes_time_and_is_counted() -> None:
    built, unbuilt = (predict_cost(INTENT, ONE, {"debian-12": done}) for done in (True, False))
    assert unbuilt.seconds > built.seconds
    assert (built.counts["unbuilt image"], unbuilt.counts["unbuilt image"]) == (0, 1)


def test_a_cluster_takes_longer_and_more_with_more_nodes() -> None:
    image = {"debian-12": True}
    cluster = compile_scenario("overlay", only="linux", pods="kubernetes").intent
    without = predict_cost(INTENT, ONE, image).seconds
    assert (
        predict_cost(cluster, ONE, image).seconds
        > predict_cost(cluster, TWO, image).seconds
        > without
    )


def test_two_hypervisors_boot_sooner_than_one() -> None:
    image = {"debian-12": True}
    assert predict_cost(INTENT, TWO, image).seconds < predict_cost(INTENT, ONE, image).seconds


def test_the_cost_of_windows_machines_without_their_iso_is_refused_with_the_way_round() -> None:
    provider = LibvirtProvider(STOCK)
    with pytest.raises(PreflightError, match="it needs the ISO of Windows Server 2022") as caught:
        provider.cost(compile_scenario("overlay").intent)
    assert "--only linux" in caught.value.hint
