"""Builds a Windows Server golden image from Microsoft's ISO: read, install, configure, generalise.

The machine outlives the command that started it. State that cannot be read from the machine
(password, key, completed steps) is in the build's directory, so an interrupted build continues.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from lab._deadline import Deadline
from lab._errors import LabError, PreflightError
from lab.facts.signatures import in_log
from lab.machines.images import inputs
from lab.machines.images.cloud import adopt
from lab.machines.images.golden import Built
from lab.machines.images.installation import (
    Building,
    InstallationMachine,
    InstallationSite,
    VendorMedium,
)
from lab.machines.images.job import UNFINISHED, BuildJob
from lab.machines.images.recipe import Windows
from lab.machines.images.terms import random_password, secret_name
from lab.shells import programs
from lab.shells.shell import Reach, WindowsReach
from lab.state.files import write_private
from lab.windows.evidence import collect_facts
from lab.windows.images import offline
from lab.windows.images.answer import install_medium, make_settings, takes_own_key
from lab.windows.images.image_steps import MODULE, ImageStep, Sysprep, golden_steps, settings
from lab.windows.images.medium import (
    Channel,
    choose,
    driver_doubt,
    overlay,
    read,
    read_drivers,
)
from lab.windows.images.monitor import EMULATED, InstallMonitor, Progress
from lab.windows.images.settings import MASK, check_key, mask, read_secret

if TYPE_CHECKING:
    from lab.windows.shell import WindowsShell

Stage = Literal["making", "installing", "steps", "sealing", "taking"]
"""The machine is being created; Setup and the lab's script run; steps run over the shell; sysprep
runs; the disk is being copied.
"""
KEY = "key"
"""This build's private key, beside the record; OpenSSH's format, mode 0600."""


_CONTENT = 24 << 30
"""Bytes that an installed server takes, desktop included; twice while its disk is copied. [I]"""
_LOGS_SECONDS = 90.0
"""Seconds for a query to a machine that is being given up; most do not answer any more."""


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """State of a build that cannot be read from its machine."""

    stage: Stage
    password: str = field(repr=False)
    """The administrator's password. Secret."""
    steps: tuple[str, ...] = ()
    """Names of completed steps."""
    resets: int = 0
    """Number of resets observed so far."""


def load_record(directory: Path) -> BuildRecord | None:
    """The record in a build's directory; None if there is none or it is invalid."""
    from pydantic import TypeAdapter  # noqa: PLC0415  slow

    try:
        return TypeAdapter(BuildRecord).validate_json((directory / UNFINISHED).read_bytes())
    except (OSError, ValueError):
        return None


def _save(directory: Path, record: BuildRecord) -> None:
    """Write the record with mode 0600."""
    write_private(directory / UNFINISHED, json.dumps(asdict(record)) + "\n")


def _forget(directory: Path) -> None:
    """Remove the files that let a build continue."""
    for name in (UNFINISHED, KEY, f"{KEY}.pub"):
        (directory / name).unlink(missing_ok=True)


def build(job: BuildJob) -> Built:
    """Fill the scratch directory with the disk; continues an installation that is under way.

    Raises PreflightError when a medium, a program, a hypervisor or disk space is missing, or a
    medium is the wrong one. Raises BrokenError, with what was observed, when a phase fails or takes
    too long.
    """
    programs.need(job.action, *offline.PROGRAMS)
    if job.installer is None:
        raise PreflightError(
            job.action, "no hypervisor is available to install it on", "add one to the inventory"
        )
    site = job.installer.windows
    installation = _resume(job, site) or _begin(job, site)
    machine = installation.machine
    try:
        size = installation.finish()
    except LabError:
        installation.give_up()
        raise
    except BaseException:
        job.tell(
            f"the installation is still running ({machine.where}); 'lab image build "
            f"{job.recipe.name}' continues with it, 'lab image gc --yes' removes it"
        )
        raise
    machine.remove()
    _forget(job.scratch)
    return Built(virtual_gib=size)


def _parts(job: BuildJob) -> Windows:
    assert job.recipe.windows is not None, "chosen by the recipe's kind"
    return job.recipe.windows


def _resume(job: BuildJob, site: InstallationSite) -> RunningInstallation | None:
    """The installation that an earlier command left; other remains of it are removed."""
    record = load_record(job.scratch)
    if record is not None and record.stage != "making" and (job.scratch / KEY).exists():
        machine = site.find(job.scratch)
        if machine is not None:
            job.tell(f"continuing the installation in {machine.where}")
            return RunningInstallation(job, machine, record)
    site.remove(job.scratch)
    for path in job.scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return None


