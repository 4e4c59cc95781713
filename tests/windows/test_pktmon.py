"""Windows' Packet Monitor on a double over WinRM: what it says, and what is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from double.pktmon import Dropped, Pktmon
from double.script import Answer

from lab._deadline import Deadline
from lab.explain.bracket import find_bracket
from lab.explain.capture.probe import capture_probe
from lab.matrix.cells import product
from lab.plan.planner import make_plan
from lab.providers.capture import KernelSaid, PacketDrop, Taken
from lab.providers.machines.base import MachinesProvider
from lab.providers.machines.pktmon import PacketMonitor, filter_names, parse_drops
from lab.providers.provider import CAPTURE, KERNEL_TRACE, LabHandle, Outcome
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.routing import bare

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


def counted(monitor: PacketMonitor, during: Callable[[], object] = lambda: None) -> KernelSaid:
    monitor.begin("tcp", ENDS)
    during()
    return monitor.end()


def test_drops_of_the_probe_are_counted_with_their_reason_and_nothing_is_left(pktmon, new_monitor):
    others = (Dropped((A, B), 9, "Filtered", port=80), Dropped((A, "10.244.1.9"), 9, "Filtered"))
    pktmon.drops.append(Dropped((A, B), 70, "Filtered"))  # before
    said = counted(new_monitor(), lambda: pktmon.drops.extend((*others, OF_PROBE)))
    drop = PacketDrop("TCP/IPv4 - L3/L4 of Ethernet", "inbound", 3, OF_PROBE.reason)
    assert said == KernelSaid("win1", drops=(drop,))
    assert f"pktmon.exe filter add hybridlab-1 -i {A} {B} -t TCP -p {PORT} -e" in pktmon.ran
    assert pktmon.clean()


@pytest.mark.parametrize(
    ("habits", "said"),
    [
        ({"running": True}, "code 183; somebody else may be using it: 'Die Paket\u00fcberwachung"),
        ({"filters": ["SMB -p 445"]}, "somebody else has filters there: SMB"),
        ({"filters": ["hybridlab-1 -p 1", "SMB -p 445"]}, "somebody else has filters there: SMB"),
        ({"denied": True}, "access denied: 'Zugriff verweigert'"),
        ({"old": True}, "cannot count drops, as on Windows Server 2019 without updates: 'Unknown"),
        ({"none": "Die Liste\r\nist nicht da"}, "it prints an unknown format: 'Die Liste ist"),
        ({"most": 0}, "it refused the filters: 'Unknown"),
        (
            {"changed": lambda _: "Alle Z\u00e4hler sind null."},
            "unknown format: 'Alle Z\u00e4hler sind",
        ),
        ({"code": 1}, "exit code 1: '[{"),
        ({"changed": lambda text: text[:-9]}, "it prints an unknown format: '[{"),
        (
            {"changed": lambda text: text.replace("Drops", "Verluste")},
            "it prints an unknown format",
        ),
        ({"changed": lambda text: text.replace("DropReason", "Grund")}, "drops without a reason"),
    ],
)
def test_what_is_not_understood_accuses_nobody_and_what_others_run_stays(
    pktmon, new_monitor, habits, said
):
    for name, value in habits.items():
        setattr(pktmon, name, value)
    before = pktmon.running, [*pktmon.filters]
    found = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert not found.drops
    assert said in found.trouble
    assert (pktmon.running, pktmon.filters) == before


def test_a_system_in_another_language_is_understood_by_its_layout(pktmon, new_monitor):
    pktmon.none = "Paketfilter:\r\n    Keine"
    pktmon.changed = lambda text: f"Z\u00e4hler\r\n{text}"
    said = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert ([one.count for one in said.drops], said.trouble) == ([3], "")


def test_what_a_killed_command_left_is_removed_by_the_next(pktmon, new_monitor):
    killed = new_monitor()
    killed.begin("tcp", ENDS)
    killed._held.close()  # as the end of its process does
    assert (pktmon.running, len(pktmon.filters)) == (True, 1)
    said = counted(new_monitor(), lambda: pktmon.drops.append(OF_PROBE))
    assert ([one.count for one in said.drops], said.trouble) == ([3], "")
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
    found = counted(new_monitor(seconds=1.5))
    assert not found.drops
    assert "not done within" in found.trouble
    assert (pktmon.running, pktmon.filters) == (used, [])


def test_more_pairs_than_filters_are_not_asked(pktmon, new_monitor):
    monitor = new_monitor()
    monitor.begin("tcp", {(A, f"10.0.0.{n}", PORT) for n in range(9)})
    assert "too few for 9 pairs" in monitor.end().trouble
    assert not pktmon.ran


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # recorded in English and Russian
        ("Packet Filters:\r\n    None\r\n", ()),
        ("\u0424\u0438\u043b\u044c\u0442\u0440\u044b:\r\n    \u041d\u0435\u0442", ()),
        ("Packet Filters:\r\n # Name IP\r\n - ---- --\r\n 1 own  192.0.2.1/32", ("own",)),
        (" # Name\r\n - ----\r\n10 a b\r\n", ("a b",)),
        ("", None),
        ("Packet Filters:\r\nNone\r\nunexpected", None),
        (" # Name\r\n - ----\r\n", None),
        (" # Name\r\n - ----\r\n x one\r\n", None),
    ],
)
def test_filters_are_read_by_layout_or_not_at_all(text, names):
    assert read(filter_names, text) == names


ONE_DROP = """[{"Components": [{"Name": "a", "Counters": [{"Type": "Drop",
"Last Drop Reason": "x", "Inbound": {"Packets": 0}, "Outbound": {"Packets": 1}}]}]}]"""


@pytest.mark.parametrize(
    ("text", "drops"),
    [
        ("", None),
        ("[1]", None),
        ("[{}]", None),
        ('[{"Components": [{"Name": "a"}]}]', None),
        ('[{"Components": [{"Name": "a", "Counters": [{"Type": "Drops"}]}]}]', None),
        ('[{"Components": [{"Name": "a", "Counters": [{"Type": null}]}]}]', None),
        ("[]", ()),
        (ONE_DROP, (PacketDrop("a", "outbound", 1, "x"),)),
    ],
)
def test_counters_are_read_in_a_known_format_or_not_at_all(text, drops):
    assert read(parse_drops, text) == drops


def read(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except ValueError:
        return None


PLAN = make_plan(load(find("overlay")))
INTENT = registry.intent(PLAN)


class Provider:
    """Machines with agents on Linux; every probe is lost."""

    abilities = frozenset({CAPTURE, KERNEL_TRACE})
    trace_kernel = MachinesProvider.trace_kernel

    def __init__(self, shell: Any, probed: Callable[[], None]) -> None:
        self._shell, self._probed = shell, probed

    @contextmanager
    def _guests(self, _: LabHandle) -> Iterator[Any]:
        def trace(_intent: Any, _places: Any, _table: str, during: Any, _: Deadline) -> Any:
            during()
            return ()

        fleet = SimpleNamespace(trace=trace)
        yield SimpleNamespace(windows_shell=lambda _: self._shell, deadline=Deadline, fleet=fleet)

    def capture(self, _lab: Any, _intent: Any, taps: Any, _limit: Any, during: Any, _: Any) -> Any:
        during()
        return tuple(Taken(one, (), blind=one.place.startswith("win")) for one in taps)

    def probe(self, *_: Any) -> Any:
        self._probed()
        return {0: Outcome(0, "timeout", "connect: no reply", None, (), None, 0.0)}


@pytest.mark.parametrize("used", [False, True])
def test_explain_says_which_component_dropped_the_probe(
    pktmon, windows_shell, tmp_path, capsys, used
):
    pktmon.running = used
    cell = product(PLAN, INTENT).find("pod-pod/win1-p1/worker1-p1/tcp-small")
    assert cell is not None

    here, there = (INTENT.places()[one][1] for one in ("win1-p1", "worker1-p1"))
    assert here
    assert there
    drop = Dropped((bare(here.address), bare(there.address)), 3, "Inspection drop")

    lab = LabHandle("overlay", tmp_path / "labs" / "overlay", "token")
    provider: Any = Provider(windows_shell, lambda: pktmon.drops.append(drop))
    found = capture_probe(provider, lab, INTENT, cell, (), timeout=0.1, traced=True)
    bracket = find_bracket(found, INTENT)
    assert bracket.sentence == "nothing can be captured at win1-p1 eth0, where it begins"
    said = (
        "win1: TCP/IPv4 - L3/L4 of Ethernet dropped 3 inbound packets of it: 'Inspection drop' "
        "(the Windows firewall or another filter)"
    )
    assert (bracket.at, bracket.next) == ({"win1", "win1-p1"}, frozenset())
    assert bracket.dropped() == (() if used else (said,))
    assert ("win1: asking pktmon: exit code 183" in capsys.readouterr().err) == used
    assert pktmon.running == used
