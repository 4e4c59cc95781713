"""Every command has a manual page, which troff reads without a warning."""

import shutil
import sys
from pathlib import Path

import click
import pytest

from lab.cli.main import command as main_command

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import man
from processes import run_program

PAGES = dict(man.pages())


def test_every_command_and_subcommand_has_a_page_with_its_options():
    context = click.Context(main_command)
    for name in main_command.list_commands(context):
        found = main_command.get_command(context, name)
        assert found is not None
        assert f"lab {name}".replace("-", "\\-") in PAGES[f"lab-{name}"]
        below = found.commands if isinstance(found, click.Group) else {name: found}
        for word, one in below.items():
            page = PAGES[f"lab-{name}" if one is found else f"lab-{name}-{word}"]
            for option in (each for each in one.params if isinstance(each, click.Option)):
                assert option.hidden or option.opts[-1].replace("-", "\\-") in page


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
