"""The checks of a first real Windows: their page, what is run, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ntfs_maker
import pytest
from click.testing import CliRunner
from tables import table

from lab._errors import BrokenError
from lab.machines import caches as images
from lab.machines.commands.image import command
from lab.shells.shell import Completed
from lab.windows.first_windows import CHECKS, describe, report, run
from lab.windows.shell import encoded_command

PAGE = Path(__file__).parents[2] / "docs/how-to/first-windows.md"
NAME = "windows-server-2022"


def test_the_page_has_every_check_in_order():
    assert [check.number for check in CHECKS] == list(range(1, 20))
    assert PAGE.read_text().endswith("\n".join(describe(check) for check in CHECKS))


def lab(said: dict[int, str]) -> Any:
    """A lab whose Windows node answers checks by their number ("!" on stderr); others fail."""
    answers = {encoded_command(check.command): said.get(check.number) for check in CHECKS}

    def asked(words: tuple[str, ...], _: object) -> Completed:
        answer = answers[words]
        if answer is None:
            raise BrokenError("asking", "WinRM: connection refused")
        return Completed(0, "", answer[1:]) if answer.startswith("!") else Completed(0, answer, "")

    machine = SimpleNamespace(run=asked)
    nodes = [SimpleNamespace(name="cp1", os="linux"), SimpleNamespace(name="win1", os="windows")]
    return SimpleNamespace(
        handle=None,
        intent=SimpleNamespace(machines=nodes),
        provider=SimpleNamespace(machine=lambda *_: machine),
    )


def verdicts(tmp_path: Path, said: dict[int, str]) -> dict[int, str]:
    answers = run(NAME, None, tmp_path, lab(said))
    return {
        answer.check.number: answer.verdict for answer in answers if answer.check.where == "node"
    }


def clock(off: timedelta) -> str:
    return f"Leap Indicator: 0\r\nnow {(datetime.now(UTC) + off).isoformat()}\r\n"


@pytest.mark.parametrize("case", table("first-windows"))
def test_right_and_wrong_answers_are_distinguished(case, tmp_path):
    number = case["number"]
    assert verdicts(tmp_path, {number: case["right"]})[number] == "as expected"
    assert verdicts(tmp_path, {number: case["wrong"]})[number] == "differs"
    assert verdicts(tmp_path, {})[number] == "not run"


@pytest.mark.parametrize(("hours", "verdict"), [(0, "as expected"), (8, "differs")])
def test_a_clock_is_compared_with_this_machine_s(hours, verdict, tmp_path):
    assert verdicts(tmp_path, {7: clock(timedelta(hours=hours))})[7] == verdict


def test_answers_for_a_person_to_read_are_marked_and_secrets_hidden(tmp_path):
    key = "ABCDE-FGHJK-LMNPQ-RSTUV-WXYZ2"
    told: list[str] = []
    text = report(run(NAME, None, tmp_path, lab({6: f"cbr0 10.1.0.2 {key}"})), told)
    assert " 6 to be read: The node's own endpoint is attached" in "\n".join(told)
    assert "cbr0 10.1.0.2" in text
    assert key not in text
    assert " 1 not run: " in told[0]


@pytest.mark.skipif(bool(ntfs_maker.missing()), reason=f"not installed: {ntfs_maker.missing()}")
@pytest.mark.parametrize("kept", [False, True])
def test_the_command_looks_into_the_sealed_disk_and_writes_one_file(kept, tmp_path, monkeypatch):
    (tmp_path / "image").mkdir()
    disk = tmp_path / "image" / "disk.qcow2"
    answer = {"Windows/Panther/unattend.xml": b"<unattend/>"} if kept else {}
    ntfs_maker.disk(disk, {"Windows/System32/x.dll": b"MZ", **answer})
    (tmp_path / f"{NAME}.log").write_text("hybridlab: phase specialize\nhybridlab: step ports\n")
    image = SimpleNamespace(name=NAME, disk=disk)
    store = SimpleNamespace(peek=lambda _: image, logs=tmp_path)
    monkeypatch.setattr(images, "image_store", lambda: store)
    done = CliRunner().invoke(
        command, ["check-windows", NAME, "-o", str(tmp_path / "sent.md")], standalone_mode=False
    )
    assert done.return_value == 1, "the log has no ready"
    text = (tmp_path / "sent.md").read_text()
    verdict = "differs" if kept else "as expected"
    assert f" 3 {verdict}: The sealed disk keeps no answer file ({NAME})" in text
    assert f"14 as expected: COM1 works from specialize on ({NAME})" in text
    assert ("Windows\\Panther\\unattend.xml: every clone" in text) == kept
    assert " 4 not run: kubeadm" in text
