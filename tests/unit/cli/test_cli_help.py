"""What every command says of itself: whole sentences, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from lab.cli.main import COMMANDS
from lab.cli.main import command as main_command

COLUMNS = 80


def every(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*path, name)
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from every(found, (*path, name))


def said(*words: str) -> str:
    done = CliRunner().invoke(main_command, [*words, "--help"], terminal_width=COLUMNS)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("path", [(), *every(main_command)], ids=" ".join)
def test_help_is_whole_and_fits(path: tuple[str, ...]) -> None:
    text = said(*path)
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    listed = text.partition("Commands:")[2]
    assert "..." not in listed
    sentence = text.partition("\n\n")[2].lstrip()
    assert sentence[0].isupper(), "it begins with what it does"


def test_a_wrong_command_of_a_group_names_the_nearest() -> None:
    done = CliRunner().invoke(main_command, ["bundle", "creat"])
    assert done.exit_code == click.UsageError.exit_code
    assert 'there is no command "creat"; did you mean "create"?' in done.output


def test_every_command_is_listed() -> None:
    assert {path[0] for path in every(main_command)} == set(COMMANDS)
