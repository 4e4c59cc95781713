"""Create one virtual machine's disks and domain, start it, and wait for SSH."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface
from typing import TYPE_CHECKING, Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines import keyring
from lab.machines.images.golden import GoldenImage
from lab.machines.libvirt import documents, domains, images, ownership, storage
from lab.machines.libvirt.documents import Card, Disc, VirtualMachine
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.ownership import Owner
from lab.machines.management import management_mac
from lab.providers.provider import LabHandle
from lab.shells.shell import Shell
from lab.topology.intent import MachineIntent

if TYPE_CHECKING:
    import libvirt

    from lab.machines.images.seed import Identity

_FORM = "1"
"""Increment when a machine is built differently from the same inputs."""
_GIB = 1 << 30
_BOOT_SECONDS = {True: 300.0, False: 900.0}
"""From start to SSH; the key is True with KVM. Measured under TCG on 2 busy cores: up to 117 s."""
_TRY_SECONDS = 20.0
"""After this long without an answer, check that the domain still runs. A first login took 3.3 s
under TCG on idle cores."""
_CLOCK_SLACK = 1.0
"""Seconds that a resumed guest's clock may be off before it is set."""
LOG_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
"""Bytes at the end of the console to examine while waiting for a machine."""


@dataclass(frozen=True, slots=True)
class MachineRecipe:
    """Everything that one machine is built from. Equal recipes give equal machines."""

    lab: LabHandle
    machine: MachineIntent
    image: GoldenImage
    accelerated: bool
    management_mtu: int
    management_address: str
    management_prefix: int
    bundle: str | None = None
    """Path on the hypervisor of the medium with Kubernetes, named by its content."""

    def digest(self) -> str:
        """Hash of everything whose change requires a rebuild; not the network configuration."""
        added = tuple(
            asdict(card) | {"address": IPv4Address(card.address) if card.address else None}
            for card in self.machine.hardware.nics
        )
        hardware = asdict(self.machine.hardware) | {"nics": added}
        cards = [(card.name, card.mac, card.segment, card.mtu) for card in self.machine.interfaces]
        own = () if self.is_windows else (keyring.host_key(self.lab, self.machine.name).public,)
        keys = (keyring.client_public(self.lab), *own)
        parts = (_FORM, self.image.digest, hardware, cards, keys, self.accelerated)
        addressed = (self.management_address, self.management_prefix, self.management_mtu)
        bundled = (self.bundle,) if self.bundle else ()
        return sha256(repr((parts, addressed, *bundled)).encode()).hexdigest()

    @property
    def is_windows(self) -> bool:
        """True if it runs Windows: configured by an answer file, with keys of its own making."""
        return self.image.first_boot == "windows"

    def identity(self) -> Identity:
        """The contents of a Linux machine's seed."""
        from lab.machines.images.seed import SeedCard  # noqa: PLC0415  an extra

        return keyring.seed_identity(
            self.lab,
            self.machine.name,
            f"{self.lab.token}-{self.digest()[:16]}",
            IPv4Interface(f"{self.management_address}/{self.management_prefix}"),
            user=self.image.user,
            mtu=self.management_mtu,
            cards=(
                SeedCard(interface.name, interface.mac, mtu=interface.mtu)
                for interface in self.machine.interfaces
            ),
        )

    def cards(self) -> tuple[Card, ...]:
        """Its network cards: the intent's, the management card, and those the scenario adds.

        In this order, because Linux uses the first card's address for a device without one: so it
        is the cluster's, as on machines without a management card.
        """
        lab, machine = self.lab, self.machine
        own = (
            Card(card.mac, ownership.network_name(lab, card.segment), card.mtu)
            for card in machine.interfaces
        )
        management = Card(
            management_mac(lab, machine.name),
            ownership.network_name(lab, ownership.MANAGEMENT),
            self.management_mtu,
        )
        added = (
            Card(nic.mac or management_mac(lab, f"{machine.name}/{number}"), nic.network, None)
            for number, nic in enumerate(machine.hardware.nics)
        )
        return (*own, management, *added)

    @property
    def console_volume(self) -> str:
        """The volume in the lab's pool with the machine's console output."""
        return _console_volume(self.machine.name)


Define = Callable[[Host, MachineRecipe, "libvirt.virStoragePool", str], VirtualMachine]
"""Writes a machine's medium to the lab's pool; returns the machine with a disk at that path."""


def ensure_machine(
    host: Host, recipe: MachineRecipe, owner: Owner, define: Define, say: Callable[[str], None]
) -> str:
    """Start the machine; returns its previous state: ``"new"``, or a state of its domain.

    A machine built from another recipe is rebuilt. Raises BrokenError when a foreign domain has
    its name, or libvirt refuses.
    """
    name = recipe.machine.name
    with host.explain_errors(f"bringing machine '{name}' up"):
        existing = domains.find(host.connected, recipe.lab, name)
        if existing is not None and existing[1].made_from == owner.made_from:
            if _has_given_up(host, recipe, existing[0]):
                say(f"{name}: restarted, its system had halted")
                _power_off(host, recipe, existing[0])
            return domains.start(existing[0])
        if existing is not None:
            say(f"{name}: rebuilt, its input has changed")
            domains.remove(existing[0])
        _create(host, recipe, owner, define).create()
    return "new"


def _has_given_up(host: Host, recipe: MachineRecipe, domain: libvirt.virDomain) -> bool:
    """True if it runs but its boot has failed for good, so that it would never answer."""
    if recipe.is_windows or domains.state(domain) != "running":
        return False
    console = console_text(host, recipe.lab, recipe.machine.name, _TAIL_BYTES)
    return domains.has_given_up(console)


