"""``lab test``: the connectivity matrix, through pytest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from lab._log import say


@click.command("test", context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="LAB")
@click.argument("selection", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST OPTIONS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@click.option("--verbose", is_flag=True, help="Let pytest report every cell itself.")
def command(name: str, selection: tuple[str, ...], as_json: bool, verbose: bool) -> int:
    r"""Run the connectivity matrix of LAB, every cell a pytest item.

    pytest's own options choose cells and are passed on:

    \b
      lab test overlay -k "win1 and tcp"
      lab test overlay -m "nodeport and large"
      lab test overlay --lf

    The same without this command: pytest --lab LAB --pyargs lab.suites
    """
    import pytest

    from lab.lifecycle.session import open_lab
    from lab.suites import plugin

    opened = open_lab(name)
    say(opened.banner)
    watcher = Watcher()
    arguments = [
        *("--lab", name, "--pyargs", "lab.suites"),
        *("-c", str(Path(plugin.__file__).with_name("pytest.ini"))),
        *("-o", f"cache_dir={opened.handle.directory / 'pytest-cache'}"),
        *(() if verbose else ("--lab-quiet",)),
        *selection,
    ]
    code = int(pytest.main(arguments, plugins=[watcher, *_plugin_if_not_installed(plugin)]))
    watcher.finish(opened.intent, as_json)
    return code
