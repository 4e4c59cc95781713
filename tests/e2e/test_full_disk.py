"""A disk that is nearly full is refused; on one that is quite full, a lab still goes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from lab_command import Lab, processes_with

pytestmark = pytest.mark.slow

FILL = "head -c 64M /dev/zero >>$STATE/filler 2>/dev/null"
HOLDERS = 'pgrep -fc "hybridlab-holder.* $STATE/"'


def on_a_small_disk(lab: Lab, script: str) -> list[str]:
    """Run a script whose state directory is on a disk of 24 MiB; what it said, line by line."""
    lab.state.mkdir()
    shell = f"""
    STATE={shlex.quote(str(lab.state))}; mount -t tmpfs -o size=24m,mode=700 none $STATE || exit 9
    lab() {{ {shlex.join(lab.command())} "$@" 2>&1; echo "code $?"; }}
    {script}
    """
    isolated = ["unshare", "--mount", "--map-root-user", "sh", "-c", shell]
    done = lab.call(isolated, PYTHONPATH=str(Path(__file__).parents[2]))
    if "unshare:" in done.stderr or done.returncode == 9:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert "Traceback" not in done.stdout
    assert processes_with(str(lab.state)) == [], "something outlived its state directory"
    return done.stdout.splitlines()


def test_nearly_full_disk_is_refused_and_no_lab_is_left_behind(lab):
    lines = on_a_small_disk(
        lab, "lab list; head -c 16M /dev/zero >$STATE/filler; lab up overlay; lab list"
    )
    assert lines.count("code 4") == 1
    assert any("MiB are free, 16 MiB are needed" in line for line in lines)
    assert [line for line in lines if line.startswith("overlay")] == []
    assert not any(lab.state.iterdir())


def test_lab_on_a_full_disk_is_removed_and_journaled_once_there_is_space(lab):
    lines = on_a_small_disk(
        lab,
        f"lab up overlay; {FILL}; {FILL}; lab down overlay; echo holders $({HOLDERS});"
        " lab down overlay; rm $STATE/filler; lab down overlay; lab list",
    )
    codes = [line for line in lines if line.startswith("code")]
    assert codes == ["code 0", "code 4", "code 4", "code 0", "code 0"]
    assert "holders 0" in lines
    assert any("it is removed (process" in line for line in lines)
    assert any("the journal could not be written" in line for line in lines)
    assert any("there are no labs" in line for line in lines)


FILLER = """
import os, subprocess
def pytest_sessionstart():
    with open(os.environ["STATE"] + "/filler", "ab") as file:
        try:
            while file.write(bytes(1 << 16)):
                file.flush()
        except OSError:
            pass
"""


def test_a_disk_that_is_full_or_fills_is_named_by_a_test_and_a_capture(lab, tmp_path):
    (tmp_path / "filler.py").write_text(FILLER)
    lines = on_a_small_disk(
        lab,
        f"""
        lab up overlay; echo before $(find $STATE -name '*.pcapng' -o -name '*.xml' | wc -l)
        export STATE PYTHONPATH=$PYTHONPATH:{shlex.quote(str(tmp_path))}
        lab test overlay -p filler -k master-p1/worker1-p1/tcp-small
        lab test overlay -k no-such-cell
        lab capture overlay master-p1 worker1-p1
        echo left $(find $STATE -name '*.pcapng' -o -name '*.xml' | wc -l)
        lab down overlay
        """,
    )
    codes = [line for line in lines if line.startswith("code")]
    assert codes == ["code 0", "code 4", "code 4", "code 4", "code 4"]
    assert not any("standard output" in line for line in lines)
    assert sum("0 MiB are free" in line for line in lines) >= 2
    assert [line for line in lines if line.startswith(("before", "left"))] == ["before 0", "left 0"]


def test_what_is_judged_is_printed_although_the_disk_is_full_by_then(lab, tmp_path):
    late = FILLER.replace("pytest_sessionstart()", "pytest_runtest_logfinish()")
    (tmp_path / "late_filler.py").write_text(late)
    lines = on_a_small_disk(
        lab,
        f"""
        lab up overlay
        export STATE PYTHONPATH=$PYTHONPATH:{shlex.quote(str(tmp_path))}
        lab test overlay -p late_filler -k master-p1/worker1-p1/tcp-small
        rm $STATE/filler; lab down overlay
        """,
    )
    codes = [line for line in lines if line.startswith("code")]
    assert codes == ["code 0", "code 4", "code 0"]
    assert any(line.startswith("1 of 2,300 cells: 1 pass; ") for line in lines)
    assert not any(line.startswith("Report: ") for line in lines)
