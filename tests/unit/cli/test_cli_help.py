"""What every command says of itself: whole sentences, in 80 columns."""

import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from processes import run_program

from lab import _plugins
from lab.cli.main import COMMANDS, ELSEWHERE, GROUPS, main
from lab.cli.main import command as main_command

COLUMNS = 80


def every(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*path, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from every(command, (*path, name))


def said(*words: str) -> str:
    done = CliRunner().invoke(main_command, [*words, "--help"], terminal_width=COLUMNS)
    assert done.exit_code == 0
    return done.output


def test_every_help_is_whole_and_fits():
    for path in [(), *every(main_command)]:
        text = said(*path)
        assert [line for line in text.splitlines() if len(line) > COLUMNS] == [], path
        assert "..." not in text.partition("\n\nOptions:")[2], path
        assert text.partition("\n\n")[2].lstrip()[0].isupper(), "it begins with what it does"


@pytest.mark.room
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help():
    context = click.Context(main_command)
    for name, summary in COMMANDS.items():
        command = main_command.get_command(context, name)
        assert command
        assert command.name == name
        assert command.get_short_help_str(limit=1000) == summary


@pytest.mark.room
def test_a_wrong_command_of_a_group_names_the_nearest():
    done = CliRunner().invoke(main_command, ["bundle", "creat"], prog_name="lab")
    assert done.exit_code == click.UsageError.exit_code
    assert 'there is no command "creat"; did you mean "lab bundle create"?' in done.output


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("create", "up"),
        ("destroy", "down"),
        ("history", "events"),
        ("connect", "shell"),
        ("diagram", "graph"),
        ("tset", "test"),
    ],
)
def test_a_word_of_another_tool_names_the_command_that_is_meant(word, meant):
    done = CliRunner().invoke(main_command, [word, "overlay"], prog_name="lab")
    assert done.exit_code == click.UsageError.exit_code
    assert f'there is no command "{word}"; did you mean "lab {meant}"?' in done.output


@pytest.mark.room
def test_every_command_is_listed_once_in_its_group():
    assert not set(ELSEWHERE) & set(COMMANDS)
    assert set(ELSEWHERE.values()) <= set(COMMANDS)
    lines = said().partition("\nOptions:")[2].partition("\nNot installed:")[0].splitlines()
    headings = [f"{heading}:" for heading in GROUPS]
    assert [line for line in lines if line in headings] == headings
    listed = [
        line.split()[0] for line in lines if line.startswith("  ") and line[2:3] not in {" ", "-"}
    ]
    assert listed == list(COMMANDS)


@pytest.mark.room
@pytest.mark.parametrize(
    ("before", "words", "most"),
    [
        ("", "--help", 15),
        ("from lab.machines.libvirt import marks; marks.is_installed = lambda: False", "list", 64),
    ],
)
def test_few_modules_are_imported_for_help_and_for_a_list_of_no_labs(tmp_path, before, words, most):
    code = f"""if True:
        import sys, atexit; from lab.cli.main import main
        {before}
        atexit.register(lambda: print(sum(m.partition('.')[0] == 'lab' for m in sys.modules)))
        main(['{words}'])
    """
    done = run_program(
        [sys.executable, "-c", code], env={"HYBRIDLAB_STATE": str(tmp_path / "state")}, cwd=tmp_path
    )
    assert int(done.stdout.split()[-1]) <= most


@pytest.mark.parametrize("words", [(), ("inventory",)], ids=" ".join)
def test_a_group_without_a_command_prints_its_help_and_is_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == click.UsageError.exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Usage: ")
    assert "error:" not in shown.err


def test_what_is_missing_is_installed_from_a_checkout_by_make_and_else_by_pip(
    tmp_path, monkeypatch
):
    (tmp_path / "Makefile").touch()
    commands = []
    for place in (tmp_path, tmp_path / "site-packages"):
        monkeypatch.setattr(_plugins, "__file__", str(place / "lab" / "_plugins.py"))
        commands.append([room.command for room in _plugins.ROOMS])
    assert commands[0] == [
        f"make setup PROVIDER={name}" for name in ("nspawn", "libvirt", "libvirt")
    ]
    assert commands[1][2] == 'pip install "hybridlab[windows]"'


@pytest.mark.parametrize("words", ["--help", "list", "status nowhere", "down nowhere"])
def test_what_reads_no_file_of_the_user_imports_neither_pydantic_nor_yaml(tmp_path, words):
    code = f"""if True:
        import sys, atexit; from lab.cli.main import main
        atexit.register(lambda: print(*{{m.partition('.')[0] for m in sys.modules}}))
        main({words.split()})
    """
    done = run_program(
        [sys.executable, "-c", code],
        env={"HYBRIDLAB_STATE": str(tmp_path / "state")},
        cwd=tmp_path,
        check=False,
    )
    imported = {*done.stdout.splitlines()[-1].split()}
    assert "lab" in imported
    assert not imported & {"pydantic", "ruamel", "jinja2", "rich", "pytest"}


def test_a_topology_is_looked_up_without_what_explains_its_packets():
    code = (
        "import sys; from lab.topology.registry import topologies; assert topologies();"
        "print('lab.topology.subject' in sys.modules)"
    )
    assert run_program([sys.executable, "-c", code]).stdout.strip() == "False"


def test_the_option_that_a_run_without_cells_advises_is_in_the_help():
    done = CliRunner().invoke(main_command, ["test", "--help"], prog_name="lab")
    assert "--collect-only -q" in done.output
