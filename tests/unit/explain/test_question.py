"""One question asked again, looked into, and told: to a person and as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import NoReturn

import pytest
from made_differences import of_state
from seen_machines import lab, whole, with_items, with_link
from simulation import Fault, Network, silent

from lab._errors import BrokenError, LabError, UsageError
from lab.cli.main import command
from lab.explain.bracket import Bracket
from lab.explain.check import NEW_LAB
from lab.explain.explanation import Explanation
from lab.explain.kernel import KernelReport
from lab.explain.known_lines import find_known_lines
from lab.explain.lab_queries import Compare, LabQueries, NoAnswer
from lab.explain.paths import flow_of
from lab.explain.stages import explain_cells
from lab.facts.difference import Difference, make_not_asked
from lab.facts.items import make_setting
from lab.facts.node import PACKETS, DeviceCounter, NodeFacts
from lab.lifecycle import api
from lab.lifecycle import explain as lifecycle
from lab.matrix.cell import Cell
from lab.matrix.choose import choose_cells
from lab.providers.provider import Evidence, Outcome
from lab.reports.explanation import fix_words, to_json, to_text
from lab.scenario.scenario import Limit, Match
from lab.topology import registry
from lab.topology.subject import FORWARDING, SettingSubject, SocketSubject, TableSubject
from lab.topology.walk import walk

LOST = "2026-11-22 07:54:55.117 <RMT> to-worker1: Error: Hold timer expired"


_OVERLAY = whole(lab("overlay")[1])
STOPPED = with_items(_OVERLAY, "worker1", make_setting(FORWARDING.path, "0"))["worker1"].items
"""The items of a machine that does not forward."""


def no_reply(_cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
    return silent(outcome)


@dataclass
class World:
    """A lab on paper: what its network does, what is seen of it, what it has logged."""

    scenario: str = "overlay"
    fault: Fault = lambda _cell, _attempt, outcome: outcome
    change: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    logs: Sequence[Evidence] = ()
    read: list[tuple[str, ...]] = field(default_factory=list)

    def explained(self, source: str, target: str) -> Explanation:
        plan, intent, matrix = lab(self.scenario)
        limits = registry.limits(plan)
        cells = choose_cells(matrix, source, target, action="explaining")
        facts = whole(intent)
        for name, what in self.change.items():
            facts[name] = replace(facts[name], **what)  # type: ignore[arg-type]
        return explain_cells(
            cells,
            limits,
            intent,
            LabQueries(
                Network(cells, limits, self.fault).send,
                lambda asked: {name: one for name, one in facts.items() if name in asked},
                self._read,
            ),
        )

    def _read(self, asked: Collection[str]) -> Iterator[Evidence]:
        self.read.append(tuple(asked))
        yield from (log for log in self.logs if log.path.partition("/")[0] in asked)


def told(explanation: Explanation) -> list[str]:
    return to_text("overlay", explanation).splitlines()


def test_a_working_cell_is_reported_as_working_without_reading_logs() -> None:
    world = World()
    explanation = world.explained("worker1-p1", "win1-p1")
    assert explanation.well
    assert told(explanation)[0].endswith("win1-p1, TCP small: works (6 of 6 times)")
    assert told(explanation)[1].startswith("  nothing is wrong on its path (")
    assert world.read == []


def test_a_known_limit_that_holds_is_as_expected_with_its_rule() -> None:
    explanation = World().explained("win1", "win1:to-win1-p1")
    assert explanation.well
    assert told(explanation)[:4] == [
        "nodeport: win1 to win1:to-win1-p1, TCP small: times out, as expected (6 of 6 times)",
        "  expected: no reply; a known limit",
        f"    rule:   WIN-NODEPORT-SELF: {explanation.expectation.reason}",
        "    from:   Kubernetes documentation, Networking on Windows",
    ]
    assert to_json("overlay", explanation)["expected"]["rule"] == "WIN-NODEPORT-SELF"


def test_an_unexpected_pass_is_explained_by_its_rule_and_its_path_is_not_inspected() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")
    limit = Limit(
        id="mine-exception-1",
        when=Match(protocol="udp"),
        fails="timeout",
        reason="it is so",
        source="mine.yaml:47",
        exception=1,
    )

    def tcp_fails(cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        return silent(outcome) if cell.protocol == "tcp" else outcome

    def inspect(*_: object) -> NoReturn:
        raise AssertionError("the path was inspected")

    send = Network(cells, ()).send
    explanation = explain_cells(
        cells, [limit], intent, LabQueries(send, inspect, inspect, inspect, inspect)
    )
    assert (explanation.verdict, explanation.well) == ("unexpected-pass", False)
    advice = "  exception 1 (mine.yaml:47) no longer holds: remove it or narrow its 'when'"
    assert told(explanation)[4:] == [advice]
    assert to_json("overlay", explanation)["expected"]["exception"] == 1
    facts = whole(intent)
    cells = tuple(reversed(cells))
    send = Network(cells, (), tcp_fails).send
    failed = explain_cells(cells, [limit], intent, LabQueries(send, lambda _: facts, lambda _: ()))
    assert (failed.verdict, failed.cell.protocol) == ("fail", "tcp"), "a failure comes first"


def test_what_kubernetes_promises_to_refuse_is_as_expected_and_no_finding() -> None:
    explanation = World("services").explained("master-p1", "nobody")
    assert explanation.finding is None
    assert explanation.well
    text = told(explanation)
    assert text[0].endswith("is refused, as expected (6 of 6 times)")
    assert text[1] == "  expected: a refusal; Kubernetes promises it"
    assert text[2].startswith("    rule:   K8S-NO-ENDPOINTS: ")
    assert "to where it ends: Service nobody has no backends" in text[-1]


def test_an_unexpected_refusal_is_reported_with_the_expected_one_and_its_rule() -> None:
    explanation = World("services", no_reply).explained("master-p1", "nobody")
    assert not explanation.well
    text = told(explanation)
    assert ": fail 6 of 6 times: expected to be refused, but timed out" in text[0]
    assert text[2].startswith("    rule:   K8S-NO-ENDPOINTS: ")
    assert text[4].startswith("  nothing checked on its path differs from the intent")
    lost = Bracket("last seen at eth0 of worker1", 0, frozenset())
    placed = replace(explanation, bracket=lost)
    assert told(placed)[5] == "    where:  last seen at eth0 of worker1"
    assert to_json("services", placed)["where"] == "last seen at eth0 of worker1"


def test_what_should_work_and_leads_nowhere_is_a_finding() -> None:
    def refused(_cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        return replace(silent(outcome), status="refused")

    world = World(fault=refused, change={"worker1": {"items": STOPPED}})
    explanation = world.explained("worker1-p1", "win1-p1")
    assert explanation.finding is not None
    assert explanation.finding.fault == "ip-forward-off"
    elsewhere = Bracket("lost", 0, frozenset({"win1-p1"}))
    here = replace(elsewhere, loss_places=frozenset({explanation.finding.place}))
    reports = KernelReport(explanation.finding.place, "not forwarded", frozenset({"forwarding"}))
    heard = replace(here, kernel=(reports,))
    for bracket, agree in (
        (heard, "all three: where it was lost, what differs there, what the kernel reports"),
        (here, "two of three: where it was lost, what differs there; the kernel reports no drop"),
        (elsewhere, "one of three: what differs there; where it was lost is unknown; the kernel "),
    ):
        assert f"    agree:  {agree}" in "\n".join(told(replace(explanation, bracket=bracket)))


def test_logs_of_machines_on_the_path_are_shown_beside_the_finding() -> None:
    logs = (
        Evidence("worker1/bird/log", f"started\n{LOST}\n{LOST}\n".encode()),
        Evidence("worker1/bird/bird.conf", LOST.encode()),
        Evidence("worker2/bird/log", LOST.encode()),
    )
    world = World(fault=no_reply, change={"worker1": {"items": STOPPED}}, logs=logs)
    explanation = world.explained("worker1-p1", "win1-p1")
    assert world.read == [("worker1", "win1")]
    text = told(explanation)
    assert "    fault:  ip-forward-off" in text
    at = text.index("  In the logs of the machines on the path (each line has its time):")
    assert text[at + 1].startswith("    worker1/bird/log, line 3 and 1 more: BIRD's session")
    assert text[at + 2] == f"      line: {LOST}"
    assert text[at + 3].startswith("      try:  on both ends: birdc show protocols all")
    assert len(text) == at + 4
    (entries,) = to_json("overlay", explanation)["logs"]
    assert (entries["log"], entries["number"], entries["times"]) == ("worker1/bird/log", 3, 2)
    assert entries["signature"] == "bird-silent"
    json.dumps(entries)


def test_what_is_only_logged_is_no_finding() -> None:
    logs = (Evidence("worker1/bird/log", LOST.encode()),)
    explanation = World(fault=no_reply, logs=logs).explained("worker1-p1", "win1-p1")
    assert explanation.finding is None
    assert [entry.match.id for entry in explanation.logged] == ["bird-silent"]


def test_only_the_end_of_a_long_log_is_searched_and_lines_are_counted_from_its_beginning() -> None:
    early, late = f"{LOST}\n", f"other\n{LOST}\n"
    filler = "x" * 99 + "\n"
    content = early + filler * ((2 << 20) // 100) + late
    (entry,) = find_known_lines([Evidence("worker1/bird/log", content.encode())])
    assert (entry.match.times, entry.match.number + 1) == (1, content.count("\n"))


def test_only_the_first_of_many_log_lines_are_shown() -> None:
    logs = tuple(Evidence(f"worker1/bird{number}/log", LOST.encode()) for number in range(8))
    text = told(World(fault=no_reply, logs=logs).explained("worker1-p1", "win1-p1"))
    assert text[-1] == "    and 3 more (--json has all of it)"


def test_a_twin_beside_the_path_is_named_also_where_every_try_is_answered() -> None:
    there = whole(lab("overlay")[1])
    mac = next(link.mac for link in there["worker1"].links if link.name == "eth0")
    items = with_link(there, "master", "eth0", mac=mac)["master"].items
    found = World(change={"master": {"items": items}}).explained("worker1-p1", "win1-p1")
    assert found.failed == 0
    assert found.finding is not None
    assert (found.finding.kind, found.finding.node) == ("duplicate-mac", "master")
    assert found.elsewhere == ()


def test_counters_are_asked_where_no_state_differs() -> None:
    looks = {
        "worker1": DeviceCounter("eth0", "sent", PACKETS, 9),
        "win1": DeviceCounter("eth0", "received", PACKETS, 0),
    }
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    first = iter([True])

    def look(asked: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        facts, before = whole(intent), next(first, False)
        for name, rise in looks.items():
            counter = replace(rise, value=1 if before else 1 + rise.value)
            facts[name] = replace(facts[name], counters=(counter,))
        return {name: facts[name] for name in asked}

    explanation = explain_cells(
        cells, (), intent, LabQueries(Network(cells, (), no_reply).send, look, lambda _: ())
    )
    assert explanation.finding is not None
    assert (explanation.finding.kind, explanation.finding.node) == ("lost-between", "win1")


@pytest.mark.parametrize(
    ("source", "target", "meant"),
    [
        ("worker1-p1", "10.244.0.5", "did you mean 'master-p2'? "),
        ("10.244.0.5", "worker1-p1", "did you mean 'master-p2'? "),
        ("worker1-p1", "10.244.0.5:8080", "did you mean 'master-p2'? "),
        ("worker1-p1", "WIN1-P1", "did you mean 'win1-p1'? "),
        ("worker1-p1", "to-win1-p1:80", "did you mean 'to-win1-p1'? "),
        ("client", "10.9.176.10:{port}", "did you mean 'master:to-win1-p1'? "),
        ("client", "master:{port}", "did you mean 'master:to-win1-p1'? "),
        ("worker1-p1", "10.244.0.5:1", "there are client"),
        ("worker1-p1", "...", "there are client"),
    ],
)
def test_an_endpoint_given_by_address_or_with_port_is_shown_by_name(
    source: str, target: str, meant: str
) -> None:
    _, _, matrix = lab("overlay")
    ports = (t.path(g.sources[0]).target for g in matrix.grids for t in g.targets)
    port = next(port.port for port in ports if port.name == "master:to-win1-p1")
    with pytest.raises(UsageError) as refused:
        choose_cells(matrix, source, target.format(port=port), action="explaining")
    assert refused.value.hint.startswith(meant)


def test_source_and_target_must_differ() -> None:
    _, _, matrix = lab("overlay")
    with pytest.raises(UsageError) as refused:
        choose_cells(matrix, "master-p1", "master-p1", action="explaining")
    assert refused.value.happened == "source and target are the same"
    assert "'to-master-p1'" in refused.value.hint


def test_a_green_cell_on_whose_path_a_device_drops_is_marginal() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    looks = iter(range(9))

    def look(asked: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        facts, number = whole(intent), next(looks)
        counters = (DeviceCounter("eth0", "received", "dropped", number),)
        facts["win1"] = replace(facts["win1"], counters=counters)
        return {name: facts[name] for name in asked}

    explanation = explain_cells(
        cells, (), intent, LabQueries(Network(cells).send, look, lambda _: ())
    )
    assert explanation.well
    assert [(difference.kind, difference.node) for difference in explanation.marginal] == [
        ("packets-dropped", "win1")
    ]
    assert "marginal: on win1, card eth0: eth0 received dropped" in to_text("overlay", explanation)


def test_a_difference_on_the_path_of_a_green_cell_is_shown_but_is_no_finding() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    buffer = of_state(SettingSubject("ipv4/tcp_rmem"), "256", made="4096")
    facts = whole(intent)
    explanation = explain_cells(
        cells,
        (),
        intent,
        LabQueries(
            Network(cells).send,
            lambda asked: {name: facts[name] for name in asked},
            lambda _: (),
            lambda places: {"worker1-p1": [buffer]} if "worker1-p1" in places else {},
        ),
    )
    assert explanation.well
    assert (explanation.finding, explanation.marginal) == (None, ())
    assert "setting net/ipv4/tcp_rmem" in to_text("overlay", explanation)


@pytest.mark.parametrize(
    ("mends", "fix"),
    [
        ("ip link set dev eth0 up", "lab exec mine worker1 -- ip link set dev eth0 up"),
        (f"ip route {'x' * 200}", "lab repair mine worker1 'card eth0'"),
        (f"nft add {'x' * 200}", "lab repair mine worker1 'card eth0'"),
        ("run 'lab up' again " * 20, "run 'lab up' again " * 20),
    ],
)
def test_a_long_command_that_fixes_is_a_repair_of_its_object(mends: str, fix: str) -> None:
    finding = Difference(
        "link-down", "", "worker1", "card eth0", "up", "down", "", mends, "worker1"
    )
    assert fix_words("mine", finding) == fix


NO_ROOM = BrokenError("comparing 'win1'", "no room")
WITNESSES_SILENT: Mapping[str, Compare] = {
    "all at once": lambda _: no_room(),
    "one machine": lambda places: {**dict.fromkeys(places, ()), "win1": NO_ROOM},
}


def no_room() -> NoReturn:
    raise NO_ROOM


@pytest.mark.parametrize("name", WITNESSES_SILENT)
def test_a_comparison_that_did_not_finish_is_never_nothing_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    facts = whole(intent)
    compare = WITNESSES_SILENT[name]
    witnesses = LabQueries(Network(cells).send, lambda _: facts, lambda _: (), compare)
    explanation = explain_cells(cells, (), intent, witnesses)
    assert (explanation.has_problem, explanation.well) == (False, False)
    (silence,) = explanation.unanswered
    assert "win1" in silence.places
    text = to_text("overlay", explanation)
    assert "nothing is wrong" not in text
    assert "  nothing wrong was found on its path (50 hops, there and back), but not" in text
    assert "win1" in text.partition("  not known: what differs at ")[2]
    assert text.endswith(": comparing 'win1': no room\n")
    document = to_json("overlay", explanation)
    assert document["well"] is False
    assert document["silences"][0]["reason"] == "comparing 'win1': no room"

    monkeypatch.setattr(api, "open_any", lambda _: SimpleNamespace(disclaimer=""))
    monkeypatch.setattr(lifecycle, "explain_cell", lambda *_: explanation)
    words = ["explain", "overlay", "worker1-p1", "win1-p1"]
    assert command.main(words, standalone_mode=False) == BrokenError.exit_code


def test_what_a_machine_has_no_program_for_is_a_note_and_no_silence() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    seen = whole(intent)

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        lacking = [make_not_asked(query, "there is no 'tc'") for query in ("queues", "vlans")]
        return {place: lacking if place.startswith("worker1") else () for place in places}

    witnesses = LabQueries(Network(cells).send, lambda _: seen, lambda _: (), compare)
    found = explain_cells(cells, (), intent, witnesses)
    assert found.well
    text = to_text("overlay", found)
    assert "  nothing is wrong on its path" in text
    note = "  not looked at here: queues, vlans at worker1-p1, worker1: there is no 'tc'\n"
    assert note in text
    (queries,) = to_json("overlay", found)["not_asked"]
    assert queries["reason"] == "there is no 'tc'"


def test_what_cannot_be_compared_or_followed_is_listed_with_the_reason() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    facts = whole(intent)

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        return {place: () for place in places if place not in {"worker1", "win1", "win1-p1"}}

    sends = Network(cells, (), no_reply).send
    witnesses = LabQueries(sends, lambda _: facts, lambda _: (), compare, lambda _: no_room())
    explanation = explain_cells(cells, (), intent, witnesses)
    assert explanation.unanswered == (NoAnswer("where", (), "comparing 'win1': no room"),)
    assert explanation.unrecorded == ("worker1",)
    assert set(explanation.stateless) == {"win1", "win1-p1"}
    text = to_text("overlay", explanation)
    assert "  not known: where the probe is lost: comparing 'win1': no room\n" in text
    assert "  not compared, as 'lab up' has recorded no state: worker1\n" in text
    (windows,) = (line for line in text.splitlines() if "with the Intent only" in line)
    assert sorted(windows.rpartition(": ")[2].split(", ")) == ["win1", "win1-p1"]


def test_a_kernel_that_cannot_be_asked_is_no_kernel_that_reports_no_drop() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    seen = whole(intent)
    seen["worker1"] = replace(seen["worker1"], items=STOPPED)
    bracket = Bracket(
        "lost", 0, frozenset({"worker1"}), untraced=(("worker1", "there is no 'tc'"),)
    )
    sends = Network(cells, (), no_reply).send
    witnesses = LabQueries(sends, lambda _: seen, lambda _: (), follow=lambda _: bracket)
    found = explain_cells(cells, (), intent, witnesses)
    assert found.unanswered == (NoAnswer("kernel", ("worker1",), "there is no 'tc'"),)
    text = to_text("overlay", found)
    assert "  not known: what the kernel reports at worker1: there is no 'tc'\n" in text
    assert "what the kernel reports is unknown" in text
    assert "no drop" not in text


def test_a_machine_off_the_path_that_does_not_answer_is_named_beside() -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "win1-p1", action="explaining")[:1]
    seen: dict[str, NodeFacts | LabError] = {**whole(intent), "worker2": NO_ROOM}
    look = lambda asked: {name: seen[name] for name in asked}  # noqa: E731
    explanation = explain_cells(
        cells, (), intent, LabQueries(Network(cells).send, look, lambda _: ())
    )
    assert explanation.well
    assert [(difference.kind, difference.node) for difference in explanation.elsewhere] == [
        ("machine-silent", "worker2")
    ]


@pytest.mark.parametrize(
    ("fixes", "advised"),
    [
        (["nft add rule x"], "nft add rule x"),
        (["nft add rule x", "ip link y"], NEW_LAB),
        ([""], NEW_LAB),
        ([], NEW_LAB),
    ],
)
def test_advice_is_what_undoes_the_only_difference_where_a_check_knows_no_command(
    fixes: list[str], advised: str
) -> None:
    _, intent, matrix = lab("overlay")
    cells = choose_cells(matrix, "worker1-p1", "to-win1-p1", action="explaining")[:1]
    facts = whole(intent)
    none = replace(facts["worker1"].translations, services=())
    facts["worker1"] = replace(facts["worker1"], translations=none)
    differs = [of_state(TableSubject("ip", "x"), "b", fix) for fix in fixes]
    explanation = explain_cells(
        cells,
        (),
        intent,
        LabQueries(
            Network(cells, (), no_reply).send,
            lambda asked: {name: facts[name] for name in asked},
            lambda _: (),
            lambda places: {"worker1": differs} if "worker1" in places else {},
        ),
    )
    assert explanation.finding is not None
    assert (explanation.finding.node, explanation.finding.mends) == ("worker1", advised)


def test_what_differs_at_an_api_server_that_never_answers_is_the_cause() -> None:
    _, intent, matrix = lab("kubeinit")
    cell = next(cell for cell in matrix.cells() if cell.family == "api")
    silent = cell.backends[-1]

    def without_one(_cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        return replace(outcome, backends=cell.backends[:-1])

    facts = whole(intent)
    socket = of_state(SocketSubject("tcp", "0.0.0.0", "6443"), "none", made="open")
    explanation = explain_cells(
        [cell],
        (),
        intent,
        LabQueries(
            Network([cell], (), without_one).send,
            lambda asked: {name: facts[name] for name in asked},
            lambda _: (),
            lambda places: {silent: [socket]} if silent in places else {},
        ),
    )
    assert explanation.finding is not None
    assert (explanation.finding.node, explanation.finding.object) == (
        silent,
        "socket tcp 0.0.0.0:6443",
    )


def test_partial_name_of_a_windows_pod_is_asked_of_the_server_in_front_of_the_cluster() -> None:
    _, intent, matrix = lab("kubeinit")
    partial = [cell for cell in matrix.cells() if cell.name_form == "partial"]
    machines_of = {cell.source.os: walk(intent, flow_of(cell))[0].machines for cell in partial}
    assert {os: "services" in machines for os, machines in machines_of.items()} == {
        "linux": False,
        "windows": True,
    }
