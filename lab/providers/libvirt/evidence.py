"""What hypervisors and guests show of a lab, for the evidence archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from lab._deadline import Deadline
from lab._errors import LabError
from lab.providers.libvirt import connection, console, domains, machines, networks, pictures
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.provider import SLOW_EVIDENCE_SECONDS, Evidence, LabHandle
from lab.remote.windows_steps import collect_facts


def windows_pieces(guests: LibvirtGuests, machine: str, deadline: Deadline) -> Iterator[Evidence]:
    """Every answer that it gives; what cannot be had says why. Never raises."""
    try:
        for name, content in collect_facts(guests.windows_shell(machine), deadline):
            yield Evidence(f"{machine}/windows/{name}", content)
    except LabError as error:
        yield Evidence(f"{machine}/windows/missing.txt", f"{error}\n".encode())


OfCluster = Callable[[LibvirtGuests], Iterator[tuple[str, bytes]]]
"""What nodes and API show of a cluster: path and content."""


def pieces(
    lab: LabHandle,
    decided: LibvirtLayout,
    hosts: Mapping[str, Host],
    cluster: OfCluster | None = None,
) -> Iterator[Evidence]:
    """Every piece; one that cannot be had says why."""
    for name in decided.hypervisors():
        yield from _of_hypervisor(lab, hosts[name])
    for machine, where in decided.machines.items():
        yield from _of_machine(lab, machine, hosts[where])
    with LibvirtGuests(lab, decided, hosts) as guests:
        yield from guests.evidence()
        if cluster is None:
            yield from guests.logs(decided.machines, Deadline(SLOW_EVIDENCE_SECONDS))
        for machine in decided.windows:
            yield from windows_pieces(guests, machine, Deadline(SLOW_EVIDENCE_SECONDS))
        for path, content in cluster(guests) if cluster else ():
            yield Evidence(path, content)


def _of_hypervisor(lab: LabHandle, host: Host) -> Iterator[Evidence]:
    def version() -> str:
        found = host.connected
        return (
            f"libvirt {found.getLibVersion()}, {found.getType()} {found.getVersion()}\n"
            f"{found.getCapabilities()}"
        )

    def network_documents() -> str:
        return "\n".join(
            network.XMLDesc()
            for network, owner in networks.owned(host.connected)
            if owner.token == lab.token
        )

    yield _piece(f"hypervisors/{host.name}/capabilities.xml", version)
    yield _piece(f"hypervisors/{host.name}/networks.xml", network_documents)


def _of_machine(lab: LabHandle, name: str, host: Host) -> Iterator[Evidence]:
    def document() -> str:
        found = domains.find(host.connected, lab, name)
        if found is None:
            return "there is no domain\n"
        return f"<!-- {domains.state(found[0])} -->\n{found[0].XMLDesc()}"

    def screen() -> bytes:
        found = domains.find(host.connected, lab, name)
        return pictures.png(domains.screenshot(found[0])) if found else b""

    yield _piece(f"{name}/domain.xml", document)
    yield _piece(
        f"{name}/console.log", lambda: console.clean(machines.console_text(host, lab, name))
    )
    yield _piece(f"{name}/screen.png", screen)


def _piece(path: str, make: Callable[[], str | bytes]) -> Evidence:
    try:
        content = make()
    except Exception as error:  # noqa: BLE001  whatever is wrong with it is evidence too
        return Evidence(f"{path}.missing", f"{connection.reason(error)}\n".encode())
    return Evidence(path, content.encode() if isinstance(content, str) else content)
