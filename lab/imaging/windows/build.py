"""Windows Server from Microsoft's ISO to a golden image: read, answered, installed, sealed.

The machine outlives the command that started it. What cannot be seen of it (password, key, which
steps are done) is in the build's directory, so a build that was killed goes on where it was.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lab._errors import LabError, PreflightError
from lab.imaging import disks, inputs, secret, source, tools
from lab.imaging.job import Built, Job
from lab.imaging.recipe import Windows
from lab.imaging.windows import record as records
from lab.imaging.windows.bootstrap_settings import OPENSSH, BootstrapSettings
from lab.imaging.windows.decision import decided, takes_own_key
from lab.imaging.windows.following import Watch
from lab.imaging.windows.handover import Handover
from lab.imaging.windows.machine import Building, Disc, Machine, Site
from lab.imaging.windows.media import Channel
from lab.imaging.windows.product_key import checked, secret_of
from lab.imaging.windows.record import Record

_CONTENT = 24 << 30
"""Bytes that an installed server takes twice while its disk comes home, desktop included. [I]"""


def build(job: Job) -> Built:
    """Fill the scratch directory with the disk, or go on with an installation that is under way.

    Raises
    ------
    PreflightError
        When a medium, a program, a hypervisor or room is missing, or a medium is not the right one.
    BrokenError
        When a phase fails, or takes too long: which, and what was seen of it.

    """
    tools.need(job.doing, "qemu-img", "setpriv")
    if job.installer is None:
        raise PreflightError(
            job.doing, "there is no hypervisor to install it on", "add one to the inventory"
        )
    site = job.installer.windows
    found = _resumed(job, site)
    machine, record = found if found is not None else _begun(job, site)
    try:
        size = _finished(job, machine, record)
    except LabError:
        _give_up(job, machine)
        raise
    except BaseException:
        job.tell(
            f"the installation goes on by itself ({machine.where}); "
            f"'lab image build {job.recipe.name}' goes on with it, 'lab image gc --yes' removes it"
        )
        raise
    machine.remove()
    records.forget(job.scratch)
    return Built(virtual_gib=size)


def _parts(job: Job) -> Windows:
    assert job.recipe.windows is not None, "chosen by the recipe's kind"
    return job.recipe.windows


def _resumed(job: Job, site: Site) -> tuple[Building, Record] | None:
    """The machine that an earlier command has left; what cannot be gone on with is removed."""
    record = records.load(job.scratch)
    if record is not None and record.stage != "making" and (job.scratch / records.KEY).exists():
        machine = site.find(job.scratch)
        if machine is not None:
            job.tell(f"going on with the installation in {machine.where}")
            return machine, record
    site.remove(job.scratch)
    for path in job.scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return None


def _begun(job: Job, site: Site) -> tuple[Building, Record]:
    """A machine that has just been started."""
    from lab.guests.keys import make_key_pair  # noqa: PLC0415  slow, and an extra
    from lab.imaging.windows.passwords import random_password  # noqa: PLC0415  as above

    job.room(min(_CONTENT, job.recipe.disk_gib << 30) // 2, "the installed disk")
    record = Record("making", random_password())
    pair = make_key_pair(f"hybridlab build of {job.recipe.name}")
    asked = _machine(job, record, pair.public)
    _write_private(job.scratch / records.KEY, pair.private)
    records.save(job.scratch, record)
    try:
        job.tell("making the machine that it is installed in")
        machine = site.begin(asked)
    except BaseException:
        records.forget(job.scratch)  # begin() has taken away what it had made
        raise
    record = replace(record, stage="installing")
    records.save(job.scratch, record)
    shutil.rmtree(job.scratch / "work", ignore_errors=True)
    how = "on KVM" if machine.accelerated else "emulated, which takes many hours"
    job.tell(f"started {machine.where}, {how}")
    return machine, record


def _machine(job: Job, record: Record, public_key: str) -> Machine:
    """The media read, the answers written; nothing is on a hypervisor yet."""
    from lab.imaging.windows import eltorito, inspection, iso  # noqa: PLC0415  a slow extra
    from lab.imaging.windows.answer_medium import install_medium  # noqa: PLC0415  the same

    recipe, parts = job.recipe, _parts(job)
    assert recipe.firmware != "kernel", "the reader of recipes has looked"
    digests = inputs.found(recipe, job.inventory, job.downloads, job.say)
    setup = _disc(job, source.ISO, digests)
    assert setup is not None, "found() has looked"
    medium = iso.read(setup.path)
    image = inspection.choose(medium, parts.wanted)
    job.tell(f"{image.name} ('{image.display_name}'), {medium.channel} medium '{medium.label}'")
    settings = decided(
        parts, recipe.firmware, medium.channel, record.password, _own_key(job, medium.channel)
    )
    openssh = inputs.provided(job, source.OPENSSH)
    bootstrap = BootstrapSettings(
        release=parts.wanted.year,
        storage=settings.storage,
        surface=parts.wanted.surface,
        authorized_key=public_key.strip(),
        virtio=parts.virtio,
        openssh=OPENSSH if openssh else None,
    )
    answers = install_medium(
        settings,
        medium.channel,
        bootstrap,
        recipe.templates,
        openssh=openssh.read_bytes() if openssh else None,
    )
    overlay = None
    if recipe.firmware == "uefi":
        work = job.scratch / "work"
        work.mkdir()
        overlay = work / "setup.qcow2"
        eltorito.overlay(setup.path, medium, overlay)
    return Machine(
        image=recipe.name,
        site=job.scratch,
        architecture=recipe.architecture,
        disk_gib=recipe.disk_gib,
        memory_mib=parts.memory_mib,
        vcpus=parts.vcpus,
        firmware=recipe.firmware,
        storage=settings.storage,
        setup=setup,
        overlay=overlay,
        virtio=_disc(job, source.VIRTIO, digests),
        answers=answers,
    )


def _own_key(job: Job, channel: Channel) -> str | None:
    """The inventory's product key, where it has one and the medium may take one."""
    secrets = job.inventory.secrets
    name = secret_of(job.recipe.name, secrets)
    if name is None or not takes_own_key(_parts(job), channel):
        return None
    job.tell(f"the product key is that of [secrets.{name}]")
    return checked(name, secret.value(name, secrets[name], job.doing))


