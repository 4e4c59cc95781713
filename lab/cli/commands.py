"""A command that has subcommands: how it lists them, and what it says to one that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

_WHOLE = 1000
"""More characters than a sentence has."""


class Commands(click.Group):
    """A group that shows whole sentences, and names the command that is meant or the nearest."""

    groups: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Names and summaries of commands by their heading; empty for one heading and their help."""
    elsewhere: Mapping[str, str] = {}
    """Words of other tools, and the command that is meant."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every subcommand with the whole of its sentence, over several lines if need be."""
        groups = self.groups or {
            "Commands": {
                name: found.get_short_help_str(limit=_WHOLE)
                for name in self.list_commands(ctx)
                if (found := self.get_command(ctx, name))
            }
        }
        width = max((len(name) for group in groups.values() for name in group), default=0)
        for heading, group in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in group.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand, or say which one is nearest; refuse empty words for it."""
        try:
            name, found, rest = super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            known = self.list_commands(ctx)
            meant = self.elsewhere.get(args[0])
            near = [meant] if meant else difflib.get_close_matches(args[0], known, n=1)
            path = ctx.command_path
            hint = f'did you mean "{path} {near[0]}"?' if near else f'see "{path} --help"'
            raise click.UsageError(f'there is no command "{args[0]}"; {hint}', ctx) from None
        if found and not ctx.resilient_parsing:
            _refuse_empty(found, ctx, name, rest)
        return name, found, rest


def _refuse_empty(
    command: click.Command, ctx: click.Context, name: str | None, args: Sequence[str]
) -> None:
    """Refuse ``--node ''``: a name that a script has lost is not the same as none.

    Looked for before click makes values of words: of an empty path it makes ".". Words that are
    passed on, as those of a command for a pod, may be empty.

    Raises
    ------
    click.BadParameter
        If an option or an argument of the command is an empty word.

    """
    own = click.Context(command, ctx, name, **command.context_settings)
    try:
        given, _, order = command.make_parser(own).parse_args(list(args))
    except click.UsageError:  # said when the command parses them itself
        return
    for param in order:
        if given.get(param.name or "") == "":
            hint = "write one" if param.required else "write one, or leave it out"
            raise click.BadParameter(f"an empty word; {hint}.", own, param)
