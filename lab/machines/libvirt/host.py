"""One hypervisor: its connection, a shell on it, and whether KVM works there.

An openable /dev/kvm and a QEMU that offers KVM prove nothing: some hypervisors expose a KVM on
which no guest runs. So a tiny guest is started, without disk or network; its firmware (SeaBIOS)
prints its progress on the serial port.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Literal
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError, UsageError
from lab.inventory.inventory import Hypervisor
from lab.inventory.uri import Uri, parse
from lab.machines.libvirt import connection, documents, storage
from lab.machines.ssh.keys import SSH_PORT
from lab.machines.ssh.transport import jump_server, ssh_path
from lab.shells.shell import Jump, Shell

if TYPE_CHECKING:
    import libvirt

Acceleration = Literal["kvm", "tcg"]
_TRIAL_SECONDS: dict[Acceleration, float] = {"kvm": 20.0, "tcg": 60.0}
"""TCG takes 0.6 s on an idle host, longer on a busy one."""
_FIRST, _LAST = b"SeaBIOS", b"No bootable device"
"""The firmware's first and last messages."""
_CHUNK = 4096
KVM_HINT = (
    "enable VT-x or AMD-V in the host's firmware, or nested virtualisation where the host is a "
    'virtual machine; or write acceleration = "tcg", which is slow'
)
SSH_CONFIG = "~/.ssh/config"


class Host:
    """A hypervisor, connected to when first needed.

    ``hypervisor``: from the inventory or a lab's layout. ``listed``: True if it is in the
    inventory.
    """

    def __init__(self, hypervisor: Hypervisor, *, listed: bool = True) -> None:
        self.hypervisor = hypervisor
        self._listed = listed
        self._opening = Lock()
        self._connected: libvirt.virConnect | None = None

    @property
    def name(self) -> str:
        """The name in the inventory."""
        return self.hypervisor.name

    @property
    def connected(self) -> libvirt.virConnect:
        """The connection; raises as :func:`connection.connect`.

        A dead connection, for example after a restart of libvirtd, is reopened when needed.
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
            gone = f"hypervisor '{self.name}' is no longer in the inventory"
            hint = f"{error.hint}; {gone}: add it to lab.toml again, with its complete URI"
            raise PreflightError(error.doing, error.happened, hint) from error

    @cached_property
    def shell(self) -> Shell:
        """A shell on the hypervisor itself."""
        return shell_of(self.hypervisor)

    @cached_property
    def threads(self) -> int:
        """Hardware threads."""
        return int(self.connected.getInfo()[2])

    @cached_property
    def memory_mib(self) -> int:
        """Total memory; ``virNodeGetInfo`` reports only one NUMA cell on some machines."""
        library = connection.load()
        stats = self.connected.getMemoryStats(library.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        return int(stats["total"]) // 1024

    @cached_property
    def accelerated(self) -> bool:
        """True if guests really run on KVM there, which is tested with a tiny guest.

        Raises PreflightError if no guest runs there at all.
        """
        with self.explain_errors("starting a tiny guest"):
            return probe_acceleration(self.connected, self.hypervisor).kind == "kvm"

    @cached_property
    def hyperv(self) -> tuple[str, ...]:
        """The Hyper-V enlightenments for Windows that it offers to KVM guests."""
        if not self.accelerated:
            return ()
        with self.explain_errors("reading its domain capabilities"):
            document = self.connected.getDomainCapabilities(None, "x86_64", "q35", "kvm")
        return offered_enlightenments(document)

    @property
    def boots_at_once(self) -> int:
        """How many guests may boot at the same time.

        A boot keeps one thread busy half of the time and otherwise waits for disks and devices.
        Three emulated boots at once on two threads took 0.75 of the time of two and then one.
        """
        return self.hypervisor.parallel_boots or 2 * self.threads

    def explain_errors(self, action: str, hint: str = "") -> AbstractContextManager[None]:
        """Convert libvirt's errors; see :func:`connection.explain_errors`."""
        return connection.explain_errors(action, self.name, hint)

    def lab_pool(self, token: str) -> libvirt.virStoragePool | None:
        """The storage pool of the lab with that token; None if there is none."""
        pools = self.connected.listAllStoragePools()
        for pool, path in connection.each(pools, storage.directory_of):
            if storage.token_of(path) == token:
                return pool
        return None


