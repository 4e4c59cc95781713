"""The libvirt provider: a lab's machines are virtual machines on one or more hypervisors.

Every object can be found without the journal: domains and networks carry the lab's token in their
metadata, and its disks are in a directory named after the token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, UsageError
from lab._log import say
from lab.inventory.inventory import Inventory
from lab.machines.base import (
    MachinesProvider,
    look_inside,
    other_machines,
    own_network,
    piece,
    recorded,
    require_fit,
    require_packages,
)
from lab.machines.libvirt import (
    bring_up,
    connection,
    domains,
    foreign,
    machines,
    networks,
    owned,
    ownership,
    placement,
)
from lab.machines.libvirt.bring_up import LibvirtBringUp
from lab.machines.libvirt.guests import LibvirtGuests
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.placement import LibvirtLayout, load_layout
from lab.machines.libvirt.system import GuestSystem
from lab.machines.libvirt.vxlan_underlay import VxlanUnderlay
from lab.plan.step import Step
from lab.providers.provider import (
    CAPTURE,
    CLUSTER,
    KERNEL_TRACE,
    MACHINES,
    Diagnosis,
    Evidence,
    LabHandle,
    Liveness,
    Mark,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.shells.parallel import run_jobs
from lab.topology.cost import Cost
from lab.topology.intent import Intent

if TYPE_CHECKING:
    import libvirt

    from lab.machines.images.image_store import ImageStore

MISSING = "missing"
"""The state of a machine whose domain does not exist."""
_STATE_WORDS = {MISSING: "missing", **domains.WORDS}


class LibvirtProvider(MachinesProvider):
    """Virtual machines on the hypervisors of an inventory.

    ``inventory``: the hypervisors and their limits.
    """

    name = "libvirt"
    abilities = frozenset({MACHINES, CLUSTER, CAPTURE, KERNEL_TRACE})
    system_kind = GuestSystem

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self._hosts = {
            hypervisor.name: Host(hypervisor) for hypervisor in inventory.hypervisors.values()
        }

    def _hosts_with(self, layout: LibvirtLayout | None) -> Mapping[str, Host]:
        """The inventory's hypervisors, and those that only the lab's layout still lists."""
        for name, home in (layout.homes if layout else {}).items():
            self._hosts.setdefault(name, Host(home, listed=False))
        return self._hosts

    @cached_property
    def _image_store(self) -> ImageStore:
        from lab.machines.images.image_store import ImageStore  # noqa: PLC0415  'down' builds no image
        from lab.machines.libvirt.installer import LibvirtInstaller  # noqa: PLC0415  the same

        first = next(iter(self._hosts.values()))
        installer = LibvirtInstaller(first, self._inventory.management.cidr)
        return ImageStore(self._cache, self._inventory, installer)

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, where its machines are, and what their links do."""
        links = f"; {clause}" if intent and (clause := self.disclaimer(intent)) else ""
        listed = ", ".join(
            f"{hypervisor.name} ({hypervisor.uri})"
            for hypervisor in self._inventory.hypervisors.values()
        )
        few = "hypervisor" if len(self._hosts) == 1 else "hypervisors"
        return f"{self.name}: virtual machines on {few} {listed}{links}"

    def node_mtu(self, wanted: int) -> int:
        """The MTU that fits between all hypervisors, because any of them may get a machine.

        Raises PreflightError if it is too small for a cluster.
        """
        return placement.fitting_mtu(self._inventory, [*self._inventory.hypervisors], wanted)

    def cost(self, intent: Intent) -> Cost:
        """Predicted cost of bringing the lab up from scratch; connects to no hypervisor.

        Raises PreflightError if an image does not exist and cannot be built here.
        """
        foreign.require_images(intent, self._require)
        built = {
            name: self._image_store.peek(name) is not None
            for name in dict.fromkeys(machine.hardware.image for machine in intent.machines)
        }
        return placement.predict_cost(intent, tuple(self._inventory.hypervisors.values()), built)

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """Limited by the hypervisors' memory."""
        sums = (
            sum(machine.hardware.memory_mib for machine in intent.machines) for intent in intents
        )
        hypervisors = [host.hypervisor for host in self._hosts.values()]
        return placement.labs_at_once(hypervisors, max(sums, default=1))

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:
        """Examine every hypervisor; starts and destroys a tiny guest on each."""
        del state
        from lab.machines.libvirt import doctor  # noqa: PLC0415  used only by 'lab doctor'

        missing = doctor.is_installed()
        return (missing,) if missing else doctor.examine(self._inventory)

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Connect to every hypervisor, and check bundle, names, capacity and tunnels.

        Raises PreflightError with everything that is missing and its fix; nothing was created.
        """
        bundled = self._bundled(lab, intent)
        if bundled:
            bundled.check()
        layout = placement.decide_layout(lab, intent, self._hosts)
        VxlanUnderlay(lab, intent, layout.machines, self._hosts).check()

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """The steps of bring-up, in order.

        Raises PreflightError if such a lab cannot run on virtual machines, or an image does not
        exist and cannot be built here.
        """
        require_fit(intent)
        require_packages(intent, self._packages)
        foreign.require_images(intent, self._require)
        return LibvirtBringUp(
            lab=lab,
            intent=intent,
            inventory=self._inventory,
            hosts=self._hosts,
            image_of=lambda name: self._image_store.get(name, say),
            digest_of=self._image_store.digest,
            bundled=self._bundled(lab, intent),
        ).steps()

    def _require(self, image: str) -> None:
        if self._image_store.peek(image) is None:
            self._image_store.require(image)

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Check networks, domains, tunnels, and the software on the machines."""
        layout = load_layout(lab)
        if layout is None:
            return self._without_layout(lab)
        if other := other_machines(layout.machines, intent):
            return Liveness("broken", other, again_from="place")
        own, hosts = own_network(intent), self._hosts_with(layout)
        try:
            states = machine_states(lab, layout, hosts)
            verdict = judge_states(states, _missing_networks(lab, own, layout, hosts))
            if verdict.state != "running":
                return verdict
            if torn := VxlanUnderlay(lab, own, layout.machines, hosts).differences():
                return Liveness("broken", torn[0], again_from="networks")
            with self._guests(lab) as guests:
                return look_inside(guests, own, self._beyond_network(lab, intent)) or verdict
        except LabError as error:
            return Liveness("broken", str(error), again_from="machines")

    def _without_layout(self, lab: LabHandle) -> Liveness:
        for host in self._hosts.values():
            with host.explain_errors(f"looking for lab '{lab.name}'"):
                objects = list(owned.find_owned(host))
            for title, owner in objects:
                if owner.token == lab.token:
                    detail = f"{title} exists, but the record of the lab's other objects is missing"
                    return Liveness("broken", detail)
        return Liveness("absent", "no hypervisor has any of its objects")

    def _bundle_digest(self, lab: LabHandle) -> str:
        layout = load_layout(lab)
        return layout.bundle if layout else ""

    def _recorded(self, lab: LabHandle) -> LibvirtLayout:
        return recorded(lab, load_layout(lab))

    def _guests(self, lab: LabHandle) -> LibvirtGuests:
        layout = self._recorded(lab)
        return LibvirtGuests(lab, layout, self._hosts_with(layout))

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Remove the owner's objects with the lab's token; see :func:`owned.destroy`."""
        layout = load_layout(lab)
        return owned.destroy(lab, layout, self._hosts_with(layout), owner)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """The controller's objects; with ``all_users`` also those of others' expired labs."""
        return owned.marks(self._hosts.values(), all_users=all_users)

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:
        """Connect this terminal to the machine's serial console until Ctrl-]; the exit code."""
        del intent
        connection.hear_events()
        return domains.join_console(self._domain(lab, name))

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:
        """The output of the serial console since the machine was created."""
        del intent
        return machines.console_text(self._home(lab, name), lab, name)

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:
        """The machine's screen as PNG."""
        del intent
        with self._home(lab, name).explain_errors(f"taking a screenshot of '{name}'"):
            return domains.screenshot(self._domain(lab, name))

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Save every running machine's memory to disk and stop it; returns their names."""
        del intent
        layout = self._recorded(lab)
        hosts = self._hosts_with(layout)

        def saving(name: str) -> Callable[[], bool]:
            def save() -> bool:
                with self._home(lab, name).explain_errors(f"saving machine '{name}'"):
                    return domains.save(self._domain(lab, name))

            return save

        homes = layout.hypervisors()
        jobs = {home: {name: saving(name) for name in layout.on(home)} for home in homes}
        limits = {home: hosts[home].threads for home in homes}
        done = run_jobs(jobs, limits, Deadline(bring_up.ALL_SECONDS))
        return tuple(machine for machine, ran in done.items() if ran)

    def _home(self, lab: LabHandle, name: str) -> Host:
        layout = self._recorded(lab)
        if name not in layout.machines:
            raise UsageError(
                f"looking for '{name}' in lab '{lab.name}'",
                "there is no machine of that name",
                f"one of {', '.join(layout.machines)}",
            )
        return self._hosts_with(layout)[layout.machines[name]]

    def _domain(self, lab: LabHandle, name: str) -> libvirt.virDomain:
        host = self._home(lab, name)
        with host.explain_errors(f"looking for machine '{name}'"):
            domain = domains.find(host.connected, lab, name)
        if domain is None:
            action = f"looking for machine '{name}'"
            raise BrokenError(action, "its domain is gone", f"lab up {lab.name}")
        return domain[0]

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """Domains, networks, consoles and screens, and the network inside each machine."""
        layout = load_layout(lab)
        if layout is None:
            return
        hosts = self._hosts_with(layout)
        for name in layout.hypervisors():
            yield from _hypervisor_evidence(lab, hosts[name])
        for name, where in layout.machines.items():
            yield from _machine_evidence(lab, name, hosts[where])
        with self._guests(lab) as guests:
            yield from self._evidence_inside(lab, intent, guests, layout.machines)


