"""A tiny guest that shows whether an accelerator really works. Pure.

An openable /dev/kvm, and a QEMU that offers KVM, prove nothing: some hypervisors pass on a KVM
that runs no usual kernel. So a boot sector is run that does what kernels do. It has no network,
one small disk, and says on its serial port how far it has come.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Literal
from xml.sax.saxutils import quoteattr

Kind = Literal["kvm", "tcg"]

_SECTOR = b64decode(
    "6gV8AAD6/DHAjtiOwI7QvAB8sFK6+APu5JIMAiT+5pIPARaQfQ8gwGaDyAEPIsDqNHwIAGa4EACO2I7AjtCwUGa6+APu"
    "DyDAg+Dzg8gCDyLAsEZmuvgD7tvj2ejZ6N7B2x0AYAAAgz0AYAAAAnV+sFNmuvgD7g8g4A0gBgAADyLguBUAAADyDyrA"
    "8g9YwPIPLcCD+Cp1VrBMZrr4A+6/ABAAAA8i3zHAuQAMAADzq8cFABAAAAMgAADHBQAgAAADMAAAxwUAMAAAgwAAALmA"
    "AADADzINAAEAAA8wDyDADQAAAIAPIsDq8HwAABgA9Ov9ZrgQAI7YjsCO0LwAfAAAMcAPorBUZrr4A+6/gFAAAMcHWX0Y"
    "AMdHBACOAABIx0cIAAAAAA8BHCWWfQAAsDbmQ7Cp5kCwBOZAsP7mITHb+/SD+wNy+vq+Y30AALkGAAAAZrr4A/Nu9Ov9"
    "/8NQsCDmIFhIz3dvcmtzCg8fgAAAAAAAAAAAAAAAAP//AAAAms8A//8AAACSzwD//wAAAJqvAB8AcH0AAP8AAFA="
)
"""``programs/trial.S``, assembled; a test assembles it again."""
_SECTOR_BYTES = 512
_DISK_BYTES = 1 << 20
"""SeaBIOS boots from no disk smaller than a cylinder, 504 KiB."""
_BOOT_MARK = b"\x55\xaa"
DISK = (_SECTOR.ljust(_SECTOR_BYTES - 2, b"\0") + _BOOT_MARK).ljust(_DISK_BYTES, b"\0")
"""The content of the guest's disk."""

STAGES = {
    "R": "real mode",
    "P": "protected mode",
    "F": "floating point",
    "S": "vector instructions",
    "L": "long mode",
    "T": "the timer's interrupt",
}
"""What the guest tries, by the letter it says before it tries."""
_WORKS = "works"
MEMORY_MIB = 32


def has_worked(said: bytes) -> bool:
    """Whether the guest has come to its end."""
    return _WORKS.encode() in said


def stopped_at(said: bytes) -> str:
    """Where a guest is that has said this and not come to its end."""
    letters = [letter for letter in said.decode("ascii", "replace") if letter in STAGES]
    return (
        f"it comes as far as {STAGES[letters[-1]]}" if letters else "it does not even begin to boot"
    )


def domain(name: str, kind: Kind, disk: str) -> str:
    """The document of the guest: as the machines of labs are, but for its size."""
    cpu = "host-passthrough" if kind == "kvm" else "maximum"
    return f"""\
<domain type="{"kvm" if kind == "kvm" else "qemu"}">
  <name>{name}</name>
  <title>a tiny guest of "lab doctor"; it ends by itself</title>
  <memory unit="MiB">{MEMORY_MIB}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="q35">hvm</type>
    <boot dev="hd"/>
  </os>
  <features><acpi/><apic/></features>
  <cpu mode="{cpu}"/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <disk type="file" device="disk">
      <driver name="qemu" type="raw"/>
      <source file={quoteattr(disk)}/>
      <target dev="vda" bus="virtio"/>
      <readonly/>
    </disk>
    <controller type="usb" model="none"/>
    <serial type="pty"><target port="0"/></serial>
    <console type="pty"><target type="serial" port="0"/></console>
    <video><model type="none"/></video>
    <memballoon model="none"/>
  </devices>
</domain>
"""
