"""The controller's side of an agent: shipping it, and making sense of what comes back."""

import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, UsageError
from lab.facts.questions import STATE_COMMAND
from lab.lifecycle.compilation import compile_scenario
from lab.machines.agents import agent
from lab.machines.agents.control import NodeControl, archive_digest, build_archive
from lab.machines.agents.protocol import Order, failure_line, machine_work, make_line, taken_lines
from lab.providers.capture import Frame, RouteQuestion, Taken, Tap
from lab.providers.provider import Outcome, Probe, ProbeSettings
from lab.providers.wire import decode
from lab.scenario.loader import shipped
from lab.shells.shell import Completed

INTENT = compile_scenario("overlay", only="linux").intent
SHIPPED = shipped()
WORKER = INTENT.machine("worker1")
PROBE = Probe(1, "worker1", "tcp", "small", "10.0.0.1", 8080, 1500)


class PaperShell:
    """A shell that answers by the book, and keeps what it was asked."""

    def __init__(self, *answers: tuple[int, bytes, str]) -> None:
        self.answers = list(answers)
        self.told: list[bytes] = []
        self.files: dict[str, bytes] = {}
        self.ran: list[Sequence[str]] = []
        self.looked = Completed(0, "", "")

    def stream(
        self, command: Sequence[str], _: Deadline, heard: Callable[[bytes], None], stdin: bytes
    ) -> Completed:
        self.ran.append(command)
        self.told.append(stdin)
        code, said, errors = self.answers.pop(0)
        for line in said.splitlines(keepends=True):
            heard(line)
        return Completed(code, "", errors)

    def run(self, command: Sequence[str], _: Deadline, __: bytes = b"") -> Completed:
        self.ran.append(command)
        return self.looked

    def put(self, content: bytes, path: str, _: int, __: Deadline) -> None:
        self.files[path] = content


def control(*answers: tuple[int, bytes, str]) -> tuple[NodeControl, PaperShell]:
    shell = PaperShell(*answers)
    return NodeControl("worker1", shell), shell  # type: ignore[arg-type] # as much of one as is used


DONE = (0, b'{"done": true}\n', "")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def test_packets_are_captured_at_the_machines_own_devices_and_named_as_in_the_intent():
    taps = (Tap("win1", "flannel.4096"), Tap("win1", "eth0"), Tap("win1-p1", "eth0"))
    own = (Tap("win1", "vxlan4096"), *taps[1:])
    lines = b"".join(line for tap in own for line in taken_lines(Taken(tap, (), 3)))
    shell = PaperShell((0, lines + DONE[1], ""))
    here = NodeControl("win1", shell, devices={"flannel.4096": "vxlan4096"})  # type: ignore[arg-type]
    taken = here.listen(taps, 9, lambda _: None, Deadline(5))
    assert decode(shell.told[0], Order).taps == own
    assert [(each.tap, each.missed) for each in taken] == [(tap, 3) for tap in taps]


def up(*answers: tuple[int, bytes, str]) -> PaperShell:
    here, shell = control(*answers)
    here.up(WORKER, INTENT, Deadline(5))
    return shell


def test_the_agent_is_shipped_when_it_is_not_there_and_only_then():
    shell = up((118, b"", ""), DONE)
    assert shell.files == {f"/run/hybridlab/node-{archive_digest()}.pyz": build_archive()}
    assert up(DONE).files == {}


def test_the_order_lists_what_must_exist():
    order = decode(up(DONE).told[0], Order)
    assert order.work == machine_work(WORKER, INTENT)
    assert 0 < order.seconds < 5


@pytest.mark.parametrize("scenario", SHIPPED)
def test_the_agent_reads_the_work_of_every_machine_as_it_was_sent(scenario):
    intent = compile_scenario(scenario).intent
    for machine in intent.machines:
        here, shell = control(DONE)
        here.up(machine, intent, Deadline(5))
        (sent,) = shell.told
        work = decode(sent, Order).work
        assert work == machine_work(machine, intent)
        assert work.digest() == machine_work(machine, intent).digest()


QUESTION = RouteQuestion("10.0.0.1", "10.0.0.2", "tcp", 80, answer=False, arrives="", leaves="eth0")


@pytest.mark.parametrize(
    ("ask", "order"),
    [
        (
            lambda node: node.probe([PROBE], ProbeSettings(1.0, 4), lambda _: None, Deadline(5)),
            {"probes": (PROBE,), "settings": ProbeSettings(1.0, 4)},
        ),
        (
            lambda node: node.listen([Tap("p", "eth0")], 9, lambda _: None, Deadline(5)),
            {"taps": (Tap("p", "eth0"),), "limit": 9},
        ),
        (
            lambda node: node.trace({"p": [QUESTION]}, "t", lambda _: None, Deadline(5)),
            {"places": {"p": (QUESTION,)}, "table": "t"},
        ),
        (
            lambda node: node.run_in_pods(["p"], STATE_COMMAND, Deadline(5)),
            {"pods": ("p",), "command": tuple(map(str, STATE_COMMAND))},
        ),
    ],
)
def test_the_agent_reads_each_order_as_it_was_sent(ask, order):
    here, shell = control(DONE)
    with suppress(BrokenError):  # the answer has nothing
        ask(here)
    received = decode(shell.told[0], Order)
    assert received == Order(received.seconds, **order)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"seconds": 5', b"\x80\x04K\x05.", json.dumps({"seconds": "5"}).encode()],
)
def test_an_order_of_another_form_is_refused_by_name(content, monkeypatch, capfdbinary):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert agent.main(["up"]) == BrokenError.exit_code
    (kind, action, happened, hint) = json.loads(capfdbinary.readouterr().out)["failed"]
    assert (kind, action, hint) == ("BrokenError", "reading the order", "repeat the command")
    assert happened.startswith(f"its {len(content)} bytes are no order of this version: ")