def judge_states(states: Mapping[str, str], missing: tuple[str, ...]) -> Liveness:
    """The lab's state from its machines' states and its missing networks and pools. Pure."""
    counts = Counter(states.values())
    if counts[MISSING] == len(states) and missing:
        return Liveness("absent", f"it has no domains, and no {missing[0]}")
    if missing:
        return Liveness("broken", f"it has no {missing[0]}", again_from="networks")
    if counts["running"] == len(states):
        return Liveness("running", f"{len(states)} domains run")
    if counts["saved"] == len(states):
        detail = f"the memory of all {len(states)} machines is saved on disk"
        return Liveness("suspended", detail, "machines")
    bad = [
        f"{name} is {_STATE_WORDS[state]}" for name, state in states.items() if state != "running"
    ]
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return Liveness("broken", f"{bad[0]}{more}", again_from="machines")


def machine_states(
    lab: LabHandle, layout: LibvirtLayout, hosts: Mapping[str, Host]
) -> Mapping[str, str]:
    """The state of every machine's domain, in the layout's order."""
    states: dict[str, str] = {}
    for machine, where in layout.machines.items():
        host = hosts[where]
        with host.explain_errors(f"looking at machine '{machine}'"):
            domain = domains.find(host.connected, lab, machine)
            states[machine] = domains.state(domain[0]) if domain else MISSING
    return states


