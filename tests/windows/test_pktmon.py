"""Windows' Packet Monitor on a double over WinRM: what it says, and what is left alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from double.script import Answer, Asked
from tables import table

from lab._deadline import Deadline
from lab.explain.bracket import find_bracket
from lab.explain.capture.probe import capture_probe
from lab.machines.base import MachinesProvider
from lab.matrix.cells import make_matrix
from lab.plan.planner import make_plan
from lab.providers.capture import KernelTrace, PacketDrop, Taken
from lab.providers.provider import CAPTURE, KERNEL_TRACE, LabHandle, Outcome
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.routing import bare
from lab.windows.pktmon import PacketMonitor, filter_names, parse_drops

CASES = table("pktmon")
_NONE = {"Packets": 0, "Bytes": 0, "DropReason": ""}


@dataclass(frozen=True)
class Dropped:
    """Inbound packets between two addresses that were dropped."""

    ends: tuple[str, str]
    count: int
    reason: str
    port: int = 8080

    def matches(self, rule: str) -> bool:
        return {*self.ends, str(self.port)} <= {*rule.split()}

    def counter(self) -> dict[str, Any]:
        counted = {"Packets": self.count, "Bytes": 60, "DropReason": self.reason}
        return {"Name": "", "Type": "Drops", "Inbound": counted, "Outbound": _NONE}


@dataclass
class Pktmon:
    """One machine's session and filters; a test may change every attribute."""

    running: bool = False
    filters: list[str] = field(default_factory=list)
    """Names and arguments."""
    most: int = 8
    drops: list[Dropped] = field(default_factory=list)
    """Since the last reset."""
    old: bool = False
    """Whether it is that of Windows Server 2019 without updates."""
    denied: bool = False
    none: str = "Packet Filters:\r\n    None"
    """An empty list of filters."""
    counters: tuple[str, str] = ("", "")
    """What takes the place of what in the output of ``counters``."""
    code: int = 0
    """Of ``counters``."""
    silent: Callable[[str], Answer | None] = lambda _: None
    """Answers instead of it."""
    ran: list[str] = field(default_factory=list)

    def __call__(self, request: Asked) -> Answer | None:
        self._output: list[str] = []
        line = re.sub(r"(?i)^\S*cmd\.exe (/d )?(/s )?/c ", "", request.line)
        code = self._several(line)
        return self.silent(line) or Answer(code, "\r\n".join(self._output).encode())

    def clean(self) -> bool:
        return not self.running and not self.filters

    def _several(self, line: str) -> int:
        """``a & b``, or ``a && (b && c || (d & e))``, as cmd.exe runs them."""
        first, _, rest = line.partition(" && (")
        code = [self._run(word) for word in first.split(" & ")][-1]
        if code or not rest:
            return code
        then, _, otherwise = rest.rstrip(")").partition(" || (")
        if not any(self._run(word) for word in then.split(" && ")):
            return 0
        return [self._run(word) for word in otherwise.split(" & ")][-1]

    def _run(self, command: str) -> int:
        self.ran.append(command)
        code, said = self._result(*command.split())
        self._output += [said] if said else []
        return code

    def _result(  # noqa: C901, PLR0911  a table of answers
        self, program: str, *words: str
    ) -> tuple[int, str]:
        match [program, *words]:
            case ["exit", code]:
                return int(code), ""
            case _ if self.denied:
                return 5, "Zugriff verweigert"
            case [_, "start", *_] if self.old:
                return 87, "Unknown parameter '--capture'. See pktmon start help."
            case [_, "start", *_] if self.running:
                return 183, "Die Paket\u00fcberwachung wurde bereits gestartet."
            case [_, "start", *_]:
                self.running = True
            case [_, "filter", "list"]:
                return 0, self._listed()
            case [_, "filter", "add", *rest] if len(self.filters) < self.most:
                self.filters.append(" ".join(rest))
            case [_, "filter", "remove"]:
                self.filters.clear()
            case [_, "stop"]:
                self.running = False
            case [_, "reset"]:
                self.drops.clear()
            case [_, "counters", "--json"]:
                return self.code, re.sub(*self.counters, self._counted())
            case _:
                return 87, f"Unknown parameter '{words[-1]}'."
        return 0, ""

    def _listed(self) -> str:
        if not self.filters:
            return self.none
        rows = [one.partition(" ") for one in self.filters]
        wide = max(len(name) for name, _, _ in rows)
        lines = [f" # {'Name':{wide}} IP Address", f" - {'-' * wide} ----------"]
        lines += [f" {n} {name:{wide}} {rest}" for n, (name, _, rest) in enumerate(rows, start=1)]
        return "\r\n".join(("Packet Filters:", *lines))

    def _counted(self) -> str:
        flows = {"Name": "Upper", "Type": "Flows", "Inbound": {"Packets": 6}, "Outbound": _NONE}
        drops = [drop.counter() for drop in self.drops if any(map(drop.matches, self.filters))]
        component = {"Name": "TCP/IPv4 - L3/L4", "Id": 49, "Counters": [flows, *drops]}
        return json.dumps([{"Group": "Ethernet", "Components": [component]}])


