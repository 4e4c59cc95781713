"""A click group that lists its subcommands in whole sentences and suggests the nearest name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from lab._errors import UsageError
from lab._log import say
from lab._plugins import Plugin, plugins, registered

_WHOLE = 1000
"""Longer than any summary, in characters."""


class Commands(click.Group):
    """A group that shows whole summaries and, for an unknown command, suggests one."""

    prefix: str | None = None
    """What precedes the names of its commands among the plug-ins: ``"image."``; None: the group's
    name.
    """
    elsewhere: Mapping[str, str] = {}
    """Command names of other tools to the command of this group that does the same."""

    def plugged(self) -> list[str]:
        """Names of its commands that plug-ins have."""
        prefix = f"{self.name}." if self.prefix is None else self.prefix
        names = (plugin.name for plugin in plugins("commands"))
        begun = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return [name for name in begun if "." not in name]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument, print the help as wrong usage."""
        if not args and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(click.UsageError.exit_code)
        return super().parse_args(ctx, args)

    def plugin(self, name: str) -> Plugin | None:
        """The plug-in that has the command of this name, even if it is not installed."""
        whole = f"{self.name}.{name}" if self.prefix is None else f"{self.prefix}{name}"
        return next((plugin for plugin in registered("commands") if plugin.name == whole), None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Its own commands in the order of the module, then those of plug-ins."""
        return [*super().list_commands(ctx), *self.plugged()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command; None if the name is unknown."""
        own = super().get_command(ctx, cmd_name)
        plugin = None if own else self.plugin(cmd_name)
        return load_command(plugin) if plugin else own

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every subcommand with its whole summary, wrapped over several lines."""
        groups = self.grouped(ctx)
        width = max((len(name) for group in groups.values() for name in group), default=0)
        for heading, group in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in group.items()])

    def grouped(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        """Heading to the names and summaries of its commands."""
        return {"Commands": self.summaries(ctx, self.list_commands(ctx))}

    def summaries(self, ctx: click.Context, names: Iterable[str]) -> Mapping[str, str]:
        """The first sentence of each command's help."""
        return {
            name: command.get_short_help_str(limit=_WHOLE)
            for name in names
            if (command := self.get_command(ctx, name))
        }

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand or suggest the nearest one; refuse empty arguments."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            known = self.list_commands(ctx)
            meant = self.elsewhere.get(args[0])
            near = [meant] if meant else difflib.get_close_matches(args[0], known, n=1)
            path = ctx.command_path
            hint = f'; did you mean "{path} {near[0]}"?' if near else ""
            raise click.UsageError(f'there is no command "{args[0]}"{hint}', ctx) from None
        if command and not ctx.resilient_parsing:
            _refuse_empty(command, ctx, name, rest)
        return name, command, rest


def load_command(plugin: Plugin) -> click.Command:
    """The command of a plug-in.

    Raises UsageError when it is not installed, or is no command.
    """
    action = f"running 'lab {plugin.name}'"
    if not plugin.installed:
        raise UsageError(action, f"'{plugin.module}' is not installed", "install hybridlab again")
    command = plugin.load()
    if not isinstance(command, click.Command):
        raise UsageError(
            action,
            f"{plugin.module}:{plugin.attribute} of {plugin.distribution} is not a click command",
            f"uninstall {plugin.distribution}, or ask its authors",
        )
    return command


def _refuse_empty(
    command: click.Command, ctx: click.Context, name: str | None, args: Sequence[str]
) -> None:
    """Refuse ``--node ''``: an unset variable of a script must not mean the default.

    Checked before click converts values: it turns an empty path into ".". Arguments that are
    passed on to another command may be empty.

    Raises click.BadParameter if an option or an argument of the command is an empty string.
    """
    own = click.Context(command, ctx, name, **command.context_settings)
    try:
        given, _, order = command.make_parser(own).parse_args(list(args))
    except click.UsageError:  # reported when the command itself parses them
        return
    for param in order:
        if given.get(param.name or "") == "":
            hint = "write one" if param.required else "write one, or omit it"
            raise click.BadParameter(f"the value is empty; {hint}.", own, param)
