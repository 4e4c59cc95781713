"""Windows machines of a lab on libvirt: clones of a golden image.

A clone generates its SSH host key and WinRM certificate at its first boot and prints the key and
the certificate's digest on its serial port, which only the hypervisor records. They are pinned from
there, never learned from the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.facts.signatures import in_log
from lab.machines import keyring, management
from lab.machines.images import recipes
from lab.machines.images.recipe import Windows, WindowsPhase
from lab.machines.keyring import Pins
from lab.machines.libvirt import domains, storage
from lab.machines.libvirt.documents import VirtualMachine
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.machines import MachineRecipe, virtual_machine
from lab.shells.shell import Shell
from lab.state.files import write_private
from lab.topology.intent import Interface, MachineIntent
from lab.windows.images import monitor, offline
from lab.windows.images.monitor import Observation, Progress
from lab.windows.images.settings import MASK, CloneCard, CloneSettings, mask

if TYPE_CHECKING:
    import libvirt

    from lab.windows.shell import WindowsShell

SPEAK_SECONDS = {True: 1800.0, False: 18_000.0}
"""From the first boot to its keys on the console; the key is True with KVM. Not measured: no
Windows ran where this was written; packer's recipes allow half an hour for a first boot."""
SHELL_SECONDS = {True: 300.0, False: 3000.0}
"""From there, or from any later boot, to a shell. Not measured either."""
_LOOK_SECONDS = 1.0
_CLOCK_SECONDS = 60.0
_PHASE_WORDS: Mapping[WindowsPhase, str] = {
    "starting": "no output yet: firmware, boot loader or the generalised image is starting",
    "disk": "it is partitioning its disk, which a clone must not do",
    "copy": "it is copying Windows, which a clone must not do",
    "specialize": "it is applying its name and drivers (specialize)",
    "oobe": "it is in its second boot (OOBE)",
    "first-logon": "its first logon is running clone.ps1",
    "ready": "its shells listen",
    "sysprep": "it is being generalised, which must not happen to a clone",
}


def seed_volume(machine: str) -> str:
    """The volume in the lab's pool with its seed, which is deleted after the first boot."""
    return f"{machine}.seed"


def clone_settings(recipe: MachineRecipe, image: Windows) -> CloneSettings:
    """The clone's settings. Secret. ``image``: what its image's recipe says of Windows."""
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
        cards=(first, *(clone_card(machine, interface) for interface in machine.interfaces)),
        time_server=image.time_server,
        region=image.region,
    )


def clone_card(machine: MachineIntent, interface: Interface) -> CloneCard:
    """The settings of a node's card for the clone. Pure."""
    routes = (route for route in machine.routes if route.destination == "default")
    return CloneCard(
        name=interface.name,
        mac=interface.mac,
        address=interface.addresses[0] if interface.addresses else None,
        gateway=next((route.via for route in routes if route.device == interface.name), None),
        dns=(machine.resolver.server,) if machine.resolver else (),
        mtu=interface.mtu,
    )


def clone_machine(
    host: Host, recipe: MachineRecipe, pool: libvirt.virStoragePool, disk: str
) -> VirtualMachine:
    """Write the clone's seed and delete old pins; returns the machine."""
    from lab.windows.images.answer import clone_medium  # noqa: PLC0415  an extra

    lab, machine, image = recipe.lab, recipe.machine, recipe.image
    made_from = recipes.load(image.name)
    assert image.firmware != "kernel", "Windows does not boot a kernel directly"
    assert made_from.windows is not None, "its image's first boot is Windows'"
    keyring.unpin(lab, machine.name)
    medium = clone_medium(clone_settings(recipe, made_from.windows), made_from.files)
    seed = storage.write(pool, seed_volume(machine.name), medium)
    return virtual_machine(
        recipe,
        pool,
        disk,
        seed,
        kind="windows",
        hyperv=host.hyperv if recipe.accelerated else (),
        nvram=f"{storage.directory_of(pool)}/{machine.name}.firmware",
        storage=image.storage,
    )


def pin_keys(host: Host, recipe: MachineRecipe, read_console: Callable[[], str]) -> None:
    """Wait for a clone's keys on its console, pin them, and delete its seed.

    Does not wait if they are already pinned. ``read_console``: returns its console output since
    it was created.

    Raises BrokenError with the console's last lines when a step of the lab's script failed, or its
    domain stopped. Raises DeadlineError naming the current phase when it takes too long.
    """
    lab, name = recipe.lab, recipe.machine.name
    if keyring.pins(lab, name) is None:
        pins = _wait_for_keys(host, recipe, read_console)
        keyring.pin(lab, name, pins)
    with host.explain_errors(f"ejecting the medium from machine '{name}'"):
        pool, domain = host.lab_pool(lab.token), domains.find(host.connected, lab, name)
        if pool is not None and domain is not None:
            domains.discard_volume(domain[0], pool, seed_volume(name))


