"""Names and ownership marks of a lab's objects on a hypervisor. Pure.

Every name begins with the lab's name and four digits of its token, so that ``virsh list`` is
readable and two controllers may have labs with the same name on one hypervisor. Names are for
people; the metadata says who owns an object. It proves nothing: anybody with write access to the
hypervisor's libvirt can write any metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid5
from xml.etree import ElementTree as ET

from lab._errors import BrokenError
from lab.machines.management import SPACE
from lab.providers.provider import LabHandle

MANAGEMENT = "mgmt"
"""The network over which the controller reaches the machines."""
IMAGES_POOL = "hybridlab-images"
_PREFIX_DIGITS = 4
_BRIDGE_DIGITS = 8
"""Linux allows 15 characters; two precede the digits and up to five follow."""


def name_prefix(lab: LabHandle) -> str:
    """The prefix of the names of all the lab's objects, and its pool's name: ``overlay-3fa9``."""
    return f"{lab.name}-{lab.token[:_PREFIX_DIGITS]}"


def domain_name(lab: LabHandle, machine: str) -> str:
    """The domain of a machine: ``overlay-3fa9-worker1``."""
    return f"{name_prefix(lab)}-{machine}"


def network_name(lab: LabHandle, segment: str) -> str:
    """The network of a segment: ``overlay-3fa9-cluster``."""
    return f"{name_prefix(lab)}-{segment}"


def bridge_name(lab: LabHandle, segment: str) -> str:
    """The bridge of a segment, at most 15 characters: ``hl3fa9c2d1-clus``."""
    return f"hl{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def scratch_bridge_name(name: str) -> str:
    """The bridge of a scratch network, whose name ends with eight hex digits."""
    return f"hb{name[-_BRIDGE_DIGITS:]}"


def tunnel_name(lab: LabHandle, segment: str) -> str:
    """The tunnel end of a segment, on its bridge: ``hx3fa9c2d1-clus``."""
    return f"hx{lab.token[:_BRIDGE_DIGITS]}-{segment[:4]}"


def is_tunnel_name(device: str, token: str) -> bool:
    """True if the device name is that of a tunnel end of the lab with that token."""
    return device.startswith(f"hx{token[:_BRIDGE_DIGITS]}-")


def object_uuid(lab: LabHandle, kind: str, name: str) -> str:
    """An object's UUID; the same in every run, so that defining it again changes nothing."""
    return str(uuid5(SPACE, f"{lab.token}/{kind}/{name}"))


NAMESPACE = "urn:hybridlab:lab:1"
_TAG = f"{{{NAMESPACE}}}lab"


@dataclass(frozen=True, slots=True)
class Owner:
    """An ownership mark: who created an object, for which lab, and until when."""

    lab: str
    token: str
    directory: Path
    """The lab's directory on the controller."""
    controller: str
    """See :func:`lab.machines.libvirt.connection.controller_id`."""
    owner: str
    """A person or job; human-readable."""
    created: float
    """Seconds since 1970."""
    expires: float | None = None
    """Seconds since 1970; afterwards anybody may collect it."""
    machine: str = ""
    """Name of the machine; empty for a network."""
    made_from: str = ""
    """Hash of the machine's recipe; if it differs, the machine must be rebuilt."""

    def name(self) -> str:
        """The owner's name in marks of another controller's objects."""
        return f"{self.owner} (controller {self.controller})"


def owner_xml(owner: Owner) -> str:
    """The element to put between ``<metadata>`` and ``</metadata>``."""
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
    """The ownership mark in an object's XML; None if it has none."""
    element = ET.fromstring(document).find(f"metadata/{_TAG}")  # noqa: S314  libvirt's own document
    return None if element is None else read_facts(element.attrib)


def read_facts(facts: Mapping[str, str]) -> Owner | None:
    """The ownership mark with these attributes; None if some are missing or wrong."""
    try:
        return Owner(
            lab=facts["name"],
            token=facts["token"],
            directory=Path(facts["directory"]),
            controller=facts["controller"],
            owner=facts["owner"],
            created=_moment(facts["created"]),
            expires=_moment(facts["expires"]) if "expires" in facts else None,
            machine=facts.get("machine", ""),
            made_from=facts.get("made-from", ""),
        )
    except (KeyError, ValueError):
        return None


def _moment(text: str) -> float:
    moment = float(text)
    if not math.isfinite(moment):  # not a mark that a lab writes
        raise ValueError(text)
    return moment


def require_owner(document: str, lab: LabHandle, title: str) -> Owner:
    """The ownership mark of an object that must belong to the lab; ``title`` names it.

    Raises BrokenError when it is foreign or another lab's.
    """
    owner = read_owner(document)
    if owner is None or owner.token != lab.token:
        raise BrokenError(
            f"looking for {title}",
            "it exists, but does not belong to this lab",
            "give the lab another name with --name",
        )
    return owner
