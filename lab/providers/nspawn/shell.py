"""A shell on a system container: commands of this machine that enter the container's namespaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lab._errors import BrokenError
from lab.guests.local import LocalShell
from lab.providers.nspawn.cgroups import OUTSIDE
from lab.providers.nspawn.start_script import DROPPED

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_JOIN = """while [ "$1" != -- ]; do
    echo $$ >"$1/cgroup.procs" || exit
    shift
done
shift
exec "$@"
"""


def enter(leader: int, groups: Sequence[Path]) -> tuple[str, ...]:
    """The words before a command that has to run in a container, with no more rights than it has.

    Parameters
    ----------
    leader
        Process id of the container's systemd.
    groups
        The machine's control group in each hierarchy.

    """
    lost = ",".join(f"-{one.removeprefix('CAP_').lower()}" for one in DROPPED)
    return (
        *("sh", "-c", _JOIN, "sh", *(str(one / OUTSIDE) for one in groups), "--"),
        *("nsenter", "--target", str(leader)),
        *("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--"),
        *("env", "--ignore-environment", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8"),
        "TERM=xterm-256color",
        *("setpriv", f"--bounding-set={lost}", "--"),
    )


def container_shell(
    name: str, leader: Callable[[], int | None], groups: Callable[[], Sequence[Path]]
) -> LocalShell:
    """A shell on the container.

    Parameters
    ----------
    name
        The machine's, for messages.
    leader
        Finds its systemd; None while it is off. It is another process after a reboot.
    groups
        Finds its control group in each hierarchy.

    """

    def inside() -> tuple[str, ...]:
        process = leader()
        if process is None:
            raise BrokenError(
                f"entering machine '{name}'", "it is switched off", "'lab up' switches it on"
            )
        return enter(process, groups())

    return LocalShell(become=False, inside=inside, machine=f"machine '{name}'")