def test_how_a_machine_is_is_asked_without_the_agent():
    here, shell = control()
    shell.looked = Completed(0, "its responder is not running\n", "")
    assert here.ailment(WORKER, INTENT, Deadline(5)) == "its responder is not running"
    assert shell.ran[0][-1] == machine_work(WORKER, INTENT).digest()
    shell.looked = Completed(2, "", "sh: Out of memory")
    with pytest.raises(BrokenError, match="exit code 2: sh: Out of memory"):
        here.ailment(WORKER, INTENT, Deadline(5))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((127, b"", ""), "the machine has no 'python3'"),
        ((1, b"", "Traceback\nKeyError: 'x'\n"), "exit code 1; KeyError: 'x'"),
        ((0, b"", ""), "exit code 0; no output"),
        ((0, b"Welcome!\n", ""), "not an agent's line, b'Welcome!"),
        ((0, b'{"joke": 1}\n', ""), "not an agent's line, b'{\"joke\": 1}"),
        ((255, b'{"done": true}\n', "lost"), "exit code 255; lost"),
        ((142, b"", "Alarm clock"), "it had not ended after 5 s"),
        ((-14, b"", ""), "it had not ended after 5 s"),
        ((3, b'{"failed": ["BrokenError", "a", "b", "c"]}\n', ""), "a on machine 'worker1': b"),
    ],
)
def test_an_error_is_reported_with_the_machines_name(answer, says):
    with pytest.raises(BrokenError) as caught:
        up(answer)
    assert says in str(caught.value)
    assert "'worker1'" in str(caught.value)


def test_noise_is_passed_over_and_an_archive_that_does_not_arrive_is_not_shipped_for_ever():
    up((0, b'Last login: today\n{"done": true}\n', ""))
    with pytest.raises(BrokenError, match="exit code 118"):
        up((118, b"", ""), (118, b"", ""))


def probed(row: object) -> dict[int, Outcome]:
    line = make_line("outcomes", [row]) + DONE[1]
    return control((0, line, ""))[0].probe(
        [PROBE], ProbeSettings(1.0, 4), lambda _: None, Deadline(5)
    )


GOOD = Outcome(1, "ok", "", "10.0.0.1", ("a", "b"), None, 1.5, ("10.0.0.2",), 9.4e8)


def test_outcomes_come_back_as_they_were():
    assert probed(GOOD) == {1: GOOD}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"key": 2}, {"key": "1"}, {"status": "great"}, {"status": ["ok"]}, {"status": None}),
        *({"backends": "ab"}, {"backends": [1]}, {"latency_ms": "x"}, {"more": 1}),
    ],
)
def test_outcomes_of_other_keys_or_shapes_are_not_taken(wrong):
    with pytest.raises(BrokenError, match="1 of 1 probes have no outcome"):
        probed(asdict(GOOD) | wrong)


def test_what_passed_a_tap_comes_back_as_it_was_in_however_many_lines():
    frames = tuple(Frame(at, "other", bytes([at]) * 60_000, 65_000) for at in range(5))
    told = Taken(Tap("worker1-p1", "eth0"), frames, 3, "it went down")
    lines = list(taken_lines(told))
    assert len(lines) > 1
    here, _ = control((0, b"".join(lines) + DONE[1], ""))
    assert here.listen([told.tap], 1 << 20, lambda _: None, Deadline(5)) == (told,)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BrokenError("adding bridge", "refused", "try"), BrokenError),
        (DeadlineError("waiting", "not done", ""), DeadlineError),
        (UsageError("compiling", "twice", ""), BrokenError),
    ],
)
def test_an_error_names_the_machine_and_keeps_its_kind(error, kind):
    with pytest.raises(kind) as raised:
        up((3, failure_line(error), ""))
    assert type(raised.value) is kind
    assert raised.value.doing == f"{error.doing} on machine 'worker1'"
    assert (raised.value.happened, raised.value.hint) == (error.happened, error.hint)


KINDS = st.sampled_from(["phase", "progress", "outcomes", "pieces", "taken", "completed", "failed"])


@given(
    st.binary(max_size=60)
    | ANYTHING.map(lambda one: json.dumps(one).encode())
    | st.tuples(KINDS, ANYTHING).map(lambda one: make_line(*one).strip())
)
def test_any_output_of_a_guest_is_accepted_or_refused(said):
    shell = PaperShell((0, said + b"\n" + DONE[1], ""))
    try:
        NodeControl("worker1", shell).up(WORKER, INTENT, Deadline(5))  # type: ignore[arg-type]
    except LabError:
        return


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_a_piece_of_evidence_stays_where_it_is_put(path):
    line = (
        make_line("pieces", [[path, "text"]]) + make_line("pieces", [["b/c.txt", "it"]]) + DONE[1]
    )
    pieces = list(control((0, line, ""))[0].evidence(Deadline(5)))
    assert [piece.path for piece in pieces] == ["worker1/network/b/c.txt"]
    (missing,) = control((127, b"", ""))[0].evidence(Deadline(5))
    assert missing.path == "worker1/network/missing.txt"
    assert b"no 'python3'" in missing.content


def test_the_work_is_the_same_every_time_and_another_for_another_intent():
    def digest(scenario: str) -> str:
        intent = compile_scenario(scenario, only="linux").intent
        return machine_work(intent.machine("worker1"), intent).digest()

    assert digest("overlay") == machine_work(WORKER, INTENT).digest() != digest("host-gateway")
