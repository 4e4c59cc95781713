"""Hypervisors for the tests of real machines."""

from contextlib import ExitStack

import hypervisors
import pytest


@pytest.fixture(scope="session")
def two_hypervisors():
    """Two libvirtds, each as if on its own machine, joined by a network of MTU 1400."""
    with ExitStack() as stack:
        try:
            hypervisors.refuse()
            network = stack.enter_context(hypervisors.uplink())
        except hypervisors.Missing as why:
            pytest.skip(f"no further hypervisors on this machine: {why}")
        yield tuple(
            stack.enter_context(hypervisors.hypervisor(f"host{number}", network, 10 + number))
            for number in (1, 2)
        )


@pytest.fixture
def lab(connected, tmp_path):
    from drill import drill  # noqa: PLC0415  it needs libvirt-python

    with drill(tmp_path) as found:
        yield found
        found.run("gc", "--yes", "--older-than", "0s")
        assert found.left(connected) == set()