def _missing_networks(
    lab: LabHandle, intent: Intent, layout: LibvirtLayout, hosts: Mapping[str, Host]
) -> tuple[str, ...]:
    missing: list[str] = []
    for name in layout.hypervisors():
        host = hosts[name]
        with host.explain_errors(f"looking at the networks of lab '{lab.name}'"):
            for segment in (ownership.MANAGEMENT, *(segment.name for segment in intent.segments)):
                network = networks.find(host.connected, lab, segment)
                if network is None or not network.isActive():
                    missing.append(f"network '{ownership.network_name(lab, segment)}' on '{name}'")
            if host.lab_pool(lab.token) is None:
                missing.append(f"storage pool on '{name}'")
    return tuple(missing)


def _hypervisor_evidence(lab: LabHandle, host: Host) -> Iterator[Evidence]:
    def version() -> str:
        connected = host.connected
        return (
            f"libvirt {connected.getLibVersion()}, {connected.getType()} {connected.getVersion()}\n"
            f"{connected.getCapabilities()}"
        )

    def documents() -> str:
        owned_networks = connection.owned(host.connected.listAllNetworks())
        return "\n".join(
            network.XMLDesc() for network, owner in owned_networks if owner.token == lab.token
        )

    yield piece(f"hypervisors/{host.name}/capabilities.xml", version)
    yield piece(f"hypervisors/{host.name}/networks.xml", documents)


def _machine_evidence(lab: LabHandle, name: str, host: Host) -> Iterator[Evidence]:
    def document() -> str:
        domain = domains.find(host.connected, lab, name)
        if domain is None:
            return "there is no domain\n"
        return f"<!-- {domains.state(domain[0])} -->\n{domain[0].XMLDesc()}"

    def console() -> str:
        return domains.clean_console(machines.console_text(host, lab, name))

    def screen() -> bytes:
        domain = domains.find(host.connected, lab, name)
        return domains.screenshot(domain[0]) if domain else b""

    yield piece(f"{name}/domain.xml", document)
    yield piece(f"{name}/console.log", console)
    yield piece(f"{name}/screen.png", screen)


def make(setup: ProviderSetup) -> Provider:
    """Make the provider from the inventory."""
    return LibvirtProvider(setup.machines())
