"""One virtual machine: its disks made, its domain defined and started, its SSH waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.libvirt import (
    console,
    documents,
    domains,
    images,
    names,
    volumes,
    windows_machines,
)
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.machine_recipe import MachineRecipe, console_volume
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.remote.shell import Shell

if TYPE_CHECKING:
    import libvirt

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


def ensure(host: Host, recipe: MachineRecipe, owner: Owner, say: Callable[[str], None]) -> str:
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
            if _has_given_up(host, recipe, found[0]):
                say(f"{name}: started again, its system had come to its end")
                _stop(host, recipe, found[0])
            return domains.start(found[0])
        if found is not None:
            say(f"{name}: rebuilt, what it is made from has changed")
            domains.remove(found[0])
        _make(host, recipe, owner).create()
    return "new"


def _has_given_up(host: Host, recipe: MachineRecipe, domain: libvirt.virDomain) -> bool:
    """Whether it runs, and its kernel has panicked: it would never answer."""
    if recipe.is_windows or domains.state(domain) != "running":
        return False
    return console.has_given_up(console_text(host, recipe.lab, recipe.machine.name, _HEARD_BYTES))


def _stop(host: Host, recipe: MachineRecipe, domain: libvirt.virDomain) -> None:
    """Cut its power, and forget what it said: nobody is to take its last words for the next."""
    domain.destroy()
    pool = host.lab_pool(recipe.lab.token)
    if pool is not None:
        volumes.refresh(pool)
        volumes.remove(pool, console_volume(recipe.machine.name))


def _make(host: Host, recipe: MachineRecipe, owner: Owner) -> libvirt.virDomain:
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
    recipe: MachineRecipe,
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
        bundle=recipe.bundle,
    )
    return documents.domain(spec, owner)


def reach(host: Host, recipe: MachineRecipe, shell: Shell) -> None:
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
        hint = f"'lab console {recipe.lab.name} {name}'; 'lab gather {recipe.lab.name}'"
        if why is not None:
            raise BrokenError(doing, f"{why}; {story}", hint)
        raise DeadlineError(
            doing, f"no answer within {deadline.seconds:g} s; {last}; {story}", hint
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


def set_clock(shell: Shell) -> None:
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
