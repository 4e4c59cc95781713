"""One virtual machine: its disks made, its domain defined and started, its SSH waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.shell import GuestShell
from lab.imaging.golden import GoldenImage
from lab.providers.libvirt import (
    console,
    documents,
    domains,
    images,
    keyring,
    names,
    volumes,
    windows_machines,
)
from lab.providers.libvirt.documents import Card
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.topology.intent import MachineIntent

if TYPE_CHECKING:
    import libvirt

    from lab.imaging.seed import Identity

_FORM = "1"
"""Changes when a machine is made differently from the same inputs."""
GIB = 1 << 30
BOOT_SECONDS = {True: 300.0, False: 900.0}
"""From start to SSH, by whether KVM works. Measured under TCG on 2 busy cores: up to 117 s."""
_TRY_SECONDS = 20.0
"""After as long as this without an answer, see that the domain still runs. A first login took
3.3 s under TCG on idle cores."""
_CLOCK_SLACK = 1.0
"""Seconds that a resumed guest's clock may be off before it is set."""
LOG_BYTES = 1 << 20
_HEARD_BYTES = 1 << 16
"""Of the console's end, looked at while a machine is waited for."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that one machine is made from. Two equal recipes make the same machine."""

    lab: LabHandle
    machine: MachineIntent
    image: GoldenImage
    accelerated: bool
    management_mtu: int
    management_address: str
    management_prefix: int

    def digest(self) -> str:
        """Hash of all that makes another machine of it; not of its network's configuration."""
        hardware = asdict(self.machine.hardware)
        cards = [(card.name, card.mac, card.segment, card.mtu) for card in self.machine.interfaces]
        own = () if self.is_windows else (keyring.host_key(self.lab, self.machine.name).public,)
        keys = (keyring.client_public(self.lab), *own)
        parts = (_FORM, self.image.digest, hardware, cards, keys, self.accelerated)
        addressed = (self.management_address, self.management_prefix, self.management_mtu)
        return sha256(repr((parts, addressed)).encode()).hexdigest()

    @property
    def is_windows(self) -> bool:
        """Whether it is told who it is by an answer file, and makes its own keys."""
        return self.image.first_boot == "windows"

    def identity(self) -> Identity:
        """What the machine finds on its seed, if it runs Linux."""
        from lab.imaging.seed import Card as SeedCard  # noqa: PLC0415  an extra
        from lab.imaging.seed import Identity  # noqa: PLC0415  an extra

        key = keyring.host_key(self.lab, self.machine.name)
        management = SeedCard(
            name=names.MANAGEMENT_DEVICE,
            mac=names.management_mac(self.lab, self.machine.name),
            address=IPv4Interface(f"{self.management_address}/{self.management_prefix}"),
            mtu=self.management_mtu,
        )
        return Identity(
            instance=f"{self.lab.token}-{self.digest()[:16]}",
            hostname=self.machine.name,
            user=self.image.user,
            authorized_key=keyring.client_public(self.lab),
            host_key=key.private,
            host_key_public=key.public,
            nics=(
                management,
                *(
                    SeedCard(name=card.name, mac=card.mac, mtu=card.mtu)
                    for card in self.machine.interfaces
                ),
            ),
        )

    def cards(self) -> tuple[Card, ...]:
        """Its network cards: management, those of the intent, and what the scenario adds."""
        lab, machine = self.lab, self.machine
        further = tuple(
            Card(
                nic.mac or names.management_mac(lab, f"{machine.name}/{number}"), nic.network, None
            )
            for number, nic in enumerate(machine.hardware.nics)
        )
        return (
            Card(
                names.management_mac(lab, machine.name),
                names.network(lab, names.MANAGEMENT),
                self.management_mtu,
            ),
            *(
                Card(card.mac, names.network(lab, card.segment), card.mtu)
                for card in machine.interfaces
            ),
            *further,
        )


def console_volume(machine: str) -> str:
    """The volume of the lab's pool that holds what the machine's console has said."""
    return f"{machine}.console.log"


def ensure(host: Host, recipe: Recipe, owner: Owner, say: Callable[[str], None]) -> str:
    """Have the machine running; what it was before: ``"new"``, or a state of its domain.

    One that was made from something else is made anew.

    Raises
    ------
    BrokenError
        When a stranger's domain has its name, or libvirt refuses.

    """
    name = recipe.machine.name
    with host.told(f"bringing machine '{name}' up"):
        found = domains.find(host.connected, recipe.lab, name)
        if found is not None and found[1].made_from == owner.made_from:
            return domains.start(found[0])
        if found is not None:
            say(f"{name}: rebuilt, what it is made from has changed")
            domains.remove(found[0])
        _make(host, recipe, owner).create()
    return "new"