A, B, PORT = "10.244.1.4", "10.244.3.4", 8080
ENDS = {(A, B, PORT)}
OF_PROBE = Dropped((A, B), 3, "INET: transport endpoint was not found")


@pytest.fixture
def pktmon(guest):
    made = Pktmon()
    guest.script.on(r"pktmon", made)
    return made


@pytest.fixture
def new_monitor(windows_shell, tmp_path):
    def make(seconds: float = 20.0) -> PacketMonitor:
        directory = tmp_path / "labs" / "overlay"
        return PacketMonitor("win1", lambda: windows_shell, directory, lambda: Deadline(seconds))

    return make


def counted(monitor: PacketMonitor, during: Callable[[], object] = lambda: None) -> KernelTrace:
    monitor.begin("tcp", ENDS)
    during()
    return monitor.end()


def test_drops_of_the_probe_are_counted_with_their_reason_and_nothing_is_left(pktmon, new_monitor):
    others = (Dropped((A, B), 9, "Filtered", port=80), Dropped((A, "10.244.1.9"), 9, "Filtered"))
    pktmon.drops.append(Dropped((A, B), 70, "Filtered"))  # before
    report = counted(new_monitor(), lambda: pktmon.drops.extend((*others, OF_PROBE)))
    drop = PacketDrop("TCP/IPv4 - L3/L4 of Ethernet", "inbound", 3, OF_PROBE.reason)
    assert report == KernelTrace("win1", drops=(drop,))
    assert f"pktmon.exe filter add hybridlab-1 -i {A} {B} -t TCP -p {PORT} -e" in pktmon.ran
    assert pktmon.clean()


@pytest.mark.parametrize("habits", CASES["habits"])
def test_what_is_not_understood_accuses_nobody_and_what_others_run_stays(
    pktmon, new_monitor, habits
):
    for name, value in habits.items():
        setattr(pktmon, name, value)
    before = pktmon.running, [*pktmon.filters]
    report = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert not report.drops
    assert habits["said"] in report.trouble
    assert (pktmon.running, pktmon.filters) == before


def test_a_system_in_another_language_is_understood_by_its_layout(pktmon, new_monitor):
    pktmon.none = "Paketfilter:\r\n    Keine"
    pktmon.counters = ("^", "Z\u00e4hler\r\n")
    report = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert ([drop.count for drop in report.drops], report.trouble) == ([3], "")


def test_what_a_killed_command_left_is_removed_by_the_next(pktmon, new_monitor):
    killed = new_monitor()
    killed.begin("tcp", ENDS)
    killed._held.close()  # as the end of its process does
    assert (pktmon.running, len(pktmon.filters)) == (True, 1)
    report = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert ([drop.count for drop in report.drops], report.trouble) == ([3], "")
    assert pktmon.clean()


def test_of_two_commands_the_second_goes_on_without(pktmon, new_monitor):
    first = new_monitor()
    first.begin("tcp", ENDS)
    assert "'a probe' (process" in counted(new_monitor()).trouble
    pktmon.drops.append(OF_PROBE)
    assert first.end().drops
    assert pktmon.clean()


@pytest.mark.parametrize(
    ("command", "used"),
    [("filter list", False), ("start", False), ("start", True), ("counters", False)],
)
def test_a_machine_that_never_answers_is_given_up_and_cleaned(pktmon, new_monitor, command, used):
    pktmon.running = used
    asked: list[str] = []

    def silent(line: str) -> Answer | None:
        once = line.startswith(f"pktmon.exe {command}") and not asked
        asked.extend([line] if once else [])
        return Answer(held=threading.Event()) if once else None

    pktmon.silent = silent
    report = counted(new_monitor(seconds=1.5))
    assert not report.drops
    assert "not done within" in report.trouble
    assert (pktmon.running, pktmon.filters) == (used, [])


