"""Which cells a capture is of, and who cannot capture at all."""

import errno
import os
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from lab._errors import LabError, UsageError
from lab.explain.capture.files import Captured
from lab.lifecycle import capture, night_report
from lab.lifecycle.capture import CaptureRequest, capture_cell, cells_of, made_empty
from lab.lifecycle.open_lab import open_any
from lab.matrix.cells import every_pair, make_matrix
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import HeldText, find, load
from lab.state.failure import FullError
from lab.topology import registry
from lab.topology.intent import Intent


@cache
def made() -> tuple[Plan, Intent]:
    plan = make_plan(load(find("overlay")))
    return plan, registry.intent(plan)


def ids(request: CaptureRequest) -> list[str]:
    return [cell.id for cell in cells_of(*made(), request, "capturing")]


def test_names_protocol_size_and_family_choose_cells_and_an_id_one():
    between = "pod-pod/master-p1/win1-p1/"
    ways = ("tcp-small", "tcp-large", "udp-small", "udp-large")
    assert ids(CaptureRequest("master-p1", "win1-p1")) == [between + way for way in ways]
    request = CaptureRequest("worker1-p1", "to-worker1-p1", "udp", "large", "hairpin")
    assert ids(request) == ["hairpin/worker1-p1/to-worker1-p1/udp-large"]
    assert ids(CaptureRequest(f"{between}udp-small", None)) == [f"{between}udp-small"]


@pytest.mark.parametrize(
    ("source", "target", "family", "backend"),
    [
        ("worker1", "to-win2-p2", "node-service", "win2-p2"),
        ("client", "worker2:to-master-p2", "nodeport", "master-p2"),
        ("win1-p1", "win1:to-win1-p1", "nodeport", "win1-p1"),
    ],
)
def test_any_two_endpoints_have_a_cell_though_the_matrix_samples_others(
    source, target, family, backend
):
    matrix = make_matrix(*made())
    assert matrix.find(f"{family}/{source}/{target}/udp-small") is None
    request = CaptureRequest(source, target, "udp", "small")
    (cell,) = cells_of(*made(), request, "capturing")
    assert (cell.id, cell.backends) == (f"{family}/{source}/{target}/udp-small", (backend,))
    assert ids(CaptureRequest(cell.id, None)) == [cell.id]


def test_families_that_the_scenario_does_not_test_can_be_explained_and_captured():
    text = f"{find('overlay').read_text()}\nmatrix: {{families: [dns]}}\n"
    plan = make_plan(load(HeldText(text, "dns alone")))
    request = CaptureRequest("master-p1", "win1-p1", "tcp", "small")
    (cell,) = cells_of(plan, registry.intent(plan), request, "capturing")
    assert cell.id == "pod-pod/master-p1/win1-p1/tcp-small"


def test_a_pair_of_the_matrix_is_the_same_cell_among_every_pair():
    plan, intent = made()
    every = every_pair(plan, intent)
    for cell in make_matrix(plan, intent).cells():
        assert every.find(cell.id) == cell


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (CaptureRequest("worker1-pl", "win1-p1"), "did you mean 'worker1-p2' or 'worker1-p1'"),
        (CaptureRequest("worker1-p1", "win1-pl"), "'win1-p1'"),
        (CaptureRequest("pod-pod/no/such/cell", None), "unknown cell id"),
        (CaptureRequest("worker1-p1", None), "DST is missing: 'worker1-p1' is an endpoint"),
        (CaptureRequest("master-p1", "win1-p1", family="dns"), "families that have it: pod-pod"),
    ],
)
def test_a_wrong_name_is_refused_with_the_known_ones(asked, said):
    with pytest.raises(UsageError) as refused:
        ids(asked)
    assert said in str(refused.value)


def test_a_provider_that_takes_down_no_packets_is_refused_with_what_to_do(desk):
    desk.up(scenario_text=find("overlay").read_text())
    opened = open_any("overlay", desk.providers, desk.store)
    with pytest.raises(UsageError) as refused:
        capture_cell(opened, CaptureRequest("a", "b"), desk.said.append)
    assert refused.value.exit_code == 2
    assert "provider 'fake' cannot capture packets" in str(refused.value)
    assert "lab explain" in refused.value.hint