def _disc(job: Job, name: str, digests: Mapping[str, str]) -> Disc | None:
    path = inputs.provided(job, name)
    return None if path is None else Disc(path, digests[name].rpartition(":")[2])


def _finished(job: Job, machine: Building, record: Record) -> int:
    """Follow it to the end of its installation, and take its disk home; its size in GiB."""
    handover = Handover(job, machine, record)
    watch = Watch(
        image=job.recipe.name,
        machine=machine,
        minutes=_parts(job).deadlines,
        logs=job.downloads.parent / "logs",
        tell=job.tell,
        resets_before=record.resets,
        witness=handover.witness,
        reset=handover.reset,
    )
    if handover.record.stage in {"installing", "steps"}:
        watch.until(lambda now: now.phase in {"ready", "sysprep"})
        handover.run_steps(watch)
    if handover.record.stage == "sealing":
        watch.until(lambda now: now.off)
        handover.reached("taking")
    machine.take_answers()
    job.tell("taking the finished disk home")
    work = job.scratch / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    machine.bring_home(work / "disk")
    size = disks.adopt(job, work / "disk")
    shutil.rmtree(work)
    return size


def _give_up(job: Job, machine: Building) -> None:
    """Take away what has failed; where even that fails, the next command does it."""
    try:
        machine.remove()
    except LabError as error:
        job.tell(f"{machine.where} is left: {error.happened}; the next build removes it")
        _unreachable(job)
        return
    records.forget(job.scratch)


def _unreachable(job: Job) -> None:
    """Have the next command remove what this one could not."""
    record = records.load(job.scratch)
    if record is not None:
        records.save(job.scratch, replace(record, stage="making"))


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
