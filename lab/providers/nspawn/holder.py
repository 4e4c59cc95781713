"""The holder of a lab of system containers: the process that all its machines end with."""

from __future__ import annotations

from pathlib import Path

from lab.providers.netns import holders
from lab.providers.netns.entry import HolderEntry, HolderKind, HolderProcess
from lab.providers.nspawn import cgroups
from lab.providers.nspawn.cgroups import HOLDER, ROOT, Hierarchies
from lab.providers.provider import LabHandle

KIND = HolderKind("hybridlab-containers", ("mnt", "net"))
_DIGITS = 8
_DEVICES = (
    *("char-* m", "block-* m", "/dev/console rwm", "char-pts rwm", "/dev/net/tun rwm"),
    "/dev/kmsg r",
)
"""What :data:`cgroups.DEVICES` has and systemd's ``closed`` has not."""


def find(lab: LabHandle) -> HolderProcess | None:
    """The caller's holder of the lab; None while there is none."""
    return holders.find_holder(lab, KIND)


def entry(lab: LabHandle) -> HolderEntry:
    """The way into the lab's holder.

    Raises BrokenError if the lab has none.
    """
    return holders.enter_holder(lab, KIND)


def ensure(lab: LabHandle, python: str) -> HolderEntry:
    """The way into the lab's holder, which is started if there is none.

    Raises PreflightError when the kernel refuses it its namespaces, with the fix. Raises
    BrokenError when it ends without a word.
    """
    if find(lab) is not None:
        return entry(lab)
    made = holders.start_holder(lab, python, KIND, before=_in_scope(lab))
    if cgroups.unified():
        own = _group(made.pid)
        (own / HOLDER).mkdir(exist_ok=True)
        (own / HOLDER / "cgroup.procs").write_text(str(made.pid), encoding="ascii")
    return made


def _in_scope(lab: LabHandle) -> tuple[str, ...]:
    """Where systemd has the control groups: the words that have it delegate one to the lab."""
    if not Path("/run/systemd/system").is_dir():
        return ()
    unit = f"--unit=hybridlab-{lab.name}-{lab.token[:_DIGITS]}"
    devices = (f"DeviceAllow={one}" for one in _DEVICES)
    properties = ("Delegate=yes", "DevicePolicy=closed", *devices)
    return (
        *("systemd-run", "--quiet", "--scope", "--collect", unit),
        *(f"--property={one}" for one in properties),
        "--",
    )


def hierarchies(pid: int) -> Hierarchies:
    """The control groups below which the machines of a holder have theirs."""
    if not cgroups.unified():
        return cgroups.hierarchies()
    own = _group(pid)
    return Hierarchies(True, (own.parent if own.name == HOLDER else own,))


def _group(pid: int) -> Path:
    line = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().rpartition("::")[2]
    return ROOT / line.lstrip("/")
