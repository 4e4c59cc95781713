"""A scenario's lab on system containers: up, judged with a fault, and down."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from container_labs import ContainerLabs, room_for

from lab.providers.provider import Pods
from lab.scenario.terms import Os

CHECKS = re.compile(r"(\d+) of (\d+) workload checks passed")


@dataclass(frozen=True)
class Fault:
    """A fault: its name and node, who then no longer reaches whom, and what names it."""

    what: str
    named: str
    """What 'lab explain' must say."""
    peer: str = ""

    @property
    def pods(self) -> tuple[str, str]:
        _, _, source, target = self.what.split()
        return source, target

    def words(self) -> tuple[str, ...]:
        name, node, _, _ = self.what.split()
        return (name, "--node", node, *(("--peer", self.peer) if self.peer else ()))


def up(scenario: str, lab: str, pods: Pods, only: Os | None = "linux") -> tuple[str, ...]:
    """What brings the lab up."""
    words = ("up", scenario, "--name", lab, "--provider", "nspawn", "--pods", pods)
    return (*words, *(("--only", only) if only else ()))


@contextmanager
def brought_up(
    labs: ContainerLabs, scenario: str, pods: Pods, name: str = "", only: Os | None = "linux"
) -> Iterator[str]:
    """The lab, and nothing of it afterwards."""
    lab = name or scenario.partition(",")[0]
    with room_for(Path(scenario) if "/" in scenario else scenario, pods, only):
        try:
            labs.run(*up(scenario, lab, pods, only))
            yield lab
        finally:
            if (labs.state / "labs" / lab).is_dir():
                labs.run("down", lab)
        assert labs.left() == set()


def judge(labs: ContainerLabs, lab: str, *faults: Fault) -> str:
    """Matrix green, no machine differs, each fault is named; what the matrix said."""
    said = labs.green(lab)
    labs.run("status", lab, "--deep")
    for fault in faults:
        labs.run("fault", lab, *fault.words())
        explained = labs.run("explain", lab, *fault.pods, code=1).stdout
        assert fault.named in explained
        assert fault.named in labs.run("status", lab, "--deep", code=1).stdout
        labs.run("heal", lab)
        labs.run("explain", lab, *fault.pods)
    return said


def checked(said: str) -> None:
    """Every check of the workloads passed."""
    checks = CHECKS.search(said)
    assert checks, said
    assert checks[1] == checks[2]
