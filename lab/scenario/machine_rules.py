"""Rules about what stands beside the cluster: the services node, and the scenario's hypervisors."""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.findings import Key, Problem, did_you_mean, quoted
from lab.scenario.names import hypervisor_names, node_names
from lab.scenario.scenario import OF_SERVICES_NODE, Scenario


def services_node(scenario: Scenario) -> Iterator[Problem]:
    """One machine at most has HAProxy and DNS, and it is Linux."""
    first = ""
    for index, group in enumerate(scenario.nodes):
        if group.role != "services":
            continue
        if group.os == "windows":
            what = f"{quoted(group.name)} is Windows, which has no HAProxy: no services node"
            yield Problem(("nodes", index, "os"), what, 'write "os: linux"')
        if first or group.count > 1:
            what = f"{quoted(group.name)} is one services node more, and a cluster has one"
            key: Key = ("nodes", index, "role" if group.count == 1 else "count")
            yield Problem(key, what, "keep the first alone")
        first = first or group.name


def hypervisors(scenario: Scenario) -> Iterator[Problem]:
    """Nodes that stand on a hypervisor that the scenario has not, or are called like one."""
    known = hypervisor_names(scenario)
    if not known:
        return
    for index, group in enumerate(scenario.nodes):
        asked = group.hypervisor
        if asked is not None and asked not in known:
            what = f"{quoted(group.name)} is to stand on {quoted(asked)}, which is none of "
            what += f"the scenario's {len(known)} hypervisors"
            span = f"{known[0]} to {known[-1]}" if len(known) > 1 else known[0]
            cure = did_you_mean(asked, known, f"write {span}, or leave it to the plan")
            yield Problem(("nodes", index, "hypervisor"), what, cure)
        clash = next((name for name in node_names(group) if name in known), None)
        if clash:
            what = f"{quoted(clash)} is one of the scenario's hypervisors"
            yield Problem(("nodes", index, "name"), what, "give the node another name")


def families(scenario: Scenario) -> Iterator[Problem]:
    """Families of cells that ask a services node, where there is none."""
    if any(group.role == "services" for group in scenario.nodes):
        return
    for family in scenario.matrix.families:
        if family in OF_SERVICES_NODE:
            what = f"{quoted(family)} asks the services node, and there is none"
            cure = 'leave it out, or give a Linux node "role: services"'
            yield Problem(("matrix", "families"), what, cure)
