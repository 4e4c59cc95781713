"""What the machines of a cluster are reached by, and how long things may take there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab.remote.shell import Shell


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """The world of one lab, as far as its cluster has to do with it."""

    shell: Callable[[str], Shell]
    """A shell on a machine, by its name; asked only while a step runs."""
    management: Mapping[str, str]
    """Each machine's address on the management network, by its name."""
    directory: Path
    """The lab's own on the controller: keys that the lab makes are kept below it."""
    say: Callable[[str], None]
    patience: int = 1
    """By how much a deadline is longer than on hardware: 8 on emulated processors."""

    def deadline(self, seconds: float) -> Deadline:
        """A deadline that many seconds from now on hardware, later where it is emulated."""
        return Deadline(seconds * self.patience)