def test_filters_that_cannot_be_removed_are_said_to_be_there(pktmon, new_monitor):
    pktmon.silent = lambda line: (
        Answer(7, b"in use") if line.startswith("pktmon.exe stop") else None
    )
    found = counted(new_monitor())
    assert "the lab's filters may still be there: exit code 7: 'in use'" in found.trouble


def test_more_pairs_than_filters_are_not_asked(pktmon, new_monitor):
    monitor = new_monitor()
    monitor.begin("tcp", {(A, f"10.0.0.{n}", PORT) for n in range(9)})
    assert "too few for 9 pairs" in monitor.end().trouble
    assert not pktmon.ran


@pytest.mark.parametrize("case", CASES["filters"])
def test_filters_are_read_by_layout_or_not_at_all(case):
    assert read(filter_names, case["text"]) == case["names"]


@pytest.mark.parametrize("case", CASES["counters"])
def test_counters_are_read_in_a_known_format_or_not_at_all(case):
    wanted = case["drops"]
    drops = None if wanted is None else [PacketDrop(*one) for one in wanted]
    assert read(parse_drops, case["text"]) == drops


def read(parse: Callable[[str], Iterable[object]], text: str) -> list[object] | None:
    try:
        return list(parse(text))
    except ValueError:
        return None


PLAN = make_plan(load(find("overlay")))
INTENT = registry.intent(PLAN)


class Provider:
    """Machines with agents on Linux; every probe is lost."""

    abilities = frozenset({CAPTURE, KERNEL_TRACE})
    trace_kernel = MachinesProvider.trace_kernel
    system_kind = MachinesProvider.system_kind

    def __init__(self, shell: Any, probed: Callable[[], None]) -> None:
        self._shell, self._probed = shell, probed

    @contextmanager
    def _guests(self, _: LabHandle) -> Iterator[Any]:
        def trace(_intent: Any, _places: Any, _table: str, during: Any, _: Deadline) -> Any:
            during()
            return ()

        fleet = SimpleNamespace(trace=trace)
        yield SimpleNamespace(shell=lambda _: self._shell, deadline=Deadline, fleet=fleet)

    def capture(self, _lab: Any, _intent: Any, taps: Any, _limit: Any, during: Any, _: Any) -> Any:
        during()
        return tuple(Taken(tap, (), blind=tap.place.startswith("win")) for tap in taps)

    def probe(self, *_: Any) -> Any:
        self._probed()
        return {0: Outcome(0, "timeout", "connect: no reply", None, (), None, 0.0)}


@pytest.mark.parametrize("used", [False, True])
def test_explain_names_the_component_that_dropped_the_probe(pktmon, windows_shell, tmp_path, used):
    pktmon.running = used
    cell = make_matrix(PLAN, INTENT).find("pod-pod/win1-p1/worker1-p1/tcp-small")
    assert cell is not None

    here, pod = (INTENT.places()[one][1] for one in ("win1-p1", "worker1-p1"))
    assert here
    assert pod
    drop = Dropped((bare(here.address), bare(pod.address)), 3, "Inspection drop")

    lab = LabHandle("overlay", tmp_path / "labs" / "overlay", "token")
    provider: Any = Provider(windows_shell, lambda: pktmon.drops.append(drop))
    captured = capture_probe(provider, lab, INTENT, cell, (), timeout=0.1, traced=True)
    bracket = find_bracket(captured, INTENT)
    assert bracket.sentence == "nothing can be captured at win1-p1 eth0, where it begins"
    text = (
        "win1: TCP/IPv4 - L3/L4 of Ethernet dropped 3 inbound packets of it: 'Inspection drop' "
        "(the Windows firewall or another filter)"
    )
    assert (bracket.loss_places, bracket.next_places) == ({"win1", "win1-p1"}, frozenset())
    assert bracket.dropped() == (() if used else (text,))
    untraced = [(place, reason.partition(";")[0]) for place, reason in bracket.untraced]
    assert untraced == ([("win1", "asking pktmon: exit code 183")] if used else [])
    assert pktmon.running == used
