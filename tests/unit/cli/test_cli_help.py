"""What every command says of itself: whole sentences, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from lab.cli.main import COMMANDS, ELSEWHERE, GROUPS
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
    listed = text.partition("\n\nOptions:")[2]
    assert "..." not in listed
    sentence = text.partition("\n\n")[2].lstrip()
    assert sentence[0].isupper(), "it begins with what it does"


def test_a_wrong_command_of_a_group_names_the_nearest() -> None:
    done = CliRunner().invoke(main_command, ["bundle", "creat"], prog_name="lab")
    assert done.exit_code == click.UsageError.exit_code
    assert 'there is no command "creat"; did you mean "lab bundle create"?' in done.output


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("create", "up"),
        ("destroy", "down"),
        ("logs", "gather"),
        ("connect", "shell"),
        ("graph", "show"),
        ("tset", "test"),
    ],
)
def test_a_word_of_another_tool_names_the_command_that_is_meant(word: str, meant: str) -> None:
    done = CliRunner().invoke(main_command, [word, "overlay"], prog_name="lab")
    assert done.exit_code == click.UsageError.exit_code
    assert f'there is no command "{word}"; did you mean "lab {meant}"?' in done.output


def test_words_of_other_tools_are_no_commands_and_mean_some() -> None:
    assert not set(ELSEWHERE) & set(COMMANDS)
    assert set(ELSEWHERE.values()) <= set(COMMANDS)


def test_every_command_is_listed_once_in_its_group() -> None:
    assert {path[0] for path in every(main_command)} == set(COMMANDS)
    lines = said().partition("\nOptions:")[2].splitlines()
    headings = [f"{heading}:" for heading in GROUPS]
    assert [line for line in lines if line in headings] == headings
    listed = [
        line.split()[0] for line in lines if line.startswith("  ") and line[2:3] not in {" ", "-"}
    ]
    assert listed == list(COMMANDS)
