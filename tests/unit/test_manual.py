"""Every command has a manual page, which troff reads without a warning."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import man
from processes import run_program

PAGES = dict(man.pages())


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_pages_are_read_without_a_warning():
    for name, text in PAGES.items():
        command = ["groff", "-man", "-Tutf8", "-P-cbou", "-ww"]  # without bold and underline
        done = run_program(command, input=text)
        assert done.stderr == "", name
        assert f"{name.upper()}(1)" in done.stdout


def test_text_that_looks_like_a_request_stays_text():
    assert man.plain(".B x") == "\\&.B x"
    assert man.plain("'quoted' -o") == "\\&'quoted' \\-o"
    assert man.plain("a\\b") == "a\\eb"
