"""Building sites: what of an image that is being built stands on a hypervisor.

A domain, a network and a storage pool of one name, which holds the time at which they were made
and what the directory of the build comes to. Domain and network carry a mark of their own kind,
which no lab has: ``lab image gc`` collects them, and ``lab gc`` never does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab.providers.libvirt import connection, domains, networks, volumes
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.host import Host

if TYPE_CHECKING:
    import libvirt

NAMESPACE = "urn:hybridlab:build:1"
_TAG = f"{{{NAMESPACE}}}build"
_NAME = re.compile(r"hybridlab-windows-(?P<made>[0-9]{10,12})-(?P<token>[0-9a-f]{8})")
_FORGOTTEN_SECONDS = 7 * 86_400.0
"""No installation takes a week: every phase has a deadline, and all of them together are less,
emulated too."""


@dataclass(frozen=True, slots=True)
class SiteMark:
    """Whose a site is."""

    image: str
    site: Path
    """The directory of the build."""
    controller: str


@dataclass(frozen=True, slots=True)
class Left:
    """Sites of one hypervisor that nobody works on, found or taken away."""

    hypervisor: str
    names: tuple[str, ...]


def token(site: Path) -> str:
    """Eight hex digits that stand for a build's directory on this controller."""
    return sha256(f"{controller_id()} {site}".encode()).hexdigest()[:8]


def new_name(site: Path) -> str:
    """What the objects of a site that is made now are called."""
    return f"hybridlab-windows-{int(time.time())}-{token(site)}"


def write(mark: SiteMark) -> str:
    """The metadata element, to be put between ``<metadata>`` and ``</metadata>``."""
    ET.register_namespace("hybridlab-build", NAMESPACE)
    fields = {"image": mark.image, "site": str(mark.site), "controller": mark.controller}
    return ET.tostring(ET.Element(_TAG, fields), encoding="unicode")


def read(document: str) -> SiteMark | None:
    """Whose the object with this XML is; None for what is no site's."""
    element = ET.fromstring(document).find(f"metadata/{_TAG}")  # noqa: S314  libvirt's own document
    if element is None:
        return None
    found = element.attrib
    try:
        return SiteMark(found["image"], Path(found["site"]), found["controller"])
    except KeyError:
        return None


def find(connected: libvirt.virConnect, site: Path) -> libvirt.virDomain | None:
    """The domain of the build in that directory."""
    for domain, mark in connection.each(connected.listAllDomains(), _mark):
        if mark is not None and mark.site == site and mark.controller == controller_id():
            return domain
    return None


def remove(connected: libvirt.virConnect, site: Path) -> tuple[str, ...]:
    """Take away all of a site, half made ones too; the names of what went."""
    ending = token(site)
    return _remove(connected, lambda found: found["token"] == ending)


def sweep(connected: libvirt.virConnect) -> None:
    """Take away the sites of anyone that were forgotten."""
    now = time.time()
    library = connection.load()
    with suppress(library.libvirtError):  # another one is at it, too
        _remove(connected, lambda found: now - int(found["made"]) > _FORGOTTEN_SECONDS)


def collect(host: Host, alive: Callable[[Path], bool], *, yes: bool) -> Left:
    """Find, and with ``yes`` remove, this controller's sites whose build nobody works on.

    ``alive``: whether somebody works on the build in that directory.

    Raises
    ------
    LabError
        When the hypervisor cannot be reached or refuses.

    """
    with host.told("collecting what interrupted builds have left"):
        connected = host.connected
        dead = {
            mark.site
            for kind in (connected.listAllDomains(), connected.listAllNetworks())
            for _, mark in connection.each(kind, _mark)
            if mark is not None and mark.controller == controller_id() and not alive(mark.site)
        }
        endings = {token(site) for site in dead}
        names = {name for name, found in _named(connected) if found["token"] in endings}
        if yes:
            _remove(connected, lambda found: found["token"] in endings)
    return Left(host.name, tuple(sorted(names)))


def _remove(
    connected: libvirt.virConnect, wanted: Callable[[re.Match[str]], bool]
) -> tuple[str, ...]:
    """Domains first: they hold the others."""
    removed: dict[str, None] = {}

    def ours(name: str) -> bool:
        found = _NAME.fullmatch(name)
        if found is None or not wanted(found):
            return False
        removed[name] = None
        return True

    for domain in connected.listAllDomains():
        if ours(domain.name()):
            domains.remove(domain)
    for network in connected.listAllNetworks():
        if ours(network.name()):
            networks.remove(network)
    for pool in connected.listAllStoragePools():
        if ours(pool.name()):
            volumes.remove_pool(pool)
    return tuple(removed)


def _named(connected: libvirt.virConnect) -> Iterator[tuple[str, re.Match[str]]]:
    kinds = (connected.listAllDomains, connected.listAllNetworks, connected.listAllStoragePools)
    for kind in kinds:
        for one in kind():
            found = _NAME.fullmatch(one.name())
            if found is not None:
                yield one.name(), found


def _mark(one: libvirt.virDomain | libvirt.virNetwork) -> SiteMark | None:
    return read(one.XMLDesc())
