"""The steps that bring a lab of system containers up."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab._log import say
from lab.inventory.inventory import Inventory
from lab.machines import keyring
from lab.machines.base import on_machines, recorded
from lab.machines.images.image_store import ImageStore
from lab.machines.kubernetes import Bundled
from lab.machines.nspawn import cgroups, containers, holder, layout, networks, preflight
from lab.machines.nspawn.cgroups import Hierarchies
from lab.machines.nspawn.container import Container
from lab.machines.nspawn.guests import UP, ContainerGuests
from lab.machines.nspawn.layout import NspawnLayout
from lab.machines.nspawn.prepared import prepared
from lab.machines.nspawn.system import ContainerSystem, root_image
from lab.machines.system import system_of
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.netns.holders import HolderEntry
from lab.providers.provider import LabHandle
from lab.scenario.terms import Os
from lab.topology.intent import Intent

_FORM = "1"
"""Increment when the steps do something different for the same inputs."""
_BOOT_SECONDS = 90.0
_LOOK_SECONDS = 15.0
"""For one check whether a machine has booted; on a busy host one hung for 90 s."""


class _ExhaustedError(BrokenError):
    """A host-wide resource that a step has found exhausted."""


def _named(error: LabError) -> LabError:
    """That error, with the host-wide resource that is exhausted now, if one is."""
    lacking = preflight.check_exhausted(preflight.room())
    if lacking is None:
        return error
    return _ExhaustedError(error.doing, f"{error.happened}; {lacking.seen}", lacking.hint)


@dataclass(frozen=True)
class NspawnBringUp:
    """Bring-up of one lab."""

    lab: LabHandle
    intent: Intent
    inventory: Inventory
    image_store: ImageStore
    cache: Path
    bundled: Bundled | None
    """Its cluster and bundle; None if pods are namespaces."""

    def steps(self) -> tuple[Step, ...]:
        """``images``, ``networks``, ``machines``, then the steps on running machines."""
        token = self.lab.token
        roots = {root_image(machine) for machine in self.intent.machines}
        recipes = {name: self.image_store.digest(name) for name in sorted(roots)}
        bundle = self.bundled.digest if self.bundled else ""
        hardware = [machine.hardware for machine in self.intent.machines]
        cards = [machine.interfaces for machine in self.intent.machines]
        steps = (
            Step("images", digest(_FORM, token, recipes, bundle), self._images),
            Step("networks", digest(_FORM, token, self.intent.segments), self._networks),
            Step("machines", digest(_FORM, token, hardware, cards, recipes), self._machines),
            *on_machines(self.lab, self.intent, self.bundled, self._guests),
        )
        return tuple(replace(step, run=partial(self._run, step)) for step in steps)

    @staticmethod
    def _run(step: Step) -> None:
        """Run a step; on failure, name an exhausted host-wide resource in the error."""
        try:
            step.run()
        except _ExhaustedError:
            raise
        except LabError as error:
            raise _named(error) from error

    def _systems(self) -> Mapping[str, ContainerSystem]:
        """The systems other than Linux, by the images of their machines."""
        action = f"bringing up lab '{self.lab.name}'"
        return {
            machine.hardware.image: system_of(machine.os, ContainerSystem, action)
            for machine in self.intent.machines
            if machine.os != "linux"
        }

    def _images(self) -> None:
        """Build or find the lab's images, choose its management range, and save its layout."""
        roots: dict[str, Path] = {}
        for machine in self.intent.machines:
            image = machine.hardware.image
            if image not in roots:
                roots[image] = self.image_store.root(root_image(machine), say)
        systems = self._systems()
        bundle = (self.bundled.store, self.bundled.manifest) if self.bundled else None
        layers = {
            image: system.layer(self.cache, roots[image], image, bundle, say)
            for image, system in systems.items()
        }
        ready, others = None, dict[Os, Path]()
        if bundle:
            ready = prepared(self.cache, *bundle, say)
            for image, system in systems.items():
                if system.name not in others:
                    below = roots[image], layers[image]
                    others[system.name] = system.prepare_bundle(self.cache, bundle, below, say)
        before = layout.load(self.lab)
        names = tuple(machine.name for machine in self.intent.machines)
        management = (
            before.management
            if before
            else networks.free_range(self.inventory.management.cidr, self.lab.token)
        )
        decided = NspawnLayout(
            roots,
            management,
            names,
            self.bundled.digest if self.bundled else "",
            ready,
            {machine.name: machine.os for machine in self.intent.machines if machine.os != "linux"},
            layers,
            others,
            preflight.need(self.intent).inotify,
        )
        layout.save(self.lab, decided)
        self.__dict__.pop("_layout", None)

    @cached_property
    def _layout(self) -> NspawnLayout:
        return recorded(self.lab, layout.load(self.lab))

    def _networks(self) -> None:
        keyring.ensure(self.lab, [machine.name for machine in self.intent.machines])
        if holder.find(self.lab) is None:  # others may have come up while images were built
            preflight.require_room(self.intent)
        entry = holder.ensure(self.lab, sys.executable)
        networks.make(entry, self.lab, self._layout, self.intent.segments)

    def _containers(self) -> tuple[Container, ...]:
        every = enumerate(self.intent.machines)
        return tuple(
            Container(self.lab, machine, self._layout, number) for number, machine in every
        )

    def _machines(self) -> None:
        containers.require_own_disks(self.lab)
        entry = holder.entry(self.lab)
        named = networks.bridges(self.intent.segments)
        ours = self._containers()
        hierarchies = holder.hierarchies(entry.pid)
        self._remove_outdated(entry, hierarchies)
        with ThreadPoolExecutor(max_workers=len(ours)) as pool:
            jobs = [pool.submit(self._prepare, our, entry, hierarchies) for our in ours]
        for job in jobs:
            job.result()
        began = time.monotonic()
        started = []
        leaders = containers.leaders(entry.pid)
        for container in ours:
            if container.name not in leaders:
                containers.switch_on(entry, container, hierarchies, named)
                started.append(container.name)
            elif cgroups.is_frozen(hierarchies, self.lab.token, container.name):
                cgroups.freeze(hierarchies, self.lab.token, container.name, frozen=False)
                say(f"{container.name}: resumed")
        with self._guests() as guests:
            deadline = Deadline(_BOOT_SECONDS * guests.patience)
            for at, container in enumerate(ours):
                try:
                    self._wait(guests, entry, container.name, deadline)
                except LabError as error:
                    reason = _named(error)  # before what these machines have taken is free again
                    # it, and who was to boot beside it, boot anew by the next 'up'
                    for other in ours[at:]:
                        if other is container or other.name in started:
                            containers.switch_off(hierarchies, self.lab, other.name)
                    raise reason from error
        if started:
            say(f"booted {', '.join(started)} in {time.monotonic() - began:.1f} s")

    def _remove_outdated(self, entry: HolderEntry, hierarchies: Hierarchies) -> None:
        """Remove machines that the scenario no longer has, or that must be rebuilt."""
        wanted = {container.name: container for container in self._containers()}
        for name in containers.leaders(entry.pid):
            if name not in wanted or not containers.made_from(wanted[name]):
                containers.remove(entry, hierarchies, self.lab, name)

    def _prepare(self, container: Container, entry: HolderEntry, hierarchies: Hierarchies) -> None:
        if not containers.made_from(container):
            containers.remove(entry, hierarchies, self.lab, container.name)
            containers.write_disk(container)

    def _wait(
        self, guests: ContainerGuests, entry: HolderEntry, name: str, deadline: Deadline
    ) -> None:
        def look() -> str:
            within = Deadline(min(_LOOK_SECONDS * guests.patience, deadline.left()))
            try:
                return guests.boot_state(name, within)
            except BrokenError as error:  # it is off briefly during a reboot
                log = containers.log(entry, name)
                if containers.has_ended(log):
                    raise containers.failure(name, log) from error
                late = isinstance(error, DeadlineError) and deadline.left()
                if late and preflight.check_exhausted(preflight.room()):
                    raise  # systemd that has found none hangs for good
                return error.happened

        try:
            deadline.wait(
                f"booting machine '{name}'", look, until=lambda state: state in UP, every=0.05
            )
        except DeadlineError as error:
            log = containers.log(entry, name).rpartition(containers.SWITCHED_ON)[2]
            raise containers.failure(name, log) if log.strip() else error from error

    def _guests(self) -> ContainerGuests:
        return ContainerGuests(self.lab, self._layout, holder.find(self.lab))
