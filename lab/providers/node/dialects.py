"""What stands at the other end of each probe of a cluster, and so how it is spoken to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lab.providers.provider import PROBE_PORT, Dialect, Outcome, Probe
from lab.topology.intent import Intent


def spoken(intent: Intent, probes: Sequence[Probe]) -> list[Probe]:
    """The probes, each in the dialect of its target.

    Linux nodes and the client answer by the lab's own responder, in their own network; pods, so
    all that is behind Services and node ports, and Windows nodes by agnhost's netexec; health
    checks by kube-proxy; the API servers behind a services node by TLS.
    """
    ours = {
        address.partition("/")[0]
        for machine in intent.machines
        if machine.os == "linux"
        for card in machine.interfaces
        for address in card.addresses
    }
    front = intent.services_node
    api = (front.address, front.api_port) if front else None

    def dialect(probe: Probe) -> Dialect:
        if probe.name is not None or probe.dialect == "health":
            return probe.dialect
        if (probe.address, probe.port) == api:
            return "tls"
        return probe.dialect if probe.port == PROBE_PORT and probe.address in ours else "netexec"

    return [replace(probe, dialect=dialect(probe)) for probe in probes]


def named(outcome: Outcome, holders: Mapping[str, str]) -> Outcome:
    """The outcome with the names of those whose certificates answered, by their fingerprints."""
    names = tuple(holders.get(one, one) for one in outcome.backends)
    return outcome if names == outcome.backends else replace(outcome, backends=names)