def _wait_for_keys(host: Host, recipe: MachineRecipe, read_console: Callable[[], str]) -> Pins:
    lab, name = recipe.lab, recipe.machine.name
    action = f"waiting for machine '{name}' to print its host keys on its console"
    hint = f"'lab console {lab.name} {name}'; 'lab screenshot {lab.name} {name}'"
    deadline = Deadline(SPEAK_SECONDS[recipe.accelerated])
    progress = monitor.begin(time.monotonic())

    def look() -> bool:
        nonlocal progress
        with host.explain_errors(f"looking at machine '{name}'"):
            domain = domains.find(host.connected, lab, name)
            runs = domain is not None and domains.state(domain[0]) == "running"
        text = read_console()
        new = Observation(at=time.monotonic(), output=text, runs=runs)
        progress = monitor.advance(monitor.begin(progress.began), new)
        if progress.phase == "ready" and progress.key and progress.certificate:
            return True
        if progress.ending:
            why = f"{_why_ended(progress, text)}{_evidence(host, recipe)}"
            raise BrokenError(action, why, hint)
        return False

    try:
        deadline.wait(action, look, every=_LOOK_SECONDS)
    except DeadlineError as error:
        raise DeadlineError(
            action,
            f"not within {deadline.seconds:g} s; {_how_far(progress)}{_evidence(host, recipe)}",
            hint,
        ) from error
    return Pins(progress.key, progress.certificate)


def _evidence(host: Host, recipe: MachineRecipe) -> str:
    """Evidence of a clone that prints no keys: screen, disk, Setup's logs. Never raises.

    The clone is paused while its disk is copied.
    """
    lab, name = recipe.lab, recipe.machine.name
    folder = lab.directory / f"{name}-first-start"
    lines: list[str] = []
    try:
        folder.mkdir(exist_ok=True)
        with host.explain_errors(f"looking at machine '{name}'"):
            pool, domain = host.lab_pool(lab.token), domains.find(host.connected, lab, name)
            volume = f"{name}.qcow2"
            disk = storage.find(pool, volume) if pool else None
            if pool is None or domain is None or disk is None:
                return ""
            lines.append(f"its disk differs from the image by {int(disk.info()[2]) >> 20} MiB")
            (folder / "screen.png").write_bytes(domains.screenshot(domain[0]))
            lines.append(f"its screen is in '{folder / 'screen.png'}'")
            with TemporaryDirectory(dir=folder) as work, _paused(domain[0]):
                copy = Path(work) / "disk"
                storage.copy_out(pool, volume, copy)
                logs = offline.read_logs(copy, Path(work), f"reading the disk of '{name}'")
        for log, text in logs.items():
            hidden = mask(text.replace(keyring.password(lab, name), MASK))
            write_private(folder / log, hidden)
            lines += [f"{secret.place}: {secret.match}" for secret in in_log(log, hidden)]
        lines.append(f"its own logs are in '{folder}'")
    except (LabError, OSError) as error:
        happened = error.happened if isinstance(error, LabError) else error
        lines.append(f"no more evidence is available ({happened})")
    return "".join(f"\n  {line}" for line in lines)


@contextmanager
def _paused(domain: libvirt.virDomain) -> Iterator[None]:
    runs = domains.state(domain) == "running"
    if runs:
        domain.suspend()
    try:
        yield
    finally:
        if runs:
            domain.resume()


def _why_ended(progress: Progress, text: str) -> str:
    why = {
        "failed": f"step {progress.failure}",
        "loops": f"it started phase specialize {progress.specializes} times",
    }.get(progress.ending, "its domain has stopped")
    return f"{why}; the end of its console:{domains.console_tail(text)}"


def _how_far(progress: Progress) -> str:
    step = f", step '{progress.step}'" if progress.step else ""
    tail = domains.console_tail(progress.tail)
    return f"{_PHASE_WORDS[progress.phase]}{step}; the end of its console:{tail}"


def wait_for_shell(recipe: MachineRecipe, shell: Shell) -> None:
    """Wait until it runs a command.

    Raises DeadlineError with the last error. Raises BrokenError when its key or certificate does
    not match its pins.
    """
    shell.wait(Deadline(SHELL_SECONDS[recipe.accelerated]))


def set_clock(shell: WindowsShell) -> None:
    """Set the clock of a resumed guest, which stopped while it was suspended.

    Raises BrokenError when that fails.
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