def _begin(job: BuildJob, site: InstallationSite) -> RunningInstallation:
    """An installation that has just been started."""
    from lab.machines.ssh.keys import make_key_pair  # noqa: PLC0415  slow, and an extra

    job.room(min(_CONTENT, job.recipe.disk_gib << 30) // 2, "the installed disk")
    record = BuildRecord("making", random_password())
    pair = make_key_pair(f"hybridlab build of {job.recipe.name}")
    installing = _machine(job, record, pair.public)
    write_private(job.scratch / KEY, pair.private)
    _save(job.scratch, record)
    try:
        job.tell("creating the machine for the installation")
        machine = site.begin(installing)
    except BaseException:
        _forget(job.scratch)  # begin() has removed what it had created
        raise
    installation = RunningInstallation(job, machine, record)
    installation.save(stage="installing")
    shutil.rmtree(job.scratch / "work", ignore_errors=True)
    how = "on KVM" if machine.accelerated else "emulated, which takes many hours"
    job.tell(f"started {machine.where}, {how}")
    return installation


def _machine(job: BuildJob, record: BuildRecord, public_key: str) -> InstallationMachine:
    """Read the media and write the answers; creates nothing on a hypervisor."""
    recipe, parts = job.recipe, _parts(job)
    assert recipe.firmware != "kernel", "recipes.check() has refused it"
    path = job.inputs.find(inputs.ISO)
    assert path is not None, "found() has checked"
    setup = VendorMedium(path, job.inputs.digests()[inputs.ISO].rpartition(":")[2])
    medium = read(setup.path)
    image = choose(medium, parts.wanted)
    job.tell(f"{image.name} ('{image.display_name}'), {medium.channel} medium '{medium.label}'")
    answered = make_settings(
        parts, recipe.firmware, medium.channel, record.password, _own_key(job, medium.channel)
    )
    openssh = job.inputs.find(inputs.OPENSSH)
    virtio = job.inputs.find(inputs.VIRTIO)
    if virtio and (doubt := driver_doubt(virtio, parts.wanted.release)):
        job.tell(f"warning: {doubt}")
    disc = install_medium(
        answered,
        public_key.strip(),
        recipe.files,
        drivers=read_drivers(virtio, parts.wanted.release) if virtio else {},
        openssh=openssh.read_bytes() if openssh else None,
    )
    layer = None
    if recipe.firmware == "uefi":
        work = job.scratch / "work"
        work.mkdir()
        layer = work / "setup.qcow2"
        overlay(setup.path, medium, layer)
    return InstallationMachine(recipe, parts, job.scratch, setup, layer, disc)


def _own_key(job: BuildJob, channel: Channel) -> str | None:
    """The inventory's product key, if it has one and the medium may take it."""
    secrets = job.inputs.inventory.secrets
    name = secret_name(job.recipe.name, secrets)
    if name is None or not takes_own_key(_parts(job), channel):
        return None
    job.tell(f"using the product key of [secrets.{name}]")
    return check_key(name, read_secret(name, secrets[name], job.action))


class RunningInstallation:
    """One installation in its machine, recorded for a command that resumes it."""

    def __init__(self, job: BuildJob, machine: Building, record: BuildRecord) -> None:
        self.machine = machine
        self.record = record
        self._job = job
        self._slowdown = 1 if machine.accelerated else EMULATED

    def save(self, **changes: Any) -> None:
        """Save the record with some of its fields changed."""
        self.record = replace(self.record, **changes)
        _save(self._job.scratch, self.record)

    def finish(self) -> int:
        """Follow the installation to its end and copy its disk; returns its size in GiB."""
        job = self._job
        watch = InstallMonitor(
            image=job.recipe.name,
            machine=self.machine,
            minutes=_parts(job).minutes,
            logs=job.logs,
            tell=job.tell,
            resets_before=self.record.resets,
            collect_logs=self.collect_logs,
            reset=lambda resets: self.save(resets=resets),
        )
        if self.record.stage in {"installing", "steps"}:
            watch.until(lambda now: now.phase in {"ready", "sysprep"})
            self.run_steps(watch)
        if self.record.stage == "sealing":
            watch.until(lambda now: now.off)
            self.save(stage="taking")
        job.tell("copying the finished disk")
        work = job.scratch / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        self.machine.bring_home(work / "disk")
        offline.refuse_answer_files(work / "disk", work, job.action)
        size = adopt(job, work / "disk")
        shutil.rmtree(work)
        return size

    def give_up(self) -> None:
        """Remove a failed machine; if that fails, the next command does it."""
        try:
            self.machine.remove()
        except LabError as error:
            self._job.tell(
                f"{self.machine.where} could not be removed: {error.happened}; the next build "
                "removes it"
            )
            self.save(stage="making")
            return
        _forget(self._job.scratch)

    def run_steps(self, watch: InstallMonitor) -> None:
        """Log in through both shells, with the keys from COM1 only, and run the steps.

        The last step generalises the machine. Completed steps are not repeated.

        Raises DeadlineError, BrokenError: the shell that refuses the login or the step that fails,
        with the error.
        """
        wanted = _parts(self._job).wanted
        self.save(stage="steps")
        shell = self._shell(watch.progress)
        try:
            self._job.tell("ready: logging in by WinRM and by SSH, with the keys from COM1")
            shell.wait(Deadline(watch.seconds("ready")))
            for step in golden_steps(wanted.year, watch.progress.certificate):
                if step.name not in self.record.steps:
                    if isinstance(step, Sysprep):
                        self.machine.take_answers()  # sysprep would keep them for every clone
                    self._run(shell, step)
                    self.save(steps=(*self.record.steps, step.name))
        except LabError as error:
            raise self._with_evidence(error, watch) from error
        finally:
            shell.close()
        self.save(stage="sealing")

    def collect_logs(self, progress: Progress) -> str:
        """Save the logs of a machine that is given up; return their path and known problems.

        Reads them over its shell or, after powering it off, from its disk.
        """
        folder = self._job.logs / f"{self._job.recipe.name}-guest"
        try:
            logs = self._fetch_logs(progress) or self._read_logs()
        except (LabError, OSError) as error:
            happened = error.happened if isinstance(error, LabError) else error
            return f"its logs cannot be read ({happened})"
        if not logs:
            return "its disk has no logs of Setup or of the lab's scripts"
        known = []
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in logs.items():
            hidden = mask(text.replace(self.record.password, MASK))
            (folder / name).write_text(hidden, encoding="utf-8")
            known += [f"{secret.place}: {secret.match}" for secret in in_log(name, hidden)]
        return "; ".join((f"its own logs are in '{folder}'", *known))

    def _fetch_logs(self, progress: Progress) -> dict[str, str]:
        """Read the logs over the shell, if it takes commands."""
        if not progress.key or not progress.certificate:
            return {}
        shell = self._shell(progress)
        logs: dict[str, str] = {}
        try:
            for name, content in collect_facts(shell, Deadline(_LOGS_SECONDS)):
                logs[name] = content.decode(errors="replace")
        except LabError:
            return logs
        finally:
            shell.close()
        return logs

    def _read_logs(self) -> dict[str, str]:
        self._job.tell("powering the machine off to read the logs from its disk")
        self.machine.power_off()
        with TemporaryDirectory(dir=self._job.scratch) as work:
            disk = Path(work) / "disk"
            self.machine.bring_home(disk)
            return offline.read_logs(disk, Path(work), self._job.action)

    def _shell(self, progress: Progress) -> WindowsShell:
        from lab.windows.shell import WindowsShell  # noqa: PLC0415  slow, and an extra

        where = self.machine.address()
        reach = Reach(
            name=self._job.recipe.name,
            address=where.address,
            user=self._job.recipe.user,
            keyfile=self._job.scratch / KEY,
            host_key=progress.key,
            port=where.ssh_port,
            jump=where.jump,
        )
        way = WindowsReach(reach, self.record.password, progress.certificate, port=where.winrm_port)
        return WindowsShell(way)

    def _run(self, shell: WindowsShell, step: ImageStep) -> None:
        from lab.windows.step_runner import run_step  # noqa: PLC0415  slow

        self._job.tell(f"ready: step '{step.name}'")
        files = self._job.recipe.files
        given = (files[f"{step.name}.ps1"], files[MODULE], step.name, settings(step))
        deadline = Deadline(step.deadline_s * self._slowdown)
        if isinstance(step, Sysprep):
            run_step(shell, *given, deadline)  # its reboot is the shutdown
            return
        result = run_step(shell, *given, deadline, restarts=True)
        self._job.tell(
            f"ready: step '{step.name}' {'made changes' if result.changed else 'changed nothing'}"
            + (", and the machine was restarted" if result.reboot else "")
        )

    def _with_evidence(self, error: LabError, watch: InstallMonitor) -> LabError:
        """The error with what can be seen of the machine from outside."""
        with suppress(LabError):
            watch.look()
        return type(error)(error.doing, f"{error.happened}; {watch.evidence()}", error.hint)
