"""Whether a hypervisor's acceleration really works: a tiny guest is started, and must answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection, scratch, trial, volumes
from lab.providers.libvirt.trial import Kind

if TYPE_CHECKING:
    import libvirt

_SECONDS: dict[Kind, float] = {"kvm": 20.0, "tcg": 60.0}
"""Idle, TCG took 0.6 s and a KVM inside a virtual machine 2 s; a busy host takes longer."""
_CHUNK = 4096
KVM_CURE = (
    "enable VT-x or AMD-V in the host's firmware, or nested virtualisation where the host is a "
    'virtual machine; or write acceleration = "tcg", which is slow'
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one way to run guests."""

    kind: Kind
    works: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Proven:
    """The way to run guests on a hypervisor."""

    kind: Kind
    detail: str


def probe(connected: libvirt.virConnect, hypervisor: Hypervisor) -> Proven:
    """How guests are to be run there.

    Takes one to three seconds where nothing is wrong; what it finds holds until the hypervisor
    is started anew. Where the inventory says ``kvm`` or ``tcg`` that is taken on trust.

    Raises
    ------
    PreflightError
        When no guest can be run at all.
    libvirt.libvirtError
        As libvirt refuses, for example a storage directory that cannot be made.

    """
    if hypervisor.acceleration != "auto":
        return Proven(hypervisor.acceleration, "as the inventory says")
    with scratch.pool(connected, hypervisor) as pool:
        tried = tried_on(connected, pool)
    for one in tried:
        if one.works:
            return Proven(one.kind, "; ".join(found.detail for found in tried))
    raise PreflightError(
        f"starting a tiny guest on hypervisor '{hypervisor.name}'",
        "; ".join(one.detail for one in tried),
        f"see its QEMU's log there, in /var/log/libvirt/qemu; {KVM_CURE}",
    )


def tried_on(connected: libvirt.virConnect, pool: libvirt.virStoragePool) -> tuple[Trial, ...]:
    """Try KVM, and TCG where that does not work, with the guest's disk in a scratch pool.

    Raises
    ------
    libvirt.libvirtError
        As libvirt refuses to make the guest's disk.

    """
    disk = volumes.write(pool, "trial.img", trial.DISK)
    kvm = _try(connected, "kvm", pool.name(), disk)
    return (kvm,) if kvm.works else (kvm, _try(connected, "tcg", pool.name(), disk))


def _try(connected: libvirt.virConnect, kind: Kind, name: str, disk: str) -> Trial:
    """Start the guest and hear how far it comes."""
    library = connection.load()
    flags = library.VIR_DOMAIN_START_AUTODESTROY | library.VIR_DOMAIN_START_PAUSED
    try:
        guest = connected.createXML(trial.domain(name, kind, disk), flags)
    except library.libvirtError as error:
        said = connection.reason(error)
        return Trial(kind, works=False, detail=f"{kind.upper()} starts no guest: {said}")
    try:
        return _listen(connected, guest, kind)
    finally:
        with suppress(library.libvirtError):  # it has ended by itself
            guest.destroy()


def _listen(connected: libvirt.virConnect, guest: libvirt.virDomain, kind: Kind) -> Trial:
    library = connection.load()
    stream = connected.newStream(library.VIR_STREAM_NONBLOCK)
    said = bytearray()

    def ended() -> bool:
        """Whether there is nothing more to wait for; the call for the state moves the stream."""
        runs = guest.state()[0] == library.VIR_DOMAIN_RUNNING
        heard = stream.recv(_CHUNK)
        while isinstance(heard, bytes) and heard:
            said.extend(heard)
            heard = stream.recv(_CHUNK)
        return not runs or trial.has_worked(bytes(said))

    how = "and then stops"
    try:
        guest.openConsole(None, stream, library.VIR_DOMAIN_CONSOLE_FORCE)
        guest.resume()
        Deadline(_SECONDS[kind]).wait(f"waiting for a tiny {kind.upper()} guest", ended, every=0.05)
    except DeadlineError:
        how = f"and says no more within {_SECONDS[kind]:g} s"
    except library.libvirtError as error:
        how = f"and then: {connection.reason(error)}"
    finally:
        with suppress(library.libvirtError):  # the guest has gone, and the stream with it
            stream.abort()
    if trial.has_worked(bytes(said)):
        return Trial(kind, works=True, detail=f"a tiny guest runs with {kind.upper()}")
    where = trial.stopped_at(bytes(said))
    return Trial(kind, works=False, detail=f"no guest runs with {kind.upper()}: {where}, {how}")
