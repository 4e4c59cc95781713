"""``make test-wine`` where it cannot run says so, and is neither green nor red."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "real" / "nspawn" / "wine_tests.py"


def test_without_powershells_archive_the_last_line_is_not_run(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, PROGRAM, "none.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (4, "")
    assert done.stdout.splitlines()[-1].startswith("NOT RUN: tests of Wine nodes: ")
    assert not list(tmp_path.iterdir())
