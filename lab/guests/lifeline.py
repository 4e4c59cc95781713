"""Commands that end when whoever started them lets go: a line of shell around the command.

The command's own standard input is the first ``N`` bytes of the channel's. The rest of the
channel is its lifeline: it says nothing, and when it is closed (the channel is given up, the
connection breaks, the caller dies) the whole process group is killed.
"""

from __future__ import annotations

from collections.abc import Sequence

_FEEDER = 'echo "$$"; head -c "$0"; exec >/dev/null; while read -r _; do :; done; kill -9 "-$1"'
_HOLDER = (
    'n=$1; shift; read -r _ _ _ _ g _ <"/proc/$$/stat"; exec 3>&2 2>/dev/null; '
    f'sh -c \'{_FEEDER}\' "$n" "$g" 3>&- | '
    '{ read -r feeder; "$@" 2>&3 3>&-; code=$?; kill "$feeder"; exit "$code"; }'
)
"""``$$`` of the feeder is said before the first byte of input, so that its end can be asked for.
The group is read from /proc: behind sudo it is that of sudo."""

SUDO = ("sudo", "-n", "--")
"""``-n``: sudo that would ask for a password fails instead."""


def as_root(command: Sequence[str], *, become: bool) -> tuple[str, ...]:
    """The command as root runs it; ``become`` says whether the user is anybody else."""
    return (*SUDO, *command) if become else tuple(command)


def held(command: Sequence[str], stdin_bytes: int, *, become: bool) -> tuple[str, ...]:
    """The command on its lifeline. Must be started as leader of a session of its own.

    Its exit code is the command's own, 128 + N if signal N ended it, 127 where there is no such
    program.

    Parameters
    ----------
    command
        Program and arguments.
    stdin_bytes
        How many bytes are sent to it. No end of input may be sent after them.
    become
        Whether the user is not root.

    """
    return as_root(("sh", "-c", _HOLDER, "lab", str(stdin_bytes), *command), become=become)