def test_files_of_two_captures_are_not_mixed(tmp_path):
    with made_empty(None), made_empty(tmp_path):
        (tmp_path / "one").touch()
    for directory, said in ((tmp_path, "is not empty"), (tmp_path / "one", "not a directory")):
        with pytest.raises(UsageError, match=said), made_empty(directory):
            pass


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("/proc/x", "it cannot be created"),
        ("/proc/x/y", "'/proc/x/y': it cannot be created"),
        ("/dev/null", "is not a directory"),
        ("/dev/null/x", "it cannot be created: not a directory"),
        ("/proc/self/task/0", "it cannot be created"),
    ],
)
def test_a_directory_that_takes_no_files_is_refused_before_the_capture(directory, said):
    with pytest.raises(UsageError, match=said) as refused, made_empty(Path(directory)):
        pytest.fail("captured for nothing")
    assert "leave it out" in refused.value.hint


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_packets_are_led_nowhere_by_another_user(tmp_path):
    mine, theirs, link = tmp_path / "mine", tmp_path / "theirs", tmp_path / "link"
    mine.mkdir()
    theirs.mkdir()
    link.symlink_to(mine)
    for path in (theirs, link):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    for directory in (theirs, theirs / "new", link, link / "new"):
        with pytest.raises(UsageError, match="belongs to"), made_empty(directory):
            pytest.fail("captured for somebody else")
    assert not [*mine.iterdir(), *theirs.iterdir()]


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_packets_are_led_nowhere_by_another_user_who_is_quick(tmp_path, monkeypatch):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    make = capture._make

    def make_after_the_stranger(directory, made):
        theirs.symlink_to(mine)
        os.chown(theirs, 65534, 65534, follow_symlinks=False)
        make(directory, made)

    monkeypatch.setattr(capture, "_make", make_after_the_stranger)
    with pytest.raises(UsageError, match="belongs to"), made_empty(theirs / "new"):
        pytest.fail("captured for somebody else")
    assert not list(mine.iterdir())


# SECURITY.md: What root writes is not given away.
@pytest.mark.parametrize(
    "make",
    [
        lambda path: made_empty(path).__enter__(),
        lambda path: night_report.make_output(path, path, datetime.now(UTC)),
    ],
    ids=["capture", "night"],
)
def test_a_directory_that_somebody_removes_at_once_is_not_used(tmp_path, monkeypatch, make):
    monkeypatch.setattr(os, "mkdir", lambda *_: None)
    monkeypatch.setattr(capture, "TemporaryFile", lambda **_: nullcontext())
    with pytest.raises(LabError, match=f"'{tmp_path / 'new'}' is not there any more"):
        make(tmp_path / "new")


def test_a_directory_for_a_capture_that_fails_is_gone_again(tmp_path):
    with pytest.raises(FileExistsError), made_empty(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b").mkdir()
    assert not (tmp_path / "a").exists()
    kept = tmp_path / "a" / "packets"

    def captured_in_part():
        kept.touch()
        raise KeyError

    with pytest.raises(KeyError), made_empty(tmp_path / "a"):
        captured_in_part()
    assert kept.exists()


def test_captures_keep_their_order_when_the_clock_jumps(desk, monkeypatch):
    desk.up(scenario_text=find("overlay").read_text())
    monkeypatch.setattr(capture, "files", lambda _: [("01-master-p1-eth0.pcapng", b"packets")])
    opened = open_any("overlay", desk.providers, desk.store)
    made = []
    for later in (0, 0, -3600):
        desk.now += later
        made.append(capture.keep(opened, cast(Captured, None), None))
    assert made == sorted({*made})


@pytest.mark.parametrize("named", [True, False])
def test_files_that_cannot_all_be_written_are_not_left_in_part(
    desk, tmp_path, monkeypatch, *, named
):
    def as_far_as_the_disk_goes(_):
        yield "01-master-p1-eth0.pcapng", b"packets"
        raise OSError(errno.ENOSPC, "No space left on device")

    desk.up(scenario_text=find("overlay").read_text())
    monkeypatch.setattr(capture, "files", as_far_as_the_disk_goes)
    given = tmp_path / "given"
    opened = open_any("overlay", desk.providers, desk.store)
    with pytest.raises(FullError, match="the disk is full"):
        capture.keep(opened, cast(Captured, None), given if named else None)
    assert list(tmp_path.rglob("*.pcapng")) == []
    assert list(tmp_path.rglob("*-capture*")) == []
