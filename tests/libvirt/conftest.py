"""Hypervisors for the tests of real machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import hypervisors
import pytest


@pytest.fixture(scope="session")
def two_hypervisors() -> Iterator[tuple[hypervisors.Hypervisor, ...]]:
    """Two libvirtds, each as good as on a machine of its own, joined by a network of MTU 1400."""
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