def offered_enlightenments(document: str) -> tuple[str, ...]:
    """The enlightenments in :data:`documents.HYPERV` that domain capabilities' XML offers. Pure."""
    path = "features/hyperv[@supported='yes']/enum[@name='features']/value"
    names = {feature.text for feature in ET.fromstring(document).iterfind(path)}  # noqa: S314  libvirt's own
    return tuple(name for name in documents.HYPERV if name in names)


def jump_of(uri: Uri, configured: Mapping[str, str]) -> Jump:
    """The SSH host of a ``qemu+ssh`` URI.

    ``keyfile`` and ``no_verify`` mean the same as in libvirt; ``no_tty`` is always on.
    ``configured`` holds the user's ssh configuration for that host: ``hostname``, ``port``,
    ``user``, ``identityfile``.
    """
    keyfile = uri.parameter("keyfile") or configured.get("identityfile")
    known_hosts = configured.get("userknownhostsfile")
    return Jump(
        host=configured.get("hostname", uri.host or ""),
        port=uri.port or int(configured.get("port", SSH_PORT)),
        user=uri.user or configured.get("user") or getpass.getuser(),
        keyfile=ssh_path(keyfile) if keyfile else None,
        known_hosts=ssh_path(known_hosts) if known_hosts else None,
        no_verify=uri.parameter("no_verify") == "1",
    )


def jump_to(hypervisor: Hypervisor) -> Jump | None:
    """The SSH jump host to guests behind a hypervisor's NAT; None if it is this machine.

    Raises UsageError if its URI is invalid or does not allow a shell.
    """
    uri = parse(hypervisor.uri)
    if uri.host is None:
        return None
    action = f"getting a shell on hypervisor '{hypervisor.name}'"
    if uri.scheme != "qemu+ssh":
        raise UsageError(
            action,
            f"'{hypervisor.uri}' is reached over {uri.scheme}, which provides no shell: tunnels "
            "between hypervisors and jumps to guests need one",
            f"use qemu+ssh://root@{uri.host}/system in the inventory",
        )
    configured = _ssh_config(uri.host)
    for key in ("proxyjump", "proxycommand"):
        if configured.get(key, "none").lower() != "none":
            raise UsageError(
                action,
                f"{SSH_CONFIG} has '{key}' for host '{uri.host}', which is not supported here",
                "give the inventory an address that this machine reaches directly",
            )
    return jump_of(uri, configured)


def shell_of(hypervisor: Hypervisor) -> Shell:
    """A root shell on the hypervisor, not connected yet. Raises as :func:`jump_to`."""
    jump = jump_to(hypervisor)
    if jump is None:
        from lab.shells.local import LocalShell  # noqa: PLC0415  few labs need a shell there

        return LocalShell()
    from lab.machines.ssh.shell import SshShell  # noqa: PLC0415  slow, and an extra

    return SshShell((replace(jump_server(jump), name=hypervisor.name),))


def _ssh_config(host: str) -> dict[str, str]:
    path = ssh_path(SSH_CONFIG)
    if not path.is_file():
        return {}
    from paramiko import SSHConfig  # noqa: PLC0415  slow to import

    text = path.read_text(encoding="utf-8", errors="replace")
    for sign in ("~/", "%d/"):  # paramiko would expand them with HOME
        text = text.replace(sign, f"{ssh_path('~/')}/")
    settings = SSHConfig.from_text(text).lookup(host)
    return {key: value if isinstance(value, str) else value[0] for key, value in settings.items()}


