"""Write a manual page for every command of lab into build/man, from the commands themselves.

python tools/man.py
man -l build/man/lab-up.1
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from lab.cli import main

PAGES = Path(__file__).parents[1] / "build/man"


def pages() -> Iterator[tuple[str, str]]:
    """Names and texts of all pages."""
    root = main.command
    see_also = [f"lab-{name}" for name in root.list_commands(click.Context(root))]
    yield "lab", "\n".join(page("lab", root, see_also)) + "\n"
    for name in root.list_commands(click.Context(root)):
        command = root.get_command(click.Context(root), name)
        assert command is not None
        yield from of_command(f"lab {name}", command)


def of_command(words: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """The page of a command, and those of its subcommands."""
    below: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        names = command.list_commands(click.Context(command))
        subcommands = ((name, command.get_command(click.Context(command), name)) for name in names)
        below = [
            (f"{words} {name}", subcommand)
            for name, subcommand in subcommands
            if subcommand is not None
        ]
    see_also = ["lab", *(name.replace(" ", "-") for name, _ in below)]
    yield words.replace(" ", "-"), "\n".join(page(words, command, see_also)) + "\n"
    for name, subcommand in below:
        yield from of_command(name, subcommand)


def page(words: str, command: click.Command, see_also: list[str]) -> Iterator[str]:
    """Lines of one page, as troff."""
    context = click.Context(command, info_name=words)
    help_text = inspect.cleandoc(command.help or "")
    paragraphs = help_text.split("\n\n")
    name = words.replace(" ", "-")
    yield f'.TH {quoted(name.upper())} 1 "" hybridlab "hybridlab"'
    yield ".SH NAME"
    yield f"{plain(name)} \\- {plain(' '.join(paragraphs[0].split()).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {plain(words)}"
    yield plain(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for paragraph in paragraphs:
        yield ".PP"
        if paragraph.startswith("\b"):  # click keeps the line breaks of such a paragraph
            yield ".nf"
            yield from (plain(line) for line in paragraph.splitlines()[1:])
            yield ".fi"
        else:
            yield plain(" ".join(paragraph.split()))
    records = [
        record
        for param in command.params
        if isinstance(param, click.Option) and (record := param.get_help_record(context))
    ]
    if records:
        yield ".SH OPTIONS"
    for option, meaning in records:
        yield ".TP"
        yield f".B {plain(option)}"
        yield plain(" ".join(meaning.split()))
    yield ".SH SEE ALSO"
    yield ", ".join(f"{plain(page_name)}(1)" for page_name in see_also)


def plain(text: str) -> str:
    """Escape text for troff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def quoted(text: str) -> str:
    """Quote an argument of a troff request."""
    return '"' + plain(text).replace('"', '""') + '"'


def write() -> None:
    """Write every page."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (PAGES / f"{name}.1").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
