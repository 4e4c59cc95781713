"""What a lab's objects on a hypervisor are called, and whose they are. Pure.

Every name begins with the lab's own and four digits of its token, so that ``virsh list`` reads
well and two controllers may have labs of one name on one hypervisor. Names are for people: the
metadata says whose an object is. That is a claim: whoever may write to a hypervisor's libvirt can
write anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid5
from xml.etree import ElementTree as ET

from lab._errors import BrokenError
from lab.providers.machines.management import SPACE
from lab.providers.provider import LabHandle

MANAGEMENT = "mgmt"
"""The network by which the controller reaches the machines."""
IMAGES_POOL = "hybridlab-images"
_PREFIX_DIGITS = 4
_BRIDGE_DIGITS = 8
"""Of 15 characters that Linux allows, two are taken before and up to five after."""


def name_prefix(lab: LabHandle) -> str:
    """The beginning of the name of all that belongs to the lab: ``overlay-3fa9``."""
    return f"{lab.name}-{lab.token[:_PREFIX_DIGITS]}"


def domain_name(lab: LabHandle, machine: str) -> str:
    """The domain of a machine: ``overlay-3fa9-worker1``."""
    return f"{name_prefix(lab)}-{machine}"


def network_name(lab: LabHandle, segment: str) -> str:
    """The network of a segment: ``overlay-3fa9-cluster``."""
    return f"{name_prefix(lab)}-{segment}"


def pool_name(lab: LabHandle) -> str:
    """The lab's storage pool."""
    return name_prefix(lab)


def bridge_name(lab: LabHandle, segment: str) -> str:
    """The bridge of a segment, at most 15 characters: ``hl3fa9c2d1-clus``."""
    return f"hl{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def scratch_bridge_name(name: str) -> str:
    """The bridge of a scratch network, whose name ends with eight hex digits of its own."""
    return f"hb{name[-_BRIDGE_DIGITS:]}"


def tunnel_name(lab: LabHandle, segment: str) -> str:
    """The tunnel end of a segment, on its bridge: ``hx3fa9c2d1-clus``."""
    return f"hx{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def is_tunnel_name(device: str, token: str) -> bool:
    """Whether a device has the name of a tunnel end of the lab with that token."""
    return device.startswith(f"hx{token[:_BRIDGE_DIGITS]}-")


def object_uuid(lab: LabHandle, kind: str, name: str) -> str:
    """The same in every run, so that defining an object twice is defining it once."""
    return str(uuid5(SPACE, f"{lab.token}/{kind}/{name}"))


NAMESPACE = "urn:hybridlab:lab:1"
_TAG = f"{{{NAMESPACE}}}lab"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who made an object, for which lab, and until when."""

    lab: str
    token: str
    directory: Path
    """The lab's directory on the controller."""
    controller: str
    """See :func:`lab.providers.libvirt.connection.controller_id`."""
    owner: str
    """A person or job, for people to read."""
    created: float
    """Seconds since 1970."""
    expires: float | None = None
    """Seconds since 1970, after which anyone may collect it."""
    machine: str = ""
    """Name of the machine; empty for a network."""
    made_from: str = ""
    """Hash of all that the machine was made from; another one asks for another machine."""

    def name(self) -> str:
        """Whose it is, as a mark says it of another controller's object."""
        return f"{self.owner} (controller {self.controller})"


def owner_xml(owner: Owner) -> str:
    """The metadata element, to be put between ``<metadata>`` and ``</metadata>``."""
    ET.register_namespace("hybridlab", NAMESPACE)
    element = ET.Element(
        _TAG,
        {
            "name": owner.lab,
            "token": owner.token,
            "directory": str(owner.directory),
            "controller": owner.controller,
            "owner": owner.owner,
            "created": f"{owner.created:.3f}",
        },
    )
    if owner.expires is not None:
        element.set("expires", f"{owner.expires:.3f}")
    if owner.machine:
        element.set("machine", owner.machine)
        element.set("made-from", owner.made_from)
    return ET.tostring(element, encoding="unicode")


def read_owner(document: str) -> Owner | None:
    """Whose the object with this XML is; None for a stranger's."""
    element = ET.fromstring(document).find(f"metadata/{_TAG}")  # noqa: S314  libvirt's own document
    if element is None:
        return None
    found = element.attrib
    try:
        return Owner(
            lab=found["name"],
            token=found["token"],
            directory=Path(found["directory"]),
            controller=found["controller"],
            owner=found["owner"],
            created=_moment(found["created"]),
            expires=_moment(found["expires"]) if "expires" in found else None,
            machine=found.get("machine", ""),
            made_from=found.get("made-from", ""),
        )
    except (KeyError, ValueError):
        return None


def _moment(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):  # a mark that no lab can have
        raise ValueError(text)
    return found


def require_owner(document: str, lab: LabHandle, what: str) -> Owner:
    """Whose the object with this XML is, which must be the lab's; ``what`` names it.

    Raises BrokenError when it is a stranger's, or another lab's.
    """
    owner = read_owner(document)
    if owner is None or owner.token != lab.token:
        raise BrokenError(
            f"looking for {what}",
            "one of that name exists and is not this lab's",
            "give the lab another name with --name",
        )
    return owner