@dataclass(frozen=True, slots=True)
class AccelerationTrial:
    """The result of trying one kind of acceleration."""

    kind: Acceleration
    works: bool
    detail: str


def probe_acceleration(connected: libvirt.virConnect, hypervisor: Hypervisor) -> AccelerationTrial:
    """Determine how to run guests there.

    Takes one to three seconds if nothing is wrong; the result is valid until the hypervisor
    restarts. If the inventory says ``kvm`` or ``tcg``, nothing is tried. Raises PreflightError if
    no guest runs at all.
    """
    if hypervisor.acceleration != "auto":
        detail = "as the inventory says"
        return AccelerationTrial(hypervisor.acceleration, works=True, detail=detail)
    tried = try_acceleration(connected)
    if tried[-1].works:
        return tried[-1]
    raise PreflightError(
        f"starting a tiny guest on hypervisor '{hypervisor.name}'",
        "; ".join(trial.detail for trial in tried),
        f"see its QEMU's log there, in /var/log/libvirt/qemu; {KVM_HINT}",
    )


def try_acceleration(connected: libvirt.virConnect) -> tuple[AccelerationTrial, ...]:
    """Try KVM, then TCG if KVM does not work."""
    kvm = _try(connected, "kvm")
    return (kvm,) if kvm.works else (kvm, _try(connected, "tcg"))


def _try(connected: libvirt.virConnect, kind: Acceleration) -> AccelerationTrial:
    """Start the guest and read how far its firmware gets."""
    library = connection.load()
    flags = library.VIR_DOMAIN_START_AUTODESTROY | library.VIR_DOMAIN_START_PAUSED
    document = documents.trial_domain(f"hybridlab-trial-{uuid4().hex[:8]}", kvm=kind == "kvm")
    try:
        guest = connected.createXML(document, flags)
    except library.libvirtError as error:
        why = connection.reason(error)
        return AccelerationTrial(kind, works=False, detail=f"{kind.upper()} starts no guest: {why}")
    try:
        return judge_trial(kind, *_listen(connected, guest, kind))
    finally:
        with suppress(library.libvirtError):  # it has already ended
            guest.destroy()


def _listen(
    connected: libvirt.virConnect, guest: libvirt.virDomain, kind: Acceleration
) -> tuple[bytes, str]:
    library = connection.load()
    stream = connected.newStream(library.VIR_STREAM_NONBLOCK)
    console = bytearray()

    def ended() -> bool:
        """True if the guest has finished; calling state() makes libvirt read the stream."""
        runs = guest.state()[0] == library.VIR_DOMAIN_RUNNING
        for heard in _chunks(stream):
            console.extend(heard)
        return not runs or _LAST in console

    how = "and then stops"
    try:
        guest.openConsole(None, stream, library.VIR_DOMAIN_CONSOLE_FORCE)
        guest.resume()
        Deadline(_TRIAL_SECONDS[kind]).wait(
            f"waiting for a tiny {kind.upper()} guest", ended, every=0.05
        )
    except DeadlineError:
        how = f"then nothing for {_TRIAL_SECONDS[kind]:g} s"
    except library.libvirtError as error:
        how = f"and then: {connection.reason(error)}"
    finally:
        with suppress(library.libvirtError):  # the stream ends with the guest
            stream.abort()
    return bytes(console), how


def _chunks(stream: libvirt.virStream) -> Iterator[bytes]:
    while isinstance(heard := stream.recv(_CHUNK), bytes) and heard:
        yield heard


def judge_trial(kind: Acceleration, console: bytes, how: str) -> AccelerationTrial:
    """Judge the firmware output ``console``; ``how`` tells how it ended if incomplete. Pure."""
    if _LAST in console:
        return AccelerationTrial(kind, works=True, detail=f"a tiny guest runs with {kind.upper()}")
    where = "its firmware begins" if _FIRST in console else "it does not start to boot"
    detail = f"no guest runs with {kind.upper()}: {where}, {how}"
    return AccelerationTrial(kind, works=False, detail=detail)