def _make(host: Host, recipe: Recipe, owner: Owner) -> libvirt.virDomain:
    """Disk, seed and definition, anew."""
    lab, machine, image = recipe.lab, recipe.machine, recipe.image
    pool = host.lab_pool(lab.token)
    if pool is None:
        raise BrokenError(
            f"making machine '{machine.name}'", "the lab's storage pool is not there", "'lab up'"
        )
    golden = images.paths(host.hypervisor.storage, image)
    size = max(machine.hardware.disk_gib, image.virtual_gib) * GIB
    volumes.remove(pool, console_volume(machine.name))
    disk = volumes.clone(pool, f"{machine.name}.qcow2", golden.disk, size)
    if recipe.is_windows:
        document = windows_machines.define(host, recipe, owner, disk, pool)
    else:
        document = _linux(recipe, owner, golden, disk, pool)
    return host.connected.defineXML(document)


def _linux(
    recipe: Recipe,
    owner: Owner,
    golden: images.HostImage,
    disk: str,
    pool: libvirt.virStoragePool,
) -> str:
    """Write the seed, and the document of the domain."""
    from lab.imaging.seed import seed_files, seed_image  # noqa: PLC0415  an extra

    lab, machine, image = recipe.lab, recipe.machine, recipe.image
    spec = documents.Domain(
        name=names.domain(lab, machine.name),
        uuid=names.uuid(lab, "domain", machine.name),
        title=f"machine {machine.name} of lab {lab.name}",
        accelerated=recipe.accelerated,
        vcpus=machine.hardware.vcpus,
        memory_mib=machine.hardware.memory_mib,
        firmware=image.firmware,
        kernel=golden.kernel,
        initrd=golden.initrd,
        arguments=image.arguments,
        disk=disk,
        seed=volumes.write(pool, f"{machine.name}.seed", seed_image(seed_files(recipe.identity()))),
        console_log=f"{volumes.path_of(pool)}/{console_volume(machine.name)}",
        cards=recipe.cards(),
    )
    return documents.domain(spec, owner)


def reach(host: Host, recipe: Recipe, shell: GuestShell) -> None:
    """Wait until the machine takes a command over SSH.

    Raises
    ------
    DeadlineError
        Naming the phase that its boot is in, with the last lines of its console.
    BrokenError
        When its domain has stopped meanwhile, with the same.

    """
    name = recipe.machine.name
    deadline = Deadline(BOOT_SECONDS[recipe.accelerated])
    while True:
        try:
            shell.wait(Deadline(min(_TRY_SECONDS, max(0.1, deadline.left()))))
        except DeadlineError as error:
            last = error.happened
        else:
            return
        said = console_text(host, recipe.lab, name, _HEARD_BYTES)
        why = _hopeless(host, recipe.lab, name, said)
        if why is None and deadline.left() > 0.0:
            continue
        doing = f"waiting for machine '{name}' to answer over SSH"
        story = f"{console.phase(said)}; the last of its console:{console.tail(said)}"
        cure = f"'lab console {recipe.lab.name} {name}'; 'lab gather {recipe.lab.name}'"
        if why is not None:
            raise BrokenError(doing, f"{why}; {story}", cure)
        raise DeadlineError(
            doing, f"no answer within {deadline.seconds:g} s; {last}; {story}", cure
        )


def _hopeless(host: Host, lab: LabHandle, name: str, said: str) -> str | None:
    """Why there is nothing to wait for any more; None while there is."""
    with host.told(f"looking at machine '{name}'"):
        found = domains.find(host.connected, lab, name)
        state = domains.state(found[0]) if found else None
    if state is None:
        return "its domain is gone"
    if state != "running":
        return f"its domain is {domains.WORDS[state]}"
    return "it runs, and will never answer" if console.has_given_up(said) else None


def set_clock(shell: GuestShell) -> None:
    """Put the clock of a resumed guest right: it stood still with its memory."""
    deadline = Deadline(60.0)
    said = shell.run(("date", "+%s.%N"), deadline).stdout
    now = time.time()
    if abs(float(said) - now) > _CLOCK_SLACK:
        shell.run(("date", "--utc", "--set", f"@{now:.3f}"), deadline)


def console_text(host: Host, lab: LabHandle, machine: str, last: int = LOG_BYTES) -> str:
    """The last bytes of what the machine's console has said; empty if it has said nothing."""
    with host.told(f"reading the console of '{machine}'"):
        pool = host.lab_pool(lab.token)
        content = volumes.read(pool, console_volume(machine), last) if pool else None
    return (content or b"").decode(errors="replace")
