"""Whose an object is: what every domain and network of ours carries in its metadata. Pure.

What metadata says is a claim: whoever may write to a hypervisor's libvirt can write anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

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


def write(owner: Owner) -> str:
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


def read(document: str) -> Owner | None:
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
            created=float(found["created"]),
            expires=float(found["expires"]) if "expires" in found else None,
            machine=found.get("machine", ""),
            made_from=found.get("made-from", ""),
        )
    except (KeyError, ValueError):
        return None
