"""How a lab of virtual machines is: its networks, its domains, and what is inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lab.providers.libvirt import domains, names, networks
from lab.providers.libvirt.carriage import Carriage
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.machines.steps import Ailments, look_inside
from lab.providers.provider import LabHandle, Liveness
from lab.topology.intent import Intent

NOTHING = "nothing"
"""The state of a machine whose domain is not there."""


def look(
    lab: LabHandle,
    intent: Intent,
    decided: LibvirtLayout,
    hosts: Mapping[str, Host],
    beyond: Mapping[str, Ailments],
) -> Liveness:
    """See whether all that belongs to the lab is there and runs.

    Parameters
    ----------
    lab, decided, hosts
        The lab, and where its machines are.
    intent
        What the lab itself makes on them.
    beyond
        What is to be asked of what runs on the machines, by the step that mends it; in order, as
        long as all is well.

    Raises
    ------
    LabError
        When a hypervisor cannot be reached.

    """
    missing = _missing_networks(lab, intent, decided, hosts)
    states = machine_states(lab, decided, hosts)
    verdict = judge(states, missing)
    if verdict.state != "running":
        return verdict
    torn = Carriage(lab, intent, decided.machines, hosts).differences()
    if torn:
        return Liveness("broken", torn[0], again_from="networks")
    with LibvirtGuests(lab, decided, hosts) as guests:
        return look_inside(guests, intent, beyond) or verdict


def judge(states: Mapping[str, str], missing: tuple[str, ...]) -> Liveness:
    """The lab's state, from its machines' and from what networks and pools are missing. Pure."""
    counts = Counter(states.values())
    if counts[NOTHING] == len(states) and missing:
        return Liveness("absent", f"it has no domains, and no {missing[0]}")
    if missing:
        return Liveness("broken", f"it has no {missing[0]}", again_from="networks")
    if counts["running"] == len(states):
        return Liveness("running", f"{len(states)} domains run")
    if counts["saved"] == len(states):
        return Liveness(
            "suspended", f"the memory of all {len(states)} machines is on disk", "machines"
        )
    bad = [f"{name} is {_WORDS[state]}" for name, state in states.items() if state != "running"]
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return Liveness("broken", f"{bad[0]}{more}", again_from="machines")


_WORDS = {NOTHING: "not there", **domains.WORDS}


def machine_states(
    lab: LabHandle, decided: LibvirtLayout, hosts: Mapping[str, Host]
) -> Mapping[str, str]:
    """The state of every machine's domain, in the layout's order."""
    states: dict[str, str] = {}
    for machine, where in decided.machines.items():
        host = hosts[where]
        with host.told(f"looking at machine '{machine}'"):
            found = domains.find(host.connected, lab, machine)
            states[machine] = domains.state(found[0]) if found else NOTHING
    return states


def _missing_networks(
    lab: LabHandle, intent: Intent, decided: LibvirtLayout, hosts: Mapping[str, Host]
) -> tuple[str, ...]:
    missing: list[str] = []
    for name in decided.hypervisors():
        host = hosts[name]
        with host.told(f"looking at the networks of lab '{lab.name}'"):
            for segment in (names.MANAGEMENT, *(one.name for one in intent.segments)):
                network = networks.find(host.connected, lab, segment)
                if network is None or not network.isActive():
                    missing.append(f"network '{names.network(lab, segment)}' on '{name}'")
            if host.lab_pool(lab.token) is None:
                missing.append(f"storage pool on '{name}'")
    return tuple(missing)
