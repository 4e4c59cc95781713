"""What brings a lab of virtual machines up, step by step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from getpass import getuser
from hashlib import sha256
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._log import say
from lab.cluster.bundle import medium
from lab.imaging.golden import GoldenImage
from lab.inventory.inventory import Inventory
from lab.plan.canonical import plain
from lab.plan.step import Step
from lab.providers.libvirt import (
    images,
    layout,
    machines,
    names,
    networks,
    volumes,
    windows_machines,
)
from lab.providers.libvirt.boots import in_parallel
from lab.providers.libvirt.carriage import Carriage
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.libvirt.machine_recipe import MachineRecipe
from lab.providers.libvirt.networks import Management
from lab.providers.libvirt.ownership import Owner
from lab.providers.machines import keyring
from lab.providers.machines.management import SUBNET_BITS
from lab.providers.machines.steps import on_machines, recorded
from lab.providers.provider import LabHandle
from lab.scenario.terms import Os
from lab.state.lock import lab_lock
from lab.topology.intent import Intent, MachineIntent

if TYPE_CHECKING:
    from lab.providers.machines.bundles import Bundled

_FORM = "1"
"""Changes when the steps do something else for the same inputs."""
ALL_SECONDS = 3600.0
"""For all machines together: a last resort, as each boot has its own deadline."""


@dataclass(frozen=True)
class LibvirtBringUp:
    """One lab's way up."""

    lab: LabHandle
    intent: Intent
    inventory: Inventory
    hosts: Mapping[str, Host]
    image_of: Callable[[str], GoldenImage]
    """The golden image of a recipe's name, built if it is not there."""
    digest_of: Callable[[str], str]
    """Its digest, without building it."""
    decide: Callable[[], LibvirtLayout]
    bundled: Bundled | None = None
    """What its cluster is made from; None where pods are namespaces."""

    def steps(self) -> tuple[Step, ...]:
        """From ``place`` to ``network``, ``daemons`` where there are some, the cluster's own."""
        token = self.lab.token
        hardware = [plain(machine.hardware) for machine in self.intent.machines]
        segments = plain(self.intent.segments)
        cards = [plain(machine.interfaces) for machine in self.intent.machines]
        hypervisors = plain([*self.inventory.hypervisors.values()])
        recipes = {name: self.digest_of(name) for name in self._recipes()}
        mtus = sorted({one.mtu for one in self.inventory.hypervisors.values()})
        bundle = (self.bundled.digest,) if self.bundled else ()
        return (
            Step("place", _digest(token, hardware, hypervisors), self._place),
            Step("images", _digest(token, recipes, *bundle), self._images),
            Step(
                "networks",
                _digest(token, segments, str(self.inventory.management.cidr), mtus),
                self._networks,
            ),
            Step("machines", _digest(token, hardware, cards, recipes, *bundle), self._machines),
            *on_machines(self.lab, self.intent, self.bundled, self._guests),
        )

    def _guests(self) -> LibvirtGuests:
        return LibvirtGuests(self.lab, self._layout, self.hosts)

    def _recipes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(machine.hardware.image for machine in self.intent.machines))

    @cached_property
    def _layout(self) -> LibvirtLayout:
        return recorded(self.lab, layout.load(self.lab))

    def _used(self) -> tuple[Host, ...]:
        return tuple(self.hosts[name] for name in self._layout.hypervisors())

    def _place(self) -> None:
        decided = self.decide()
        slow = [name for name in decided.hypervisors() if not decided.accelerated[name]]
        if slow:
            say(
                f"KVM does not work on hypervisor {', '.join(slow)}: machines are emulated there "
                "(TCG), and take about ten times as long"
            )
        self._settle(decided)

    def _settle(self, decided: LibvirtLayout) -> None:
        if self.bundled:
            decided = replace(decided, bundle=self.bundled.digest)
        layout.save(self.lab, decided)
        self.__dict__.pop("_layout", None)

    def _images(self) -> None:
        for name in self._recipes():
            image = self.image_of(name)
            for host in self._used():
                with (
                    alone(self.lab, host.name, image.digest[:16]),
                    host.told(f"copying image '{name}'"),
                ):
                    images.ensure(host.connected, host.hypervisor.storage, image, say)
        if self.bundled:
            self._media(self.bundled)
        users = {
            machine.name: self.image_of(machine.hardware.image).user
            for machine in self.intent.machines
        }
        self._settle(replace(self._layout, users=users))

    def _media(self, bundled: Bundled) -> None:
        """Have what nodes are made from where their hypervisors read it."""
        for host in self._used():
            names = self._layout.on(host.name)
            nodes = [one for one in map(self.intent.machine, names) if one.kubelet]
            for system in dict.fromkeys(node.os for node in nodes):
                with (
                    alone(self.lab, host.name, f"bundle-{bundled.digest[:16]}-{system}"),
                    host.told(f"copying the bundle for {system}"),
                ):
                    self._place_medium(bundled, host, system)

    @staticmethod
    def _place_medium(bundled: Bundled, host: Host, system: Os) -> None:
        file = medium.medium(bundled.store, bundled.manifest, system, say)
        shared = images.pool(host.connected, host.hypervisor.storage)
        volumes.refresh(shared)
        what = f"medium of Kubernetes {bundled.manifest.kubernetes} for {system}"
        images.ensure_file(shared, _medium_file(bundled, system), file, what, say)

    def _networks(self) -> None:
        systems = {machine.name: machine.os for machine in self.intent.machines}
        keyring.ensure(self.lab, [name for name, os in systems.items() if os == "linux"])
        keyring.ensure_passwords(self.lab, [name for name, os in systems.items() if os != "linux"])
        owner = self._owner()
        for host in self._used():
            asked = Management(
                self._layout.on(host.name), self.inventory.management.cidr, host.hypervisor.mtu
            )
            with host.told(f"making the networks of lab '{self.lab.name}'"):
                networks.ensure_management(host.connected, self.lab, owner, asked)
                for segment in self.intent.segments:
                    networks.ensure_segment(host.connected, self.lab, owner, segment)
                volumes.ensure_pool(
                    host.connected,
                    names.pool(self.lab),
                    names.uuid(self.lab, "pool", ""),
                    volumes.lab_path(host.hypervisor.storage, self.lab.token),
                )
        tunnels = Carriage(self.lab, self.intent, self._layout.machines, self.hosts)
        for what in tunnels.make(owner):
            say(what)

    def _machines(self) -> None:
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
            in_parallel(jobs, limits, Deadline(self._all_seconds()))
        finally:
            guests.close()

    def _all_seconds(self) -> float:
        """For all machines together: Windows has a first start that takes its time."""
        patient = all(self._layout.accelerated.values())
        first = windows_machines.SPEAK_SECONDS[patient] + windows_machines.SHELL_SECONDS[patient]
        return ALL_SECONDS + len(self._layout.windows) * first

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

        def boot() -> None:
            began = time.monotonic()
            owner = self._owner(machine.name, recipe.digest())
            before = machines.ensure(host, recipe, owner, say)
            self._greet(host, recipe, guests, before)
            if before != "running":
                how = "resumed" if before == "saved" else "booted"
                say(f"{machine.name}: {how} in {time.monotonic() - began:.1f} s")

        return boot

    def _medium_path(self, host: Host, machine: MachineIntent) -> str | None:
        """Where the hypervisor has the medium of a node; None where the machine needs none."""
        if self.bundled is None or not machine.kubelet:
            return None
        folder = volumes.images_path(host.hypervisor.storage)
        return f"{folder}/{_medium_file(self.bundled, machine.os)}"

    @staticmethod
    def _greet(host: Host, recipe: MachineRecipe, guests: LibvirtGuests, before: str) -> None:
        """Wait for its shell; a Windows machine has to say its keys before anyone can knock."""
        lab, name = recipe.lab, recipe.machine.name
        if recipe.is_windows:
            windows_machines.meet(host, recipe, lambda: machines.console_text(host, lab, name))
            windows_machines.reach(recipe, guests.shell(name))
        else:
            machines.reach(host, recipe, guests.shell(name))
        if before == "saved" and recipe.is_windows:
            windows_machines.set_clock(guests.windows_shell(name))
        elif before == "saved":
            machines.set_clock(guests.shell(name))

    def _owner(self, machine: str = "", made_from: str = "") -> Owner:
        now = time.time()
        expiry = self.inventory.expiry
        return Owner(
            lab=self.lab.name,
            token=self.lab.token,
            directory=self.lab.directory,
            controller=controller_id(),
            owner=self.inventory.owner or _maker(),
            created=now,
            expires=None if expiry is None else now + expiry,
            machine=machine,
            made_from=made_from,
        )


def alone(lab: LabHandle, host: str, what: str) -> AbstractContextManager[None]:
    """One lab of this controller at a time copies a certain thing to a hypervisor.

    Who waits is told for whom, and for no longer than all machines together may take.
    """
    place = lab.directory.parent.parent / "copying" / f"{host}-{what}"
    command = f"lab up {lab.name}"
    return lab_lock(place, command, wait=ALL_SECONDS, say=say)


def _medium_file(bundled: Bundled, system: Os) -> str:
    return f"bundle-{medium.identity(bundled.manifest, system)[:16]}.iso"


def _maker() -> str:
    """Who runs this command, for people: by number where the system has no name for them."""
    try:
        name = getuser()
    except (KeyError, OSError):  # a container's user, in no passwd
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"


def _digest(*parts: object) -> str:
    return sha256(repr((_FORM, parts)).encode()).hexdigest()
