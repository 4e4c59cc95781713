"""From "the guest says that it is ready" to "the guest generalises itself": over its two shells."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import LabError
from lab.guests.shell import Reach
from lab.guests.windows_questions import answers
from lab.guests.windows_reach import WindowsReach
from lab.imaging.job import Job
from lab.imaging.recipe import EMULATED
from lab.imaging.windows import record as records
from lab.imaging.windows.following import Watch
from lab.imaging.windows.machine import Building
from lab.imaging.windows.passwords import MASK, masked
from lab.imaging.windows.phases import Progress
from lab.imaging.windows.record import Record, Stage
from lab.imaging.windows.steps import MODULE, Step, Sysprep, golden_steps, settings

if TYPE_CHECKING:
    from lab.guests.windows_shell import WindowsShell

_WITNESS_SECONDS = 90.0
"""For asking a machine that is being given up; most take no question any more."""


class Handover:
    """What this command does in the machine, and what it keeps of that for the next one."""

    def __init__(self, job: Job, machine: Building, record: Record) -> None:
        self.record = record
        self._job = job
        self._machine = machine
        self._patience = 1 if machine.accelerated else EMULATED

    def reached(self, stage: Stage) -> None:
        """Keep how far it is."""
        self._keep(replace(self.record, stage=stage))

    def reset(self, resets: int) -> None:
        """Keep how often it was reset."""
        self._keep(replace(self.record, resets=resets))

    def run_steps(self, watch: Watch) -> None:
        """Log in by both shells, with what it said on COM1 and nothing else, and run the steps.

        After this it generalises itself. Steps that are done are not done again.

        Raises
        ------
        DeadlineError, BrokenError
            Which shell does not let us in, or which step fails, and with what words.

        """
        recipe = self._job.recipe
        assert recipe.windows is not None, "chosen by the recipe's kind"
        self.reached("steps")
        shell = self._shell(watch.progress)
        try:
            self._job.tell("ready: logging in by WinRM and by SSH, with the keys from COM1")
            self._enter(shell, watch)
            for step in golden_steps(recipe.windows.wanted.year, watch.progress.certificate):
                if step.name not in self.record.steps:
                    self._run(shell, step)
                    self._keep(replace(self.record, steps=(*self.record.steps, step.name)))
        except LabError as error:
            raise self._told(error, watch) from error
        finally:
            shell.close()
        self.reached("sealing")

    def witness(self, progress: Progress) -> str:
        """Fetch what the machine tells of itself, where its shells take commands; where it is."""
        if not progress.key or not progress.certificate:
            return ""
        folder = self._job.downloads.parent / "logs" / f"{self._job.recipe.name}-guest"
        shell = self._shell(progress)
        fetched = 0
        try:
            for name, content in answers(shell, Deadline(_WITNESS_SECONDS)):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(self._hidden(content), encoding="utf-8")
                fetched += 1
        except LabError as error:
            if not fetched:
                return f"its logs cannot be fetched ({error.happened})"
        finally:
            shell.close()
        return f"its own logs are in '{folder}'"

    def _hidden(self, content: bytes) -> str:
        """A log without this build's password, and without product keys."""
        return masked(content.decode(errors="replace").replace(self.record.password, MASK))

    def _keep(self, record: Record) -> None:
        self.record = record
        records.save(self._job.scratch, record)

    def _shell(self, progress: Progress) -> WindowsShell:
        from lab.guests.windows_shell import WindowsShell  # noqa: PLC0415  slow, and an extra

        where = self._machine.address()
        reach = Reach(
            name=self._job.recipe.name,
            address=where.address,
            user=self._job.recipe.user,
            keyfile=self._job.scratch / records.KEY,
            host_key=progress.key,
            port=where.ssh_port,
            jump=where.jump,
        )
        way = WindowsReach(reach, self.record.password, progress.certificate, port=where.winrm_port)
        return WindowsShell(way)

    def _enter(self, shell: WindowsShell, watch: Watch) -> None:
        shell.wait(Deadline(watch.seconds("ready")))

    def _run(self, shell: WindowsShell, step: Step) -> None:
        from lab.guests.windows_steps import run_step, run_step_and_reboot  # noqa: PLC0415  slow

        self._job.tell(f"ready: step '{step.name}'")
        files = self._job.recipe.templates
        given = (files[f"{step.name}.ps1"], files[MODULE], step.name, settings(step))
        deadline = Deadline(step.deadline_s * self._patience)
        if isinstance(step, Sysprep):
            run_step(shell, *given, deadline)  # its reboot is the shut-down
            return
        result = run_step_and_reboot(shell, *given, deadline)
        self._job.tell(
            f"ready: step '{step.name}' {'changed something' if result.changed else 'had nothing'}"
            + (", and the machine was restarted" if result.reboot else "")
        )

    def _told(self, error: LabError, watch: Watch) -> LabError:
        """The error with what can be seen of the machine from outside."""
        with suppress(LabError):
            watch.look()
        return type(error)(error.doing, f"{error.happened}; {watch.evidence()}", error.cure)
