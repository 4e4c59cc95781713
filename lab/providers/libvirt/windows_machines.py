"""A clone of a Windows image: the medium that tells it who it is, and what it tells of itself.

A clone makes its own SSH host key and WinRM certificate at its first start, and says both on its
serial port, which nobody but the hypervisor writes down. They are pinned from there, and never
learned from the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.imaging import recipes
from lab.imaging.recipe import WindowsPhase
from lab.imaging.windows import monitor
from lab.imaging.windows.monitor import Progress, Seen
from lab.imaging.windows.settings import CloneCard, CloneSettings, Region
from lab.providers.libvirt import console, documents, domains, drives, names, volumes
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.machine_recipe import MachineRecipe, console_volume
from lab.providers.machines import keyring, management
from lab.providers.machines.keyring import Pins
from lab.remote.shell import Shell
from lab.topology.intent import Interface, MachineIntent

if TYPE_CHECKING:
    import libvirt

    from lab.providers.libvirt.ownership import Owner
    from lab.remote.windows import WindowsShell

SPEAK_SECONDS = {True: 1800.0, False: 18_000.0}
"""From the first start to its keys on the console, by whether KVM works. Not measured: no Windows
ran where this was written; packer's recipes allow a first start half an hour."""
SHELL_SECONDS = {True: 300.0, False: 3000.0}
"""From there, or from any later start, to a shell. Not measured either."""
_LOOK_SECONDS = 1.0
_CLOCK_SECONDS = 60.0
_SAID: Mapping[WindowsPhase, str] = {
    "starting": "it has said nothing yet: firmware, boot loader, or the generalised image starts",
    "winpe": "it runs Setup's own system, which a clone never should",
    "disk": "it partitions its disk, which a clone never should",
    "copy": "it lays down files, which a clone never should",
    "specialize": "it takes on its name and drivers (specialize)",
    "oobe": "it starts once more (OOBE)",
    "first-logon": "the first logon runs clone.ps1",
    "ready": "its shells listen",
    "sysprep": "it is being generalised, which a clone never should",
}


def seed_volume(machine: str) -> str:
    """The volume of the lab's pool that is its medium, until it has been read."""
    return f"{machine}.seed"


def settings(recipe: MachineRecipe, region: Region) -> CloneSettings:
    """Who the clone is. Secret.

    ``region``: language and time, as its image was installed with.
    """
    lab, machine = recipe.lab, recipe.machine
    first = CloneCard(
        name=management.DEVICE,
        mac=management.management_mac(lab, machine.name),
        address=f"{recipe.management_address}/{recipe.management_prefix}",
        gateway=None,
        dns=(),
        mtu=recipe.management_mtu,
    )
    return CloneSettings(
        computer_name=machine.name,
        administrator_password=keyring.password(lab, machine.name),
        authorized_key=keyring.client_public(lab),
        management_address=recipe.management_address,
        cards=(first, *(card(machine, one) for one in machine.interfaces)),
        time_server=None,
        region=region,
    )


def medium_of(recipe: MachineRecipe) -> bytes:
    """The medium that tells a clone who it is. Secret."""
    from lab.imaging.windows.answer import clone_medium  # noqa: PLC0415  an extra

    made_from = recipes.load(recipe.image.name)
    assert made_from.windows is not None, "its image's first boot is Windows'"
    return clone_medium(settings(recipe, made_from.windows.region), made_from.templates)


def card(machine: MachineIntent, interface: Interface) -> CloneCard:
    """A card of a node as the clone is to set it up. Pure."""
    gateway = next(
        (
            route.via
            for route in machine.routes
            if route.destination == "default" and route.device == interface.name
        ),
        None,
    )
    return CloneCard(
        name=interface.name,
        mac=interface.mac,
        address=interface.addresses[0] if interface.addresses else None,
        gateway=gateway,
        dns=(),
        mtu=interface.mtu,
    )


