"""Every hypervisor of an inventory, examined; nothing is left on any."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from lab._errors import LabError
from lab.inventory.inventory import Hypervisor, Inventory
from lab.providers.diagnosis import Diagnosis
from lab.providers.libvirt import connection, facts
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.judgement import Question, judged

_AT_ONCE = 8


def examine(inventory: Inventory) -> tuple[Diagnosis, ...]:
    """What was seen on every hypervisor, in the inventory's order."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(lambda one: _examine(one, inventory), inventory.hypervisors)
        return tuple(diagnosis for several in found for diagnosis in several)


def _examine(hypervisor: Hypervisor, inventory: Inventory) -> tuple[Diagnosis, ...]:
    subject = f"hypervisor '{hypervisor.name}'"
    others = tuple(one for one in inventory.hypervisors if one != hypervisor)
    host = Host(hypervisor)
    try:
        began = time.monotonic()
        _ = host.connected
        seen = f"{hypervisor.uri}, in {time.monotonic() - began:.1f} s"
        with host.told("examining it", "see what it logs: journalctl -u libvirtd"):
            known = facts.gather(host, others)
    except LabError as error:
        return (Diagnosis(subject, "connection", "fail", error.happened, error.cure),)
    asked = Question(hypervisor, inventory.management, bool(others), time.time())
    return (Diagnosis(subject, "connection", "ok", seen), *judged(asked, known))


def is_installed() -> Diagnosis | None:
    """What is wrong with libvirt's binding on this machine; None if nothing."""
    try:
        connection.load()
    except LabError as error:
        subject = "this machine, for virtual machines"
        return Diagnosis(subject, "binding", "fail", error.happened, error.cure)
    return None
