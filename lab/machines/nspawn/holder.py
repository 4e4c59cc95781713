"""The holder of a lab of system containers; all machines end with it."""

from __future__ import annotations

from pathlib import Path

from lab.machines.nspawn import cgroups
from lab.machines.nspawn.cgroups import HOLDER, ROOT, Hierarchies
from lab.providers.netns import holders
from lab.providers.netns.holders import HolderEntry, HolderKind, HolderProcess
from lab.providers.provider import LabHandle

KIND = HolderKind("hybridlab-containers", ("mnt", "net"))
_DIGITS = 8
_DEVICES = (
    *("char-* m", "block-* m", "/dev/console rwm", "char-pts rwm", "/dev/net/tun rwm"),
    "/dev/kmsg r",
)
"""The part of :data:`cgroups.DEVICES` that systemd's ``closed`` policy does not allow."""


def find(lab: LabHandle) -> HolderProcess | None:
    """The caller's holder of the lab; None if there is none."""
    return holders.find_holder(lab, KIND)


def entry(lab: LabHandle) -> HolderEntry:
    """The entry into the lab's holder.

    Raises BrokenError if the lab has none.
    """
    return holders.enter_holder(lab, KIND)


def ensure(lab: LabHandle, python: str) -> HolderEntry:
    """The entry into the lab's holder; starts one if there is none.

    Raises PreflightError with the fix when the kernel refuses its namespaces. Raises BrokenError
    when it exits without output.
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
    """The command prefix that makes systemd, if it runs, delegate a control group to the lab."""
    if not Path("/run/systemd/system").is_dir():
        return ()
    unit = f"--unit=hybridlab-{lab.name}-{lab.token[:_DIGITS]}"
    devices = (f"DeviceAllow={device}" for device in _DEVICES)
    properties = ("Delegate=yes", "DevicePolicy=closed", *devices)
    return (
        *("systemd-run", "--quiet", "--scope", "--collect", unit),
        *(f"--property={setting}" for setting in properties),
        "--",
    )


def hierarchies(pid: int) -> Hierarchies:
    """The hierarchies with the control groups of a holder's machines."""
    if not cgroups.unified():
        return cgroups.hierarchies()
    own = _group(pid)
    return Hierarchies(True, (own.parent if own.name == HOLDER else own,))


def _group(pid: int) -> Path:
    line = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().rpartition("::")[2]
    return ROOT / line.lstrip("/")
