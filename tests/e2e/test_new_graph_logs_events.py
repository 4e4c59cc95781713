"""A scenario begun with `lab new`, drawn, brought up, and followed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_command import Lab

from lab._deadline import Deadline

FOREIGN = Path(__file__).parents[1] / "cases" / "foreign"


@contextmanager
def followed(lab: Lab, *words: str) -> Iterator[list[str]]:
    """The lines of a command that does not end, as they come; it is ended afterwards."""
    process = lab.start(*words)
    lines: list[str] = []
    assert process.stdout
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))  # type: ignore[arg-type]
    reader.start()
    try:
        yield lines
    finally:
        process.terminate()
        process.wait(60)
        reader.join(60)
        process.stdout.close()
        process.stderr.close()


def wait_for(lines: list[str], text: str) -> None:
    Deadline(60).wait(
        f"waiting for '{text}'", lambda: "".join(lines), until=lambda said: text in said, every=0.1
    )


def test_new_scenario_is_drawn_before_and_after_it_is_up(lab, tmp_path):
    file = tmp_path / "mine.yaml"
    lab.run("new", "mine", "--topology", "host-gateway", "--windows", "2", "-o", str(file))
    again = lab.run("new", "mine", "-o", str(file), code=2)
    assert "already exists" in again.stderr
    lab.run("validate", str(file))
    assert "win2" in lab.run("graph", str(file)).stdout
    graph = json.loads(lab.run("graph", str(file), "--json").stdout)
    boxes = {box["id"]: box["lines"][0] for box in graph["boxes"]}
    assert "win2" in boxes.values()
    assert {end for *ends, _ in graph["edges"] for end in ends} <= {*boxes}
    lab.run("up", str(file), "--only", "linux")
    drawn = tmp_path / "mine.svg"
    assert lab.run("graph", "mine", "--format", "svg", "-o", str(drawn)).stdout == f"{drawn}\n"
    assert "lab &#x27;mine&#x27;" in drawn.read_text()
    assert "win2" not in drawn.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(path.stem for path in FOREIGN.glob("*.yaml")))
def test_scenario_begun_from_another_tools_file_comes_up_green(lab, tmp_path, case):
    file = tmp_path / "mine.yaml"
    lab.run("new", "mine", "--from", str(FOREIGN / f"{case}.yaml"), "-o", str(file))
    lab.run("validate", str(file))
    lab.run("run", str(file))


def test_unsupported_parts_of_another_tools_file_are_reported(lab, tmp_path):
    file, theirs = tmp_path / "mine.yaml", FOREIGN / "kubeadm.yaml"
    written = lab.run("new", "mine", "--from", str(theirs), "-o", str(file))
    assert written.stdout == f"{file}\n"
    assert f"left out of '{theirs}':\n  ClusterConfiguration.controlPlane" in written.stderr
    assert f"not in '{theirs}': topology overlay (--topology)" in written.stderr
    refused = lab.run("validate", str(theirs), code=2)
    assert f'"lab new NAME --from {theirs}"' in refused.stdout
    missing = lab.run("new", "other", "--from", str(tmp_path / "none.yaml"), code=2)
    assert "there is no such file" in missing.stderr


def test_events_and_logs_are_followed_as_they_come(lab):
    lab.run("up", "calico-bgp-tor")
    whole = lab.run("logs", "calico-bgp-tor").stdout
    assert "==> router/bird/log <==" in whole
    assert "==> worker1/bird/log <==" in whole
    assert "router" not in lab.run("logs", "calico-bgp-tor", "worker1").stdout
    lines = lab.run("logs", "calico-bgp-tor", "--json").stdout.splitlines()
    texts = {log["path"]: log["text"] for log in map(json.loads, lines)}
    assert texts["router/bird/log"].splitlines()[0] in whole
    with (
        followed(lab, "events", "--follow", "--json") as events,
        followed(lab, "logs", "calico-bgp-tor", "worker1", "--follow") as logs,
    ):
        wait_for(events, '"up"')
        wait_for(logs, "Started")
        lab.run("fault", "calico-bgp-tor", "bgp-session-down", "--node", "worker1")
        wait_for(events, '"fault"')
        wait_for(logs, "Disabling protocol to-router")
        lab.run("heal", "calico-bgp-tor")
        wait_for(events, '"healed"')
        lab.run("down", "calico-bgp-tor")
        wait_for(events, '"down"')
    told = [json.loads(line) for line in events]
    assert [one["kind"] for one in told if one["kind"] in {"created", "fault", "healed"}] == [
        "created",
        "fault",
        "healed",
    ]


def test_logs_of_machines_without_programs_and_of_no_machine(lab):
    lab.run("up", "overlay")
    assert "no program of its machines has a log" in lab.run("logs", "overlay").stderr
    assert "did you mean 'worker1'" in lab.run("logs", "overlay", "wroker1", code=2).stderr
    assert "there is no lab named 'overly'" in lab.run("events", "overly", code=2).stderr
