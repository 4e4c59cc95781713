"""What a lab's objects on a hypervisor are called. Pure.

Every name begins with the lab's own and four digits of its token, so that ``virsh list`` reads
well and two controllers may have labs of one name on one hypervisor. Names are for people:
whose an object is stands in its metadata.
"""

from __future__ import annotations

from uuid import uuid5

from lab.providers.machines.management import SPACE
from lab.providers.provider import LabHandle

MANAGEMENT = "mgmt"
"""The network by which the controller reaches the machines."""
IMAGES_POOL = "hybridlab-images"
_PREFIX_DIGITS = 4
_BRIDGE_DIGITS = 8
"""Of 15 characters that Linux allows, two are taken before and up to five after."""


def prefix(lab: LabHandle) -> str:
    """The beginning of the name of all that belongs to the lab: ``overlay-3fa9``."""
    return f"{lab.name}-{lab.token[:_PREFIX_DIGITS]}"


def domain(lab: LabHandle, machine: str) -> str:
    """The domain of a machine: ``overlay-3fa9-worker1``."""
    return f"{prefix(lab)}-{machine}"


def network(lab: LabHandle, segment: str) -> str:
    """The network of a segment: ``overlay-3fa9-cluster``."""
    return f"{prefix(lab)}-{segment}"


def pool(lab: LabHandle) -> str:
    """The lab's storage pool."""
    return prefix(lab)


def bridge(lab: LabHandle, segment: str) -> str:
    """The bridge of a segment, at most 15 characters: ``hl3fa9c2d1-clus``."""
    return f"hl{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def scratch_bridge(name: str) -> str:
    """The bridge of a scratch network, whose name ends with eight hex digits of its own."""
    return f"hb{name[-_BRIDGE_DIGITS:]}"


def carrier(lab: LabHandle, segment: str) -> str:
    """The tunnel end of a segment, on its bridge: ``hx3fa9c2d1-clus``."""
    return f"hx{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def is_carrier(device: str, token: str) -> bool:
    """Whether a device has the name of a tunnel end of the lab with that token."""
    return device.startswith(f"hx{token[:_BRIDGE_DIGITS]}-")


def uuid(lab: LabHandle, kind: str, name: str) -> str:
    """The same in every run, so that defining an object twice is defining it once."""
    return str(uuid5(SPACE, f"{lab.token}/{kind}/{name}"))
