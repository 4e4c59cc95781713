"""Whether a hypervisor's acceleration really works: the firmware of a tiny guest has to run there.

An openable /dev/kvm, and a QEMU that offers KVM, prove nothing: some hypervisors pass on a KVM on
which no guest runs. The guest has no disk and no network; its firmware (SeaBIOS) says on the
serial port how far it comes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection

if TYPE_CHECKING:
    import libvirt

Kind = Literal["kvm", "tcg"]

_SECONDS: dict[Kind, float] = {"kvm": 20.0, "tcg": 60.0}
"""Idle, TCG takes 0.6 s; a busy host takes longer."""
_BEGIN, _END = b"SeaBIOS", b"No bootable device"
"""What the firmware says first, and last."""
_MEMORY_MIB = 32
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


def probe(connected: libvirt.virConnect, hypervisor: Hypervisor) -> Trial:
    """How guests are to be run there.

    Takes one to three seconds where nothing is wrong; what it finds holds until the hypervisor
    is started anew. Where the inventory says ``kvm`` or ``tcg`` that is taken on trust.

    Raises
    ------
    PreflightError
        When no guest can be run at all.

    """
    if hypervisor.acceleration != "auto":
        return Trial(hypervisor.acceleration, works=True, detail="as the inventory says")
    tried = tried_on(connected)
    if tried[-1].works:
        return tried[-1]
    raise PreflightError(
        f"starting a tiny guest on hypervisor '{hypervisor.name}'",
        "; ".join(one.detail for one in tried),
        f"see its QEMU's log there, in /var/log/libvirt/qemu; {KVM_CURE}",
    )


def tried_on(connected: libvirt.virConnect) -> tuple[Trial, ...]:
    """Try KVM, and TCG where that does not work."""
    kvm = _try(connected, "kvm")
    return (kvm,) if kvm.works else (kvm, _try(connected, "tcg"))


def document(kind: Kind) -> str:
    """The tiny guest's domain: as the machines of labs are, but for its size.

    ``useserial`` has SeaBIOS write on the serial port (libvirt 9.0 gives QEMU ``graphics=off``).
    """
    return f"""\
<domain type="{"kvm" if kind == "kvm" else "qemu"}">
  <name>hybridlab-trial-{uuid4().hex[:8]}</name>
  <title>a tiny guest of "lab doctor"; it ends by itself</title>
  <memory unit="MiB">{_MEMORY_MIB}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="q35">hvm</type>
    <bootmenu enable="no"/>
    <bios useserial="yes"/>
  </os>
  <features><acpi/><apic/></features>
  <cpu mode="{"host-passthrough" if kind == "kvm" else "maximum"}"/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <controller type="usb" model="none"/>
    <serial type="pty"><target port="0"/></serial>
    <console type="pty"><target type="serial" port="0"/></console>
    <video><model type="none"/></video>
    <memballoon model="none"/>
  </devices>
</domain>
"""


def _try(connected: libvirt.virConnect, kind: Kind) -> Trial:
    """Start the guest and hear how far its firmware comes."""
    library = connection.load()
    flags = library.VIR_DOMAIN_START_AUTODESTROY | library.VIR_DOMAIN_START_PAUSED
    try:
        guest = connected.createXML(document(kind), flags)
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
        return not runs or _END in said

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
    return judged(kind, bytes(said), how)


def judged(kind: Kind, said: bytes, how: str) -> Trial:
    """What came of a guest that has said this.

    Parameters
    ----------
    how
        How it ended, for one that did not come to its firmware's end.

    """
    if _END in said:
        return Trial(kind, works=True, detail=f"a tiny guest runs with {kind.upper()}")
    where = "its firmware begins" if _BEGIN in said else "it does not even begin to boot"
    detail = f"no guest runs with {kind.upper()}: {where}, {how}"
    return Trial(kind, works=False, detail=detail)