def _power_off(host: Host, recipe: MachineRecipe, domain: libvirt.virDomain) -> None:
    """Power it off and delete its console output, so that the next boot starts with none."""
    domain.destroy()
    pool = host.lab_pool(recipe.lab.token)
    if pool is not None:
        storage.refresh(pool)
        storage.remove(pool, recipe.console_volume)


def _create(host: Host, recipe: MachineRecipe, owner: Owner, define: Define) -> libvirt.virDomain:
    lab, machine, image = recipe.lab, recipe.machine, recipe.image
    pool = host.lab_pool(lab.token)
    if pool is None:
        action = f"making machine '{machine.name}'"
        raise BrokenError(action, "the lab's storage pool is missing", "'lab up'")
    golden = images.image_path(host.hypervisor.storage, image, "qcow2")
    size = max(machine.hardware.disk_gib, image.virtual_gib) * _GIB
    storage.remove(pool, recipe.console_volume)
    disk = storage.clone(pool, f"{machine.name}.qcow2", golden, size)
    document = documents.domain(define(host, recipe, pool, disk), ownership.owner_xml(owner))
    return host.connected.defineXML(document)


def linux_machine(
    host: Host, recipe: MachineRecipe, pool: libvirt.virStoragePool, disk: str
) -> VirtualMachine:
    """Write its seed; returns the machine."""
    from lab.machines.images.seed import seed_files, seed_image  # noqa: PLC0415  an extra

    image = recipe.image
    path = partial(images.image_path, host.hypervisor.storage, image)
    content = seed_image(seed_files(recipe.identity()))
    seed = storage.write(pool, f"{recipe.machine.name}.seed", content)
    return virtual_machine(
        recipe,
        pool,
        disk,
        seed,
        kind="linux",
        kernel=path("kernel") if image.kernel else None,
        initrd=path("initrd") if image.initrd else None,
        arguments=image.arguments,
    )


def virtual_machine(
    recipe: MachineRecipe, pool: libvirt.virStoragePool, disk: str, seed: str, **system: Any
) -> VirtualMachine:
    """The machine of a recipe; ``system``: the fields that depend on its operating system."""
    lab, machine = recipe.lab, recipe.machine
    return VirtualMachine(
        name=ownership.domain_name(lab, machine.name),
        uuid=ownership.object_uuid(lab, "domain", machine.name),
        title=f"machine {machine.name} of lab {lab.name}",
        accelerated=recipe.accelerated,
        vcpus=machine.hardware.vcpus,
        memory_mib=machine.hardware.memory_mib,
        firmware=recipe.image.firmware,
        disk=disk,
        discs=(Disc(seed), *((Disc(recipe.bundle),) if recipe.bundle else ())),
        console_log=f"{storage.directory_of(pool)}/{recipe.console_volume}",
        cards=recipe.cards(),
        **system,
    )


def wait_for_shell(host: Host, recipe: MachineRecipe, shell: Shell) -> None:
    """Wait until the machine runs a command over SSH.

    Raises DeadlineError with the phase of its boot and the last lines of its console; BrokenError
    with the same when its domain has stopped.
    """
    name = recipe.machine.name
    deadline = Deadline(_BOOT_SECONDS[recipe.accelerated])
    for _ in deadline.tries():
        try:
            shell.wait(Deadline(min(_TRY_SECONDS, max(0.1, deadline.left()))))
        except DeadlineError as error:
            last = error.happened
        else:
            return
        console = console_text(host, recipe.lab, name, _TAIL_BYTES)
        why = _why_hopeless(host, recipe.lab, name, console)
        if why is not None:
            break
    action = f"waiting for machine '{name}' to answer over SSH"
    story = f"{domains.boot_phase(console)}; the end of its console:{domains.console_tail(console)}"
    hint = f"'lab console {recipe.lab.name} {name}'; 'lab gather {recipe.lab.name}'"
    if why is not None:
        raise BrokenError(action, f"{why}; {story}", hint)
    late = f"no answer within {deadline.seconds:g} s; {last}; {story}"
    raise DeadlineError(action, late, hint)


def _why_hopeless(host: Host, lab: LabHandle, name: str, console: str) -> str | None:
    """Why waiting is pointless; None if it is not."""
    with host.explain_errors(f"looking at machine '{name}'"):
        existing = domains.find(host.connected, lab, name)
        state = domains.state(existing[0]) if existing else None
    if state is None:
        return "its domain is gone"
    if state != "running":
        return f"its domain is {domains.WORDS[state]}"
    return "it is running but will never answer" if domains.has_given_up(console) else None


def set_clock(shell: Shell) -> None:
    """Set the clock of a resumed guest, which stopped while it was suspended."""
    deadline = Deadline(60.0)
    output = shell.run(("date", "+%s.%N"), deadline).stdout
    now = time.time()
    if abs(float(output) - now) > _CLOCK_SLACK:
        shell.run(("date", "--utc", "--set", f"@{now:.3f}"), deadline)


def console_text(host: Host, lab: LabHandle, machine: str, last: int = LOG_BYTES) -> str:
    """The last bytes of the machine's console output; empty if there is none."""
    with host.explain_errors(f"reading the console of '{machine}'"):
        pool = host.lab_pool(lab.token)
        content = storage.read(pool, _console_volume(machine), -last) if pool else None
    return (content or b"").decode(errors="replace")


def _console_volume(machine: str) -> str:
    return f"{machine}.console.log"
