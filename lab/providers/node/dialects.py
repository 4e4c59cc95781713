"""What stands at the other end of each probe of a cluster, and so how it is spoken to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.providers.provider import PROBE_PORT, Probe
from lab.topology.intent import Intent


def spoken(intent: Intent, probes: Sequence[Probe]) -> list[Probe]:
    """The probes, each in the dialect of its target.

    Linux nodes and the client answer by the lab's own responder, in their own network; pods, so
    all that is behind Services and node ports, and Windows nodes by agnhost's netexec; health
    checks by kube-proxy.
    """
    ours = {
        address.partition("/")[0]
        for machine in intent.machines
        if machine.os == "linux"
        for card in machine.interfaces
        for address in card.addresses
    }
    return [
        probe
        if probe.name is not None
        or probe.dialect == "health"
        or (probe.port == PROBE_PORT and probe.address in ours)
        else replace(probe, dialect="netexec")
        for probe in probes
    ]
