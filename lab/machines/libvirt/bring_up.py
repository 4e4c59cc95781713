"""The steps that bring a lab of virtual machines up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from getpass import getuser
from hashlib import sha256
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._log import say
from lab.inventory.inventory import Inventory
from lab.machines import keyring
from lab.machines.base import on_machines, recorded
from lab.machines.bundle import medium
from lab.machines.images.golden import GoldenImage
from lab.machines.libvirt import images, machines, networks, ownership, placement, storage
from lab.machines.libvirt.connection import controller_id
from lab.machines.libvirt.guests import LibvirtGuests
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.machines import MachineRecipe
from lab.machines.libvirt.ownership import Owner
from lab.machines.libvirt.placement import LibvirtLayout
from lab.machines.libvirt.system import GuestSystem
from lab.machines.libvirt.vxlan_underlay import VxlanUnderlay
from lab.machines.management import SUBNET_BITS
from lab.machines.system import system_of
from lab.plan.canonical import plain
from lab.plan.step import Step
from lab.providers.provider import LabHandle
from lab.scenario.terms import Os
from lab.shells.parallel import run_jobs
from lab.state.lock import lab_lock
from lab.topology.intent import Intent, MachineIntent

if TYPE_CHECKING:
    from lab.machines.kubernetes import Bundled

_FORM = "1"
"""Increment when the steps do something different for the same inputs."""
ALL_SECONDS = 3600.0
"""For all machines together; a last resort, because each boot has its own deadline."""


@dataclass(frozen=True)
class LibvirtBringUp:
    """Bring-up of one lab."""

    lab: LabHandle
    intent: Intent
    inventory: Inventory
    hosts: Mapping[str, Host]
    image_of: Callable[[str], GoldenImage]
    """Returns the golden image of a recipe, and builds it if necessary."""
    digest_of: Callable[[str], str]
    bundled: Bundled | None = None
    """Its cluster and bundle; None if pods are namespaces."""

    def steps(self) -> tuple[Step, ...]:
        """``place``, ``images``, ``networks``, ``machines``, then the steps on running machines."""
        token = self.lab.token
        hardware = [plain(machine.hardware) for machine in self.intent.machines]
        segments = plain(self.intent.segments)
        cards = [plain(machine.interfaces) for machine in self.intent.machines]
        hypervisors = plain([*self.inventory.hypervisors.values()])
        recipes = {name: self.digest_of(name) for name in self._recipes()}
        mtus = sorted({hypervisor.mtu for hypervisor in self.inventory.hypervisors.values()})
        bundle = (self.bundled.digest,) if self.bundled else ()
        cidr = str(self.inventory.management.cidr)
        return (
            Step("place", _digest(token, hardware, hypervisors), self._place),
            Step("images", _digest(token, recipes, *bundle), self._copy_images),
            Step("networks", _digest(token, segments, cidr, mtus), self._make_networks),
            Step("machines", _digest(token, hardware, cards, recipes, *bundle), self._boot_all),
            *on_machines(self.lab, self.intent, self.bundled, self._guests),
        )

    def _guests(self) -> LibvirtGuests:
        return LibvirtGuests(self.lab, self._layout, self.hosts)

    def _recipes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(machine.hardware.image for machine in self.intent.machines))

    @cached_property
    def _layout(self) -> LibvirtLayout:
        return recorded(self.lab, placement.load_layout(self.lab))

    def _used(self) -> tuple[Host, ...]:
        return tuple(self.hosts[name] for name in self._layout.hypervisors())

    def _place(self) -> None:
        layout = placement.decide_layout(self.lab, self.intent, self.hosts)
        slow = [name for name in layout.hypervisors() if not layout.accelerated[name]]
        if slow:
            say(
                f"KVM does not work on hypervisor {', '.join(slow)}: machines are emulated there "
                "(TCG), and take about ten times as long"
            )
        self._save(layout)

    def _save(self, layout: LibvirtLayout) -> None:
        if self.bundled:
            layout = replace(layout, bundle=self.bundled.digest)
        placement.save_layout(self.lab, layout)
        self.__dict__.pop("_layout", None)

    def _copy_images(self) -> None:
        for name in self._recipes():
            image = self.image_of(name)
            for host in self._used():
                with (
                    copy_lock(self.lab, host.name, image.digest[:16]),
                    host.explain_errors(f"copying image '{name}'"),
                ):
                    images.ensure_image(host.connected, host.hypervisor.storage, image, say)
        if self.bundled:
            self._copy_media(self.bundled)
        users = {
            machine.name: self.image_of(machine.hardware.image).user
            for machine in self.intent.machines
        }
        self._save(replace(self._layout, users=users))

    def _copy_media(self, bundled: Bundled) -> None:
        """Copy the bundle's media to the nodes' hypervisors."""
        for host in self._used():
            members = map(self.intent.machine, self._layout.on(host.name))
            for system in dict.fromkeys(machine.os for machine in members if machine.kubelet):
                with (
                    copy_lock(self.lab, host.name, f"bundle-{bundled.digest[:16]}-{system}"),
                    host.explain_errors(f"copying the bundle for {system}"),
                ):
                    file = medium.medium(bundled.store, bundled.manifest, system, say)
                    shared = images.images_pool(host.connected, host.hypervisor.storage)
                    storage.refresh(shared)
                    title = f"medium of Kubernetes {bundled.manifest.kubernetes} for {system}"
                    images.ensure_copy(shared, _medium_file(bundled, system), file, title, say)

    def _make_networks(self) -> None:
        systems = {machine.name: machine.os for machine in self.intent.machines}
        keyring.ensure(self.lab, [name for name, os in systems.items() if os == "linux"])
        keyring.ensure_passwords(self.lab, [name for name, os in systems.items() if os != "linux"])
        owner, pool = self._owner(), self.inventory.management.cidr
        for host in self._used():
            machines_there, mtu = self._layout.on(host.name), host.hypervisor.mtu
            with host.explain_errors(f"making the networks of lab '{self.lab.name}'"):
                networks.ensure_management(
                    host.connected, self.lab, owner, machines_there, pool=pool, mtu=mtu
                )
                for segment in self.intent.segments:
                    networks.ensure_segment(host.connected, self.lab, owner, segment)
                storage.ensure_pool(
                    host.connected,
                    ownership.name_prefix(self.lab),
                    ownership.object_uuid(self.lab, "pool", ""),
                    storage.lab_path(host.hypervisor.storage, self.lab.token),
                )
        underlay = VxlanUnderlay(self.lab, self.intent, self._layout.machines, self.hosts)
        for event in underlay.make(owner):
            say(event)

    def _boot_all(self) -> None:
        guests = self._guests()
        jobs = {
            host.name: {
                name: self._boot(host, self.intent.machine(name), guests)
                for name in self._layout.on(host.name)
            }
            for host in self._used()
        }
        limits = {host.name: host.boots_at_once for host in self._used()}
        try:
            run_jobs(jobs, limits, Deadline(self._all_seconds()))
        finally:
            guests.close()

    def _all_seconds(self) -> float:
        """Time limit for all machines together; the first boot of Windows is slow."""
        patient = all(self._layout.accelerated.values())
        foreign = self._layout.windows
        first = self._system.first_boot_seconds[patient] if foreign else 0.0
        return ALL_SECONDS + len(foreign) * first

    @property
    def _system(self) -> GuestSystem:
        """The system of the machines that do not run Linux."""
        return system_of("windows", GuestSystem, f"bringing up lab '{self.lab.name}'")

    def _boot(
        self, host: Host, machine: MachineIntent, guests: LibvirtGuests
    ) -> Callable[[], None]:
        recipe = MachineRecipe(
            lab=self.lab,
            machine=machine,
            image=self.image_of(machine.hardware.image),
            accelerated=self._layout.accelerated[host.name],
            management_mtu=host.hypervisor.mtu,
            management_address=guests.address(machine.name),
            management_prefix=SUBNET_BITS,
            bundle=self._medium_path(host, machine),
        )
        define = self._system.clone_machine if recipe.is_windows else machines.linux_machine

        def boot() -> None:
            began = time.monotonic()
            owner = self._owner(machine.name, recipe.digest())
            before = machines.ensure_machine(host, recipe, owner, define, say)
            self._wait_for_shell(host, recipe, guests, before)
            if before != "running":
                how = "resumed" if before == "saved" else "booted"
                say(f"{machine.name}: {how} in {time.monotonic() - began:.1f} s")

        return boot

    def _medium_path(self, host: Host, machine: MachineIntent) -> str | None:
        if self.bundled is None or not machine.kubelet:
            return None
        folder = storage.images_path(host.hypervisor.storage)
        return f"{folder}/{_medium_file(self.bundled, machine.os)}"

    def _wait_for_shell(
        self, host: Host, recipe: MachineRecipe, guests: LibvirtGuests, before: str
    ) -> None:
        """Wait for a shell; a machine of another system must announce its keys first."""
        lab, name = recipe.lab, recipe.machine.name
        if recipe.is_windows:
            system = self._system
            console = partial(machines.console_text, host, lab, name)
            system.wait_for_boot(host, recipe, console, lambda: guests.shell(name))
            if before == "saved":
                system.set_clock(guests.shell(name))
        else:
            machines.wait_for_shell(host, recipe, guests.shell(name))
            if before == "saved":
                machines.set_clock(guests.shell(name))

    def _owner(self, machine: str = "", made_from: str = "") -> Owner:
        now = time.time()
        expiry = self.inventory.expiry
        return Owner(
            lab=self.lab.name,
            token=self.lab.token,
            directory=self.lab.directory,
            controller=controller_id(),
            owner=self.inventory.owner or _user_and_host(),
            created=now,
            expires=None if expiry is None else now + expiry,
            machine=machine,
            made_from=made_from,
        )


def copy_lock(lab: LabHandle, host: str, suffix: str) -> AbstractContextManager[None]:
    """Lock: only one lab of this controller at a time copies the file ``suffix`` to a hypervisor.

    Others print whom they wait for; they wait at most ``ALL_SECONDS``.
    """
    place = lab.directory.parent.parent / "copying" / f"{host}-{suffix}"
    return lab_lock(place, f"lab up {lab.name}", wait=ALL_SECONDS, say=say)


def _medium_file(bundled: Bundled, system: Os) -> str:
    return f"bundle-{medium.identity(bundled.manifest, system)[:16]}.iso"


def _user_and_host() -> str:
    """The user and host of this command, human-readable; the uid if the user has no name."""
    try:
        name = getuser()
    except (KeyError, OSError):  # a container's user may not be in passwd
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"


def _digest(*parts: object) -> str:
    return sha256(repr((_FORM, parts)).encode()).hexdigest()
