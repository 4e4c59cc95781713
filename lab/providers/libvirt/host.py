"""One hypervisor, connected when first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import PreflightError, UsageError
from lab._log import say
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import (
    acceleration,
    carrier,
    connection,
    documents,
    domains,
    networks,
    volumes,
)
from lab.providers.libvirt.ownership import Owner

if TYPE_CHECKING:
    import libvirt

    from lab.remote.shell import Shell

_TUNNEL_SECONDS = 60.0
"""For a shell on the hypervisor and three commands."""


def offered(document: str) -> tuple[str, ...]:
    """Of the enlightenments that Windows is to have, those in a domain capabilities' XML. Pure."""
    path = "features/hyperv[@supported='yes']/enum[@name='features']/value"
    there = {one.text for one in ET.fromstring(document).iterfind(path)}  # noqa: S314  libvirt's own
    return tuple(name for name in documents.HYPERV if name in there)


class Host:
    """A hypervisor, and what of ours is on it.

    Parameters
    ----------
    hypervisor
        As the inventory has it, or a lab's layout.
    listed
        Whether the inventory has it.

    """

    def __init__(self, hypervisor: Hypervisor, *, listed: bool = True) -> None:
        self.hypervisor = hypervisor
        self._listed = listed
        self._opening = Lock()
        self._connected: libvirt.virConnect | None = None

    @property
    def name(self) -> str:
        """As the inventory has it."""
        return self.hypervisor.name

    @property
    def connected(self) -> libvirt.virConnect:
        """The connection; :func:`connection.connect` says what it raises.

        One that has died, as with its libvirtd, is opened anew by whoever needs it next.
        """
        with self._opening:
            if self._connected is None or not self._connected.isAlive():
                self._connected = self._open()
            return self._connected

    def _open(self) -> libvirt.virConnect:
        try:
            return connection.connect(self.hypervisor)
        except PreflightError as error:
            if self._listed:
                raise
            gone = f"hypervisor '{self.name}' is not in the inventory any more"
            hint = f"{error.hint}; {gone}: write it into lab.toml again, with its whole URI"
            raise PreflightError(error.doing, error.happened, hint) from error

    @cached_property
    def shell(self) -> Shell:
        """A shell on the hypervisor itself."""
        from lab.providers.libvirt.hypervisor_ssh import shell_of  # noqa: PLC0415  few labs need it

        return shell_of(self.hypervisor)

    @cached_property
    def threads(self) -> int:
        """Hardware threads."""
        return int(self.connected.getInfo()[2])

    @cached_property
    def memory_mib(self) -> int:
        """All its memory; ``virNodeGetInfo`` speaks of one cell alone on some machines."""
        library = connection.load()
        stats = self.connected.getMemoryStats(library.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        return int(stats["total"]) // 1024

    @cached_property
    def accelerated(self) -> bool:
        """Whether guests really run on KVM there: one is started to see.

        Raises
        ------
        PreflightError
            When no guest runs there at all.

        """
        with self.told("starting a tiny guest"):
            return acceleration.probe(self.connected, self.hypervisor).kind == "kvm"

    @cached_property
    def hyperv(self) -> tuple[str, ...]:
        """The Hyper-V enlightenments that it offers to guests on KVM, of those that we want."""
        if not self.accelerated:
            return ()
        with self.told("asking what it offers to guests"):
            document = self.connected.getDomainCapabilities(None, "x86_64", "q35", "kvm")
        return offered(document)

    @property
    def boots_at_once(self) -> int:
        """How many guests may boot at the same time.

        A boot keeps one thread busy half of the time: it waits for its disks and its devices.
        Three at once on two threads, emulated, took 0.75 of the time of two and then one.
        """
        return self.hypervisor.parallel_boots or 2 * self.threads

    @contextmanager
    def told(self, doing: str, hint: str = "") -> Iterator[None]:
        """Put libvirt's refusals into words; see :func:`connection.told`."""
        with connection.told(doing, self.name, hint):
            yield

    def lab_pool(self, token: str) -> libvirt.virStoragePool | None:
        """The storage pool of the lab with that token."""
        for pool, path in connection.each(self.connected.listAllStoragePools(), volumes.path_of):
            if volumes.token_of(path) == token:
                return pool
        return None

    def owners(self) -> Iterator[tuple[str, Owner]]:
        """Every object that carries our mark, in words, and whose it is."""
        for domain, owner in domains.owned(self.connected):
            yield f"domain '{domain.name()}' on '{self.name}'", owner
        for network, owner in networks.owned(self.connected):
            yield f"network '{network.name()}' on '{self.name}'", owner

    def destroy(
        self,
        token: str,
        is_whose: Callable[[Owner], bool] = lambda _: True,
        *,
        tunnels: bool = False,
    ) -> tuple[str, ...]:
        """Take away every object of the lab with that token; what went, in words.

        With ``tunnels``, those to other hypervisors too, which takes a shell there.

        Domains go first and networks, which carry the mark of the whole lab, last: whatever
        stops this half-way, the rest is found again. An object that ``is_whose`` refuses stays,
        and with it the storage pool and tunnel ends, which may be its lab's.

        Raises
        ------
        libvirt.libvirtError
            As libvirt refuses.

        """
        removed: list[str] = []
        alone = all(is_whose(owner) for _, owner in self.owners() if owner.token == token)
        for domain, owner in list(domains.owned(self.connected)):
            if owner.token == token and is_whose(owner):
                removed.append(f"domain '{domain.name()}' on '{self.name}'")
                domains.remove(domain)
        pool = self.lab_pool(token)
        if pool is not None and not alone:
            say(f"note: pool '{pool.name()}' on '{self.name}' stays: others have its lab's token")
        elif pool is not None:
            removed.append(f"storage pool '{pool.name()}' on '{self.name}'")
            volumes.remove_pool(pool)
        if tunnels and alone:
            ends = self._remove_tunnels(token)
            removed += [f"tunnel end '{device}' on '{self.name}'" for device in ends]
        for network, owner in list(networks.owned(self.connected)):
            if owner.token == token and is_whose(owner):
                removed.append(f"network '{network.name()}' on '{self.name}'")
                networks.remove(network)
        return tuple(removed)

    def _remove_tunnels(self, token: str) -> tuple[str, ...]:
        try:
            shell = self.shell
        except UsageError:  # without a shell there, none was ever made
            return ()
        return carrier.remove(shell, token, Deadline(_TUNNEL_SECONDS))
