import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from processes import run_program
from rich.console import Console
from unit.reports.made_runs import (
    FAILOVER,
    REACHED,
    SAMPLED,
    intent_of,
    made_assertion,
    made_run,
    many_nodes,
)

from lab.facts.difference import OBJECT, Difference
from lab.matrix.verdict import RunResult
from lab.providers.workloads import WorkloadResult
from lab.reports.explanation import red_causes
from lab.reports.html import to_html
from lab.reports.terminal import make_summary, plain_lines, show
from lab.reports.topology import picture_of
from lab.reports.wording import closing_line, emulation, headline, percentile

REPORT = "/home/anna/.local/state/hybridlab/labs/overlay/runs/20261121-101500-7f3a/report.html"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, environ: dict[str, str], run: RunResult | None = None) -> str:
    show(run or made_run("mixed"), REPORT, stream, environ)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "environ"),
    [
        (io.StringIO(), {}),
        (Terminal(), {"NO_COLOR": "1", "TERM": "xterm-256color"}),
        (Terminal(), {"TERM": "dumb"}),
    ],
    ids=["a pipe", "NO_COLOR", "a dumb terminal"],
)
def test_plain_text_has_no_escape_codes_and_only_ascii(stream, environ):
    text = shown(stream, environ)
    assert text.isascii()
    assert "\x1b" not in text
    assert "every UDP NodePort probe on worker2 (96 of 96 cells" in text


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": ""}], ids=["not set", "empty NO_COLOR"])
def test_a_terminal_gets_colours(monkeypatch, environ):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in shown(Terminal(), {**environ, "TERM": "xterm-256color"})


@pytest.mark.parametrize("name", ["FORCE_COLOR", "CLICOLOR_FORCE"])
def test_colours_can_be_forced_where_there_is_no_terminal(monkeypatch, name):
    for other in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(other, raising=False)
    text = shown(io.StringIO(), {name: "1"})
    assert "\x1b[" in text
    assert "every UDP NodePort probe on worker2" in text
    assert "\x1b" not in shown(io.StringIO(), {name: "0"})
    assert "\x1b" not in shown(io.StringIO(), {name: "1", "NO_COLOR": "1"})


def test_at_80_columns_only_commands_and_paths_are_wider():
    written = io.StringIO()
    console = Console(file=written, width=80, highlight=False)
    console.print(make_summary(made_run("mixed"), REPORT), width=80, crop=False)
    lines = written.getvalue().splitlines()
    wide = [line for line in lines if len(line) > 80]
    assert all(line.lstrip().startswith(("repeat:", "explain:", "Report: ")) for line in wide)
    assert f"Report: {REPORT}" in lines
    assert "…" not in "".join(lines)


def test_plain_text_names_what_is_expected_what_came_and_how_to_repeat_it():
    lines = plain_lines(made_run("dead-node"), REPORT)
    at = next(n for n, line in enumerate(lines) if "everything to and from win1" in line)
    assert lines[at + 1 : at + 7] == [
        "    cause:    none found on its path",
        "    example:  pod-pod: master-p1 to win1-p1, TCP small",
        "    expected: an answer from win1-p1, which sees the source 10.244.0.4",
        "    actual:   connect: no reply in 1.0 s; then connect: no reply in 1.0 s",
        "    explain:  lab explain overlay master-p1 win1-p1 --protocol tcp --size small",
        "    repeat:   lab test overlay -k pod-pod/master-p1/win1-p1/tcp-small",
    ]
    assert lines[-2:] == [
        "2,280 cells: 1,256 pass, 24 known limits, 1,000 fail; 1.9 s",
        f"Report: {REPORT}",
    ]


def test_every_red_cell_has_the_command_that_explains_it():
    run = made_run("mixed")
    lines = [line.strip() for line in plain_lines(run, REPORT)]
    told = [line for line in lines if line.startswith("explain:  ")]
    assert len(told) == sum(1 for line in lines if line.startswith("repeat:  "))
    for line in told:
        _, lab, explain, name, source, target, *rest = line.split()
        assert (lab, explain, name) == ("lab", "explain", run.lab)
        cells = [result.cell for result in run.results if result.cell.source.name == source]
        assert target in {cell.target.name for cell in cells}
        assert rest[::2] == ["--protocol", "--size"]


def test_of_a_lab_that_is_down_by_then_no_command_names_it():
    run = made_run("mixed")
    results = tuple(
        replace(result, repeat=f"again {result.cell.id}")  # no decision is by its words
        for result in run.results
    )
    night = replace(run, lab="nightly-overlay", results=results, temporary=True)
    text = "\n".join(plain_lines(night, REPORT))
    picture = picture_of(intent_of())
    assert "    repeat:   again " in text
    assert "explain:" not in text
    assert "lab explain" not in to_html(night, picture)
    assert "lab explain" in to_html(run, picture)


def test_a_green_run_shows_no_red_section_but_its_limits():
    text = "\n".join(plain_lines(made_run("healthy")))
    assert "Not as expected" not in text
    assert "24 cells: a Windows node cannot reach a NodePort on itself" in text
    assert "Report:" not in text


def test_of_many_single_cells_ten_are_listed_and_the_rest_counted():
    run = made_run("mixed", many_nodes(20), 2, seed=3, families=("pod-pod",))
    (unexplained,) = red_causes(run.results)
    singles = unexplained.singles
    text = "\n".join(plain_lines(run))
    assert len(singles) > 10
    assert f"  and {len(singles) - 10} more" in text
    assert text.count("    repeat:") == 10 + len(unexplained.groups)


