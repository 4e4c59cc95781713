"""The ``lab`` command: finds the subcommand, runs it, and turns errors into exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from lab._errors import INTERRUPTED, LabError, UsageError, stop_code
from lab._log import complain, say
from lab._plugins import ROOMS, registered
from lab.cli.commands import Commands, load_command
from lab.cli.output import ReaderGoneError, open_standard_output
from lab.state.failure import exhausted

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Labs": {
        "up": "Bring SCENARIO up as a lab.",
        "down": "Take LAB down; only the reports of its runs remain.",
        "run": "Bring SCENARIO up, run its connectivity matrix, and take the lab down again.",
        "status": "Show the state of LAB: the journal's record, checked against what is there.",
        "list": "List the labs that are up, partly up, or left behind by killed commands.",
        "suspend": "Save the memory of LAB's machines to disk and stop them; 'lab up' "
        "resumes them.",
        "events": "Print when LAB, or each lab, was made, brought up, broken and tested.",
        "gc": "Remove what killed commands left behind, old runs and nights, and forgotten labs.",
    },
    "Test and explain": {
        "test": "Run the connectivity matrix of LAB; every cell is a pytest item.",
        "explain": "Probe DST from SRC again, and name the first thing on the path that is wrong.",
        "repair": "Restore a machine or pod of LAB, or one OBJECT on it, to the state that "
        "the lab created.",
        "capture": "Probe DST from SRC once, and show at which hop the packet was last seen.",
        "report": "Print the path of the HTML report of LAB's last run, or of RUN.",
        "diff": "Show the cells that changed between two runs, grouped by what they have in "
        "common.",
        "readiness": "Print the points of Windows Operational Readiness (KEP-2578) that RUN "
        "answers.",
        "repro": "Bring up the smallest lab that has CELL of RUN, and test that one cell in it.",
        "logs": "Print what programs on LAB, or on one MACHINE of it, have logged.",
        "gather": "Gather evidence of LAB, whatever its state, into one archive, and print "
        "its path.",
    },
    "An existing cluster": {
        "check": "Test the cluster of a kubeconfig, explain what is red, and leave it as it was.",
        "attach": "Put probe pods into the cluster of a kubeconfig, as lab NAME.",
        "detach": "Take the probe pods of LAB out of its cluster; only the reports of its runs "
        "remain.",
    },
    "Faults": {
        "fault": "Put FAULT into LAB, to see what it looks like; 'lab heal LAB' removes it.",
        "heal": "Remove every fault that 'lab fault' has put into LAB, or FAULT alone.",
    },
    "Machines": {
        "shell": "Open a shell on any machine of LAB, or in a pod.",
        "exec": "Run CMD on a node or in a pod, and exit with its code; options before CMD "
        "are lab's.",
        "ssh": "Log in to a machine of LAB over SSH, as root, or run CMD there with its exit code.",
        "ssh-config": "Print an SSH configuration for the machines of LAB, as hosts LAB-MACHINE.",
        "ansible-inventory": "Print an Ansible inventory (YAML) of LAB, grouped by system, "
        "kind and role.",
        "kubeconfig": "Print the administrator's kubeconfig of LAB's cluster.",
        "console": "Connect this terminal to the serial console of a machine of LAB; Ctrl-] "
        "leaves it.",
        "screenshot": "Take a picture of the screen of a machine of LAB, and print the "
        "file's path.",
    },
    "Scenarios": {
        "new": "Write a scenario to start from, NAME.yaml, with a comment for each key.",
        "plan": 'Print what "lab up SCENARIO" would do, why, and what it would cost.',
        "show": "Print the Intent of SCENARIO, or with --commands the script that applies it.",
        "graph": "Draw the topology of SCENARIO, or of LAB as it was brought up.",
        "validate": "Check scenario files; print every error as FILE:LINE:COLUMN.",
        "schema": "Print the JSON Schema of scenario files, or of what commands print as JSON.",
    },
    "Images and bundles": {
        "image": "Build and keep the disks that real machines are cloned from.",
        "bundle": "Keep the Kubernetes programs and container images that clusters are made from.",
    },
    "CI": {
        "nightly": "Bring up, test and take down each SCENARIO; all shipped ones by default.",
    },
    "This machine": {
        "doctor": "Check this machine and every hypervisor, and say how to fix what is wrong.",
        "inventory": "Check or show the inventory: hypervisors, images, mirrors, secrets.",
        "completion": 'Print a completion script; for bash: eval "$(lab completion bash)".',
    },
}
"""Subcommands and their summaries, as ``lab --help`` groups them."""
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
_MODULES = {
    "suspend": "down",
    "list": "list_labs",
    "diff": "report",
    "heal": "fault",
    "exec": "shell",
    "screenshot": "console",
    "schema": "show",
    "completion": "complete",
}
"""The modules of this package that have the commands which no module is named after."""

_WORDS = {
    "up": "apply create deploy provision start",
    "new": "init template generate",
    "down": "clean cleanup delete destroy remove rm",
    "suspend": "halt pause stop",
    "status": "inspect info",
    "list": "get ls ps",
    "gc": "prune",
    "test": "verify",
    "explain": "diagnose why",
    "capture": "pcap tcpdump",
    "report": "results",
    "diff": "compare",
    "repro": "reproduce",
    "logs": "log journal",
    "gather": "collect dump export",
    "events": "history watch",
    "fault": "break",
    "heal": "cure",
    "repair": "fix restore",
    "shell": "bash connect enter",
    "ssh": "login",
    "graph": "draw diagram topology",
    "validate": "lint",
    "image": "images",
    "nightly": "night",
    "inventory": "config hosts",
}
ELSEWHERE = {word: name for name, words in _WORDS.items() for word in words.split()}
"""Command names of other tools, and the command of ``lab`` that does the same."""

_OWNERS, _OTHERS_MAY_WRITE = 0o700, 0o022
"""Permissions that override the caller's umask: the user may use what ``lab`` writes, and no one
else may write it. Some CI runners have umask 000, and world-writable directories are refused."""
_SHOWN = 60
"""Characters shown of a name that is too long for a file."""


class Lazy(Commands):
    """A group that imports a command only when it is used."""

    elsewhere = ELSEWHERE
    prefix = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every subcommand, in the order a lab is used; then those of others' plug-ins."""
        del ctx
        missing = {plugin.name for plugin in registered("commands") if not plugin.installed}
        return [*(name for name in COMMANDS if name not in missing), *self._others()]

    def _others(self) -> list[str]:
        return [name for name in self.plugged() if name not in COMMANDS]

    def grouped(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        """Our commands by what they are for, those of other plug-ins, and what is missing."""
        shown = self.list_commands(ctx)
        groups = {
            heading: {name: summary for name, summary in group.items() if name in shown}
            for heading, group in GROUPS.items()
        }
        groups["Plug-ins"] = dict(self.summaries(ctx, self._others()))
        groups["Not installed"] = {room.title: room.command for room in ROOMS if not room.installed}
        return {heading: group for heading, group in groups.items() if group}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand; None if the name is unknown."""
        del ctx
        if plugin := self.plugin(cmd_name):
            return load_command(plugin)
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"lab.cli.{_MODULES.get(cmd_name, cmd_name.replace('-', '_'))}")
        commands = (member for member in vars(module).values() if isinstance(member, click.Command))
        return next(member for member in commands if member.name == cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; a path that is too long or gone is wrong usage."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG and error.filename is not None:
                raise UsageError(
                    f"looking for '{os.fsdecode(error.filename)[:_SHOWN]}...'",
                    "the file name is too long",
                    "use a shorter name or path",
                ) from error
            if _is_directory_deleted():
                raise UsageError(
                    "finding the current directory", "it has been deleted", "cd somewhere else"
                ) from error
            raise


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hybridlab", prog_name="lab")
def command() -> None:
    """Build a Linux and Windows Kubernetes lab, and say cell by cell what reaches what.

    \b
      lab up overlay      bring the scenario "overlay" up
      lab test overlay    run its connectivity matrix
      lab down overlay    take it down; only the reports of its runs stay

    Results go to standard output, progress messages to standard error.

    \b
    Exit codes: 0 success; 1 cells failed; 2 wrong usage or configuration;
    3 the lab is broken; 4 this machine cannot do what is asked;
    70 a bug in lab itself, with a log that has its traceback.
    """  # noqa: D301  \b tells click not to rewrap


def _usage_error(error: click.ClickException) -> UsageError:
    """The error of click as one of ours."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx else "lab"
    return UsageError(path, error.format_message().rstrip("."), f"{path} --help")


def _is_directory_deleted() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  no path is wanted
    except FileNotFoundError:
        return True
    return False


_beside: list[int] = []
"""The exit code of each defect that :func:`report_beside` has reported."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``lab`` and end the process with its exit code."""
    _beside.clear()
    os.umask(os.umask(_OTHERS_MAY_WRITE) & ~_OWNERS | _OTHERS_MAY_WRITE)
    _prepare_streams()
    code: object = None
    try:
        code = command.main(arguments, prog_name="lab", standalone_mode=False)
        sys.stdout.flush()  # while a failure can still be reported
    except ReaderGoneError:
        pass
    except LabError as error:
        sys.exit(_complain_of_cause(error))
    except click.ClickException as error:
        complain(_usage_error(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before click handles it
        sys.exit(INTERRUPTED)
    except click.Abort as stop:  # click raises it for a KeyboardInterrupt
        say("interrupted")
        sys.exit(stop_code(stop))
    except Exception as error:  # noqa: BLE001  a bug, or a resource that is used up
        sys.exit(_report(error))
    sys.exit((code if isinstance(code, int) else 0) or max(_beside, default=0))


def report_beside(failed: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
    """Log an exception in a thread, in a finaliser or at exit, instead of printing its traceback.

    A command that otherwise succeeds exits with the code of a defect; at exit it is too late
    for that.
    """
    if isinstance(failed.exc_value, Exception):
        _beside.append(_report(failed.exc_value))


def _complain_of_cause(error: LabError) -> int:
    """Say why a command ended; return the exit code.

    A file that cannot be read is not the user's mistake if a resource of the machine is used up.
    """
    shortage = exhausted(error, error.doing) if isinstance(error, UsageError) else None
    complain(shortage or error)
    return (shortage or error).exit_code


def _report(error: Exception) -> int:
    """Say why an unexpected exception ended the command; return the exit code."""
    refusal = exhausted(error, f"running '{' '.join(['lab', *sys.argv[1:2]])}'")
    if refusal is not None:
        complain(refusal)
        return refusal.exit_code
    from lab.cli import defect

    defect.report(error)
    return defect.EXIT_CODE


def _prepare_streams() -> None:
    """Let both streams print every text, also if the caller closed them (``>&-``)."""
    open_standard_output()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  for good
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  for good
