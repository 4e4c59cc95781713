"""Running the steps on a node, over shells that are cut off when HNS takes its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.cluster.windows import steps
from lab.guests.link import LostError, UnreachableError
from lab.guests.reboot import reboot
from lab.guests.windows_paths import DIRECTORY
from lab.guests.windows_shell import WindowsShell
from lab.guests.windows_steps import StepError, StepResult, run_step, run_step_and_reboot
from lab.imaging.windows import steps as image_steps
from lab.imaging.windows.steps import MODULE, script

FOLDER = "cluster"
"""Of the Windows scripts: those of a node."""
SHARED = "cluster.psm1"
LOOK_SECONDS = 2.0
"""Between two looks at a node that is away, or not there yet."""
ONE_LOOK_SECONDS = 90.0
"""For one look: a connection, three small files and a PowerShell."""
REBOOT_SECONDS = 900.0
BACK_SECONDS = 600.0
"""For HNS networks: public recipes wait some minutes, see docs/decisions/0019-windows-nodes.md."""
_BESIDE: Mapping[str, tuple[str, ...]] = {"hns-network": ("hns-make.ps1",)}
"""What a step sends along, since a task of its own runs it."""
_PRIVATE = 0o600


class Runner:
    """Runs steps on one node.

    Parameters
    ----------
    shell
        The node.
    patience
        What every deadline is multiplied by: 1 with KVM.

    """

    def __init__(self, shell: WindowsShell, patience: int = 1) -> None:
        self.shell = shell
        self._patience = patience
        self._sent: set[str] = set()

    def seconds(self, seconds: float) -> Deadline:
        """A deadline, with the machine's slowness counted in."""
        return Deadline(seconds * self._patience)

    def run(self, step: steps.ClusterStep, deadline: Deadline | None = None) -> StepResult:
        """Run a step of a node.

        Raises
        ------
        StepError, DeadlineError, BrokenError
            As :func:`lab.guests.windows_steps.run_step` does.

        """
        until = deadline or self.seconds(step.deadline_s)
        for beside in {SHARED, *_BESIDE.get(step.name, ())} - self._sent:
            content = script(f"{FOLDER}/{beside}")
            self.shell.put(content, f"{DIRECTORY}\\{beside}", _PRIVATE, until)
            self._sent.add(beside)
        content = script(f"{FOLDER}/{step.name}.ps1")
        return run_step(self.shell, content, script(MODULE), step.name, steps.settings(step), until)

    def run_of_image(self, step: image_steps.Step) -> StepResult:
        """Run a step that images have, too; where it asks for one, the machine is restarted."""
        content = script(f"{step.name}.ps1")
        given = image_steps.settings(step)
        until = self.seconds(step.deadline_s + REBOOT_SECONDS)
        return run_step_and_reboot(self.shell, content, script(MODULE), step.name, given, until)

    def run_though_cut_off(self, step: image_steps.Step) -> StepResult:
        """Run a step of images that takes the machine off the net; cut off, it is run again."""
        until = self.seconds(step.deadline_s + BACK_SECONDS)
        content, given = script(f"{step.name}.ps1"), image_steps.settings(step)
        while True:
            try:
                return run_step(self.shell, content, script(MODULE), step.name, given, until)
            except (LostError, UnreachableError):
                self.shell.wait(until)

    def reboot(self) -> None:
        """Restart the node, and wait until it takes commands and files again."""
        reboot(self.shell, self.seconds(REBOOT_SECONDS))

    def wait_until(
        self,
        doing: str,
        step: steps.ClusterStep,
        lacks: Callable[[Mapping[str, Any]], str],
        seconds: float | None = None,
    ) -> Mapping[str, Any]:
        """Ask, by a step that changes nothing, until nothing is lacking; its last facts.

        The machine may be away meanwhile: what that is like counts as what was seen.

        Parameters
        ----------
        doing
            What is waited for, in words.
        step
            What is asked.
        lacks
            What its facts lack, in words; empty if nothing. It may raise for what no waiting mends.
        seconds
            How long; None for ``BACK_SECONDS``.

        Raises
        ------
        DeadlineError
            With the last that was lacking, or with how the machine was away.
        BrokenError
            As ``lacks`` does.

        """
        deadline = self.seconds(BACK_SECONDS if seconds is None else seconds)
        last: dict[str, Any] = {}
        met = ""

        def look() -> str:
            nonlocal met
            own = Deadline(min(deadline.left(), ONE_LOOK_SECONDS * self._patience))
            try:
                self.shell.wait(own)
                facts = self.run(step, own).facts
            except (LostError, UnreachableError, DeadlineError) as error:
                # A look that the end of the wait cuts off says less than the one before it.
                if not met or deadline.left() > 0.0:
                    met = f"'{self.shell.name}' is away: {error.happened}"
                return met
            except StepError as error:  # HNS may be too busy to answer
                met = error.happened
                return met
            last.clear()
            last.update(facts)
            met = lacks(facts)
            return met

        cure = f"look at its console, and at {DIRECTORY}\\log there"
        deadline.wait(doing, look, until=lambda seen: not seen, every=LOOK_SECONDS, cure=cure)
        return last


def said(facts: Mapping[str, Any], name: str, doing: str) -> Any:
    """A fact by its name.

    Raises
    ------
    BrokenError
        When the step has not told it.

    """
    if name not in facts:
        raise BrokenError(doing, f"its answer has no '{name}': {dict(facts)}")
    return facts[name]