def test_a_run_without_cells_is_reported():
    run = replace(made_run("healthy"), results=())
    assert closing_line(run) == "0 cells: nothing judged; 1.9 s"
    assert headline(run) == "There were no cells to judge."
    assert plain_lines(run)[-1] == closing_line(run)


def test_the_title_says_which_nodes_are_not_what_they_look_like():
    run = replace(made_run("healthy"), provider="nspawn", emulated_nodes=())
    assert plain_lines(run)[0] == f"Lab '{run.lab}' on nspawn"
    run = replace(run, disclaimer="Windows nodes are programs")
    assert plain_lines(run)[0] == f"Lab '{run.lab}' on nspawn; Windows nodes are programs"


def test_of_many_emulated_nodes_the_first_are_named():
    run = replace(made_run("healthy"), emulated_nodes=tuple(f"win{n}" for n in range(1, 21)))
    assert emulation(run) == "emulated: win1, win2, win3, win4, win5 and 15 more"


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 5), (0.51, 6), (0.99, 10), (1.0, 10)])
def test_percentiles_are_by_nearest_rank(share, value):
    assert percentile(range(1, 11), share) == value


def test_plain_output_imports_neither_rich_nor_jinja2():
    code = (
        "import sys, io; import lab.reports.terminal, lab.reports.html, lab.reports.result;"
        "print({'rich', 'jinja2', 'pytest'} & {name.partition('.')[0] for name in sys.modules})"
    )
    root = Path(__file__).parents[3]
    done = run_program([sys.executable, "-c", code], cwd=root)
    assert done.stdout.strip() == "set()"


def test_a_sample_is_printed_with_its_total_and_its_coverage():
    run = replace(made_run("healthy"), coverage=SAMPLED)
    lines = plain_lines(run, REPORT)
    assert lines[-3].startswith("1,234 of 36,134,400 cells: ")
    assert lines[-2:] == [f"Probed: {REACHED}", f"Report: {REPORT}"]
    told = shown(Terminal(), {"TERM": "xterm-256color"}, run)
    assert "every node pair both ways" in " ".join(told.split())


def test_a_failover_is_printed_with_the_new_holder_and_the_outage():
    run = replace(made_run("healthy"), failover=FAILOVER)
    lines = plain_lines(run, REPORT)
    begin = lines.index("Failover")
    held = "held by master1, then by master2, and by master2 once master1 was back"
    assert lines[begin + 1 : begin + 4] == [
        f"  gateway of node009: {held}",
        "  master1 lost: 2.75 s without an answer, from node009-p1 to node001-p1",
        "  master1 lost: 2.50 s without an answer, from node001-p1 to node009-p1",
    ]
    assert "; failover in 2.8 s; " in closing_line(run)
    nobody = replace(FAILOVER, away=replace(FAILOVER.away, holders={"node009": None}))
    failed = replace(run, failover=nobody)
    why = "no machine holds the gateway of node009 while master1 is away"
    assert f"  not as expected: {why}" in plain_lines(failed, REPORT)
    assert headline(failed) == f"The network is as expected, but its failover is not: {why}."
    assert "; failover failed; " in closing_line(failed)


def test_checks_that_a_node_could_not_run_for_one_reason_are_one_line():
    why = "Node worker1: cordoned, and takes no new pods"
    checks = (
        WorkloadResult("worker1", "secret", "probe-error", why),
        WorkloadResult("worker1", "host-path", "probe-error", why),
        WorkloadResult("worker2", "secret", "fail", "no value"),
        WorkloadResult("worker2", "host-path", "pass", ""),
    )
    lines = plain_lines(replace(made_run("healthy"), workloads=checks), REPORT)
    begin = lines.index("Not as expected: 3 workload checks")
    assert lines[begin + 1 : begin + 3] == [
        f"  * 2 checks on worker1: probe-error: {why}",
        "  * worker2/secret: fail: no value",
    ]


def test_an_assertion_that_does_not_hold_is_listed_with_its_command():
    made = (made_assertion("fail"), made_assertion("pass", "worker2"))
    skipped = made_assertion("known-limit", "win1")
    run = replace(made_run("healthy"), assertions=(*made, skipped))
    lines = plain_lines(run, REPORT)
    begin = lines.index("Not as expected: 1 assertion")
    assert lines[begin + 1 : begin + 4] == [
        "  * assertion forwarding/worker1: fail: exit 1 instead of 0",
        "    command:  cat '/a b'",
        "    repeat:   lab test overlay -k assertions/forwarding/worker1",
    ]
    counted = "1 of 2 assertions passed; 1 assertion not made on emulated nodes"
    assert counted in closing_line(run)
    assert headline(run).startswith("The network is as expected, but only 1 of 2 assertions passed")
    assert not run.green()
    assert replace(run, assertions=(made[1], skipped)).green()


def test_what_lets_a_pod_run_is_a_command_of_its_cells():
    run = made_run("mixed")
    finding = Difference(
        *(OBJECT, "", "worker1", "Node worker1", "", "cordoned, and takes no new pods"),
        *("kubectl describe node worker1", "kubectl uncordon worker1", "master"),
    )
    result = replace(run.results[0], verdict="probe-error", finding=finding)
    lines = plain_lines(replace(run, results=(result,)), REPORT)
    assert f"    fix:      lab exec {run.lab} master -- kubectl uncordon worker1" in lines
    failed = replace(result, verdict="fail")
    assert not [line for line in plain_lines(replace(run, results=(failed,))) if "fix:" in line]