def define(
    host: Host, recipe: MachineRecipe, owner: Owner, disk: str, pool: libvirt.virStoragePool
) -> str:
    """Write its medium, and the document of its domain; what it said in an earlier life goes."""
    from lab.providers.libvirt import ownership  # noqa: PLC0415  as its caller does

    lab, machine, image = recipe.lab, recipe.machine, recipe.image
    assert image.firmware != "kernel", "no Windows boots so"
    keyring.unpin(lab, machine.name)
    seed = volumes.write(pool, seed_volume(machine.name), medium_of(recipe))
    directory = volumes.path_of(pool)
    spec = documents.WindowsDomain(
        name=names.domain(lab, machine.name),
        uuid=names.uuid(lab, "domain", machine.name),
        title=f"machine {machine.name} of lab {lab.name}",
        accelerated=recipe.accelerated,
        hyperv=host.hyperv if recipe.accelerated else (),
        vcpus=machine.hardware.vcpus,
        memory_mib=machine.hardware.memory_mib,
        firmware=image.firmware,
        nvram=f"{directory}/{machine.name}.firmware",
        storage=image.storage,
        disk=disk,
        discs=(
            documents.Disc(seed),
            *((documents.Disc(recipe.bundle),) if recipe.bundle else ()),
        ),
        console_log=f"{directory}/{console_volume(machine.name)}",
        cards=recipe.cards(),
    )
    return documents.windows(spec, ownership.write(owner))


def meet(host: Host, recipe: MachineRecipe, said: Callable[[], str]) -> None:
    """Wait until it has said its keys, pin them, and take its medium away; at once if they are.

    Parameters
    ----------
    said
        Reads all that its console has said in this life.

    Raises
    ------
    BrokenError
        When a step of the lab's script failed, or its domain stopped: with its last lines.
    DeadlineError
        When it takes too long, naming the phase that it was in.

    """
    lab, name = recipe.lab, recipe.machine.name
    if keyring.pins(lab, name) is None:
        pins = _heard(host, recipe, said)
        keyring.pin(lab, name, pins)
    with host.told(f"taking the medium out of machine '{name}'"):
        pool, found = host.lab_pool(lab.token), domains.find(host.connected, lab, name)
        if pool is not None and found is not None:
            drives.discard(found[0], pool, seed_volume(name))


def _heard(host: Host, recipe: MachineRecipe, said: Callable[[], str]) -> Pins:
    lab, name = recipe.lab, recipe.machine.name
    doing = f"waiting for machine '{name}' to say its keys on its console"
    hint = f"'lab console {lab.name} {name}'; 'lab screenshot {lab.name} {name}'"
    deadline = Deadline(SPEAK_SECONDS[recipe.accelerated])
    progress = monitor.begin(time.monotonic())

    def look() -> bool:
        nonlocal progress
        with host.told(f"looking at machine '{name}'"):
            found = domains.find(host.connected, lab, name)
            runs = found is not None and domains.state(found[0]) == "running"
        text = said()
        new = Seen(at=time.monotonic(), said=text, runs=runs)
        progress = monitor.advance(monitor.begin(progress.began), new)
        if progress.phase == "ready" and progress.key and progress.certificate:
            return True
        if progress.ending:
            raise BrokenError(doing, _ended(progress, text), hint)
        return False

    try:
        deadline.wait(doing, look, every=_LOOK_SECONDS)
    except DeadlineError as error:
        raise DeadlineError(
            doing, f"it has not within {deadline.seconds:g} s; {_where(progress)}", hint
        ) from error
    return Pins(progress.key, progress.certificate)


def _ended(progress: Progress, text: str) -> str:
    why = {
        "failed": f"step {progress.failure}",
        "again": "it has begun Setup, which a clone never should",
        "loops": f"it has begun to specialise {progress.specializes} times",
    }.get(progress.ending, "its domain has stopped")
    return f"{why}; the last of its console:{console.tail(text)}"


def _where(progress: Progress) -> str:
    step = f", step '{progress.step}'" if progress.step else ""
    return f"{_SAID[progress.phase]}{step}; the last of its console:{console.tail(progress.tail)}"


def reach(recipe: MachineRecipe, shell: Shell) -> None:
    """Wait until it takes a command.

    Raises
    ------
    DeadlineError
        With what the last try met.
    BrokenError
        When it shows another key or certificate than it has said.

    """
    shell.wait(Deadline(SHELL_SECONDS[recipe.accelerated]))


def set_clock(shell: WindowsShell) -> None:
    """Put the clock of a resumed guest right: it stood still with its memory.

    Raises
    ------
    BrokenError
        When it refuses.

    """
    milliseconds = int(time.time() * 1000)
    moment = f"[DateTimeOffset]::FromUnixTimeMilliseconds({milliseconds})"
    script = f"$null = Set-Date -Date {moment}.LocalDateTime"
    done = shell.powershell(script, Deadline(_CLOCK_SECONDS))
    if done.code:
        raise BrokenError(
            "setting the clock of a machine that was suspended",
            f"Set-Date ended with {done.code}: {done.stderr.strip()[-400:]}",
            "set it by hand: 'lab ssh'",
        )
