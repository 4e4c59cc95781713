"""The results of cells and of runs, and what is wrong on their paths. Pure data for the reports."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Literal

from lab._log import quantity
from lab.facts.questions import ENTER_POD, WITH_PROXY, from_node
from lab.matrix.cell import Cell, Expectation
from lab.matrix.failover import Failover
from lab.matrix.sampling import Coverage
from lab.providers.provider import Outcome
from lab.providers.workloads import WorkloadResult
from lab.topology.observed import NodeVersion

IN_POD = "in the pod: "
DEVIATION = "not-as-made"
"""The kind of any other difference from the state that the lab creates."""
SILENT = "machine-silent"
"""The kind of what could not be read: nothing is known to be wrong there, nor to be right."""
OBJECT = "object-not-as-made"
"""The kind of a difference of an object of the cluster's API."""
_TOOLS = (
    ENTER_POD,
    *("birdc", "bridge", "cat", "chroot", "crictl", "df", "if", "ip", "iptables", "iptables-save"),
    *("journalctl", "kubectl", "ls", "openssl", "ps", "sed"),
    *("ovn-nbctl", "ovn-sbctl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl"),
    *("ipset", "iptables-legacy", "kill", "modprobe", "nft", "pkill", "printf", "rm"),
    *("ss", "sysctl", "systemctl", "tc"),
)
_LACKING = re.compile(r"(^|[;|] *)(ip6?tables(?:-save)?(?: |$))")
"""Programs that a Kubernetes node need not have."""
_CHAIN = re.compile(r"[;|&'\"<>$]")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, how to see it, and how to fix it."""

    kind: str
    """A kind of the checks in :mod:`lab.explain.checks`, or one of the explainer:
    ``"lost-between"``, ``"lost-here"``, ``"machine-silent"``, ``"intent-ends"``,
    ``"not-as-made"``, ``"object-not-as-made"``."""
    fault: str
    """Its name in the fault catalogue; empty if it has none."""
    node: str
    object: str
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the machine or in the pod ``place``; or a sentence."""
    mends: str
    """The command that fixes it there; or a sentence."""
    place: str
    """Pod or machine where the commands are run."""
    hop: int = -1
    """Index of its hop on the path, from 0; -1 if it is not on the path."""

    @property
    def sentence(self) -> str:
        """``on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096``."""
        should = f"; it should be: {self.intended}" if self.intended else ""
        at = "" if self.kind == OBJECT else f"on {self.node}, "
        return f"{at}{self.object}: {self.observed}{should}"

    @property
    def line(self) -> str:
        """The sentence with the fault's name."""
        return f"{self.sentence} ({self.fault})" if self.fault else self.sentence

    def shown_by(self, lab: str) -> str:
        """The command line or sentence to see it."""
        return self._by_hand(lab, self.shows)

    def fixed_by(self, lab: str) -> str:
        """The command line or sentence to fix it."""
        return self._by_hand(lab, self.mends)

    def _by_hand(self, lab: str, text: str) -> str:
        return by_hand(lab, self.node if text.startswith(ENTER_POD) else self.place, text)


def in_cluster(found: Finding) -> Finding:
    """The finding of a cluster, with commands that its nodes have, and none for a pod."""

    def words(text: str) -> str:
        line = _LACKING.sub(rf"\1{WITH_PROXY} \2", text.removeprefix(IN_POD))
        in_pod = text.startswith(IN_POD) and is_command(line)
        return from_node(found.place, line) if in_pod else line

    return replace(found, shows=words(found.shows), mends=words(found.mends))


def is_command(text: str) -> bool:
    """Whether it is a command line, not a sentence."""
    return text.partition(" ")[0] in _TOOLS


def by_hand(lab: str, place: str, text: str) -> str:
    """The ``lab exec`` command line for a command; a sentence is returned unchanged."""
    line = text.removeprefix(IN_POD)
    if not is_command(line):
        return line
    command = f"sh -c {shlex.quote(line)}" if _CHAIN.search(line) else line
    return f"lab exec {lab} {place} -- {command}"


Verdict = Literal["pass", "fail", "flaky", "probe-error", "known-limit", "unexpected-pass"]

VERDICTS: tuple[Verdict, ...] = (
    "pass",
    "known-limit",
    "fail",
    "flaky",
    "unexpected-pass",
    "probe-error",
)
GREEN: frozenset[Verdict] = frozenset({"pass", "known-limit"})


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell, judged."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    """The reason, in one sentence; empty for a pass."""
    attempts: tuple[Outcome, ...]
    """One, or two if it was retried."""
    retried: bool
    """False also if a failure was not retried for lack of time (``detail`` says so)."""
    repeat: str
    """The command that repeats this cell."""
    finding: Finding | None = None
    """The first difference from the Intent on the path of a failed cell, or what drops some packets
    on the path of a passed one; None if none was found, or the path was not inspected."""
    searched: bool = True
    """False if the run was interrupted before the cause of its failures was searched."""

    @property
    def unexplained(self) -> bool:
        """Whether it is a failure whose cause has to be searched, or was not found."""
        return self.verdict in {"fail", "flaky"} and self.finding is None

    @property
    def cause(self) -> str:
        """The cause of a red cell, in one line, also if it is unknown.

        That of an unexpected pass is its rule.
        """
        if self.verdict == "unexpected-pass":
            return self.expectation.unmet
        if self.finding:
            return self.finding.line
        return "none found on its path" if self.searched else "not searched: interrupted"

    def cause_of(self, cells: int) -> str:
        """The cause, with the number of red cells that have it."""
        if self.verdict != "unexpected-pass":
            return f"{self.cause}: {quantity(cells, 'cell')}"
        work = f"{self.cause}: {cells:,} {'cell works' if cells == 1 else 'cells work'}"
        return "; ".join(filter(None, (work, self.expectation.advice)))


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of the matrix on one lab."""

    run: str
    """Id, sortable by time: ``20261121-101500-7f3a``."""
    lab: str
    scenario: str
    summary: str
    topology: str
    provider: str
    banner: str
    """A sentence on what is emulated."""
    emulated_nodes: tuple[str, ...]
    version: str
    """Version of Kubernetes."""
    started: str
    """ISO 8601, UTC."""
    seconds: float
    results: tuple[CellResult, ...]
    windows_rules_off: tuple[str, ...]
    scenario_text: str = ""
    """Content of the scenario file, so that a run can be reproduced by itself; empty in runs of
    earlier versions."""
    only: str | None = None
    """The operating system given by ``--only``."""
    nodes: tuple[NodeVersion, ...] = ()
    """Versions on the nodes of a real cluster; empty if there is none."""
    workloads: tuple[WorkloadResult, ...] = ()
    """The workload checks of a real cluster."""
    coverage: Coverage | None = None
    """How much of the matrix was probed; None in runs of earlier versions."""
    hosts: tuple[tuple[str, str], ...] = ()
    """Machines with the scenario's hypervisors that they run on; empty if it has none."""

    failover: Failover | None = None
    """The failover of its gateways; None if it was not tested."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended it; then not every chosen cell need be judged."""

    def count(self, verdict: Verdict) -> int:
        """The number of cells with the verdict."""
        return sum(1 for result in self.results if result.verdict == verdict)

    def green(self) -> bool:
        """Whether every cell passed or is a known limit that held, and every other check passed.

        False for an interrupted run.
        """
        if self.interrupted or (self.failover and not self.failover.well):
            return False
        cells = all(result.verdict in GREEN for result in self.results)
        return cells and all(workload.verdict == "pass" for workload in self.workloads)
