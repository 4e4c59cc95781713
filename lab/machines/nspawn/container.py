"""One machine of a lab: its specification, and the shell script that powers it on.

The script runs in the lab's holder, and again after each reboot: it creates the machine's network
namespace with its cards, enters the machine's control groups, and boots the root file system with
systemd-nspawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Interface
from pathlib import Path

from lab.machines import keyring
from lab.machines.images.seed import Identity
from lab.machines.management import DEVICE, management_mac
from lab.machines.nspawn import prepared
from lab.machines.nspawn.cgroups import INSIDE, OUTSIDE
from lab.machines.nspawn.layout import NspawnLayout, disk
from lab.providers.provider import LabHandle
from lab.topology.intent import Interface, MachineIntent

RUN = Path("/run/hybridlab")
"""In the holder: root file systems, start scripts, and logs of systemd-nspawn."""
MANAGEMENT_BRIDGE = "mgmt"
MANAGEMENT_MTU = 1500
BOUND = {
    "containerd": "/var/lib/containerd",
    "kubelet": "/var/lib/kubelet",
    "etcd": "/var/lib/etcd",
    "pods": "/var/log/pods",
}
"""A node's directories outside its overlay: an overlay cannot be the upper layer of another, as
containers need, and databases are faster without one."""
_BUNDLE_PLACE = "/run/hybridlab/bundle"
LINUX_BUNDLE = "/run/hybridlab/linux-bundle"
"""On a node of another system: the bundle for Linux, beside its own."""
_FORM = "3"
"""Increment when a machine is built differently from the same inputs."""
_STOP_SECONDS = 10
REBOOT = 133
"""systemd-nspawn's exit code when the machine reboots (``--keep-unit``)."""
ENDED = "systemd-nspawn ended with"
"""Start of the last log line of a machine that is off."""
FIRST = "/usr/local/lib/hybridlab/first-process"
"""In the machine: the program that runs before systemd."""
KERNEL_SETTINGS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Values that the kubelet requires of settings that are global to the kernel. A node reads them
from files mounted over the host's, which do not change (kubernetes/pkg/kubelet/cm,
setupKernelTunables)."""
DROPPED = (
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_TIME",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_CONTROL",
    "CAP_SYS_PACCT",
    "CAP_PERFMON",
    "CAP_DAC_READ_SEARCH",  # can open any file of a file system by inode
)
"""Capabilities that act on the host and that neither systemd nor Kubernetes needs."""
_ONLINE = "/sys/devices/system/cpu/online"
_READ_ONLY = "/proc/mtrr"
"""Lets root change the host's memory types; systemd-nspawn does not protect it."""
_HIDDEN = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware")
_ENVIRONMENT = {"SYSTEMD_SECCOMP": "0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
"""No seccomp filter, which Kubernetes containers would inherit; writable ``/proc/sys/net``."""


@dataclass(frozen=True, slots=True)
class Container:
    """The specification of one machine of a lab."""

    lab: LabHandle
    machine: MachineIntent
    layout: NspawnLayout
    number: int
    """Its position in the intent; used in its device names in the holder."""

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def is_node(self) -> bool:
        """True if it gets Kubernetes."""
        return self.layout.prepared is not None and self.machine.kubelet is not None

    @property
    def prepared(self) -> Path:
        """The node's prepared bundle: that of its system."""
        assert self.layout.prepared is not None, "it is a node"
        return self.layout.prepared_for.get(self.machine.os, self.layout.prepared)

    @property
    def lower(self) -> str:
        """The directories below its own disk, topmost first, as overlayfs takes them."""
        image = self.machine.hardware.image
        layer = self.layout.layers.get(image)
        paths = [layer, self.layout.roots[image]] if layer else [self.layout.roots[image]]
        if self.is_node and (files := self.prepared / prepared.ROOT).is_dir():
            paths.insert(0, files)
        return ":".join(map(str, paths))

    def digest(self) -> str:
        """Hash of everything whose change requires rebuilding the machine."""
        host = keyring.host_key(self.lab, self.name).public
        cards = [(card.name, card.mac, card.segment, card.mtu) for card in self.machine.interfaces]
        parts = (
            _FORM,
            self.lower,
            self.machine.hardware,
            cards,
            host,
            keyring.client_public(self.lab),
            str(self.prepared) if self.is_node else "",
            self.layout.address(self.name),
        )
        return sha256(repr(parts).encode()).hexdigest()

    def identity(self) -> Identity:
        """Its host name, keys and management card, for its root file system."""
        instance = f"{self.lab.token}-{self.name}"
        address = IPv4Interface(self._management())
        return keyring.seed_identity(self.lab, self.name, instance, address)

    @property
    def root(self) -> Path:
        """Where its root file system is mounted, in the holder."""
        return RUN / "roots" / self.name

    def script(self, groups: Sequence[Path], bridges: Mapping[str, str]) -> str:
        """The script that powers it on, for ``sh``.

        ``groups``: its control groups. ``bridges``: the bridge in the holder, by segment.
        """
        name, cards = self.name, self._cards()
        batch = "\n".join(_links(name, cards, {MANAGEMENT_BRIDGE: MANAGEMENT_BRIDGE, **bridges}))
        gone = "\n".join(f"    ip link delete {port} 2>/dev/null" for port in cards)
        listed = shlex.join(str(group) for group in groups)
        settings = " ".join(f"{key}={value}" for key, value in _ENVIRONMENT.items())
        return f"""#!/bin/sh
# Powers {name} on, and again after each reboot.
for group in {listed}; do
    echo $$ >"$group/{OUTSIDE}/cgroup.procs" || exit 1
done
while :; do
{gone}
    ip netns delete {name} 2>/dev/null
    ip netns add {name} || exit 1
    ip -batch - <<'LINKS' || exit 1
{batch}
LINKS
    ip -n {name} -batch - <<'ADDRESS' || exit 1
address add {self._management()} dev {DEVICE}
link set {DEVICE} up
ADDRESS
    for group in {listed}; do
        find "$group/{INSIDE}" -depth -type d -exec rmdir {{}} \\;
        mkdir "$group/{INSIDE}"
    done
    (
        for group in {listed}; do
            echo 0 >"$group/{INSIDE}/cgroup.procs" || exit 1
        done
        exec env {settings} {shlex.join(self._nspawn())}
    )
    code=$?
    [ "$code" = {REBOOT} ] || break
done
echo "{ENDED} $code"
"""

    def _cards(self) -> dict[str, Interface]:
        """Each card by the name of its other end, in the holder; the management card last.

        The kernel uses the first device's address for a device without an address.
        """
        own = enumerate(self.machine.interfaces, start=1)
        mac = management_mac(self.lab, self.name)
        management = Interface(DEVICE, MANAGEMENT_BRIDGE, mac, (), MANAGEMENT_MTU)
        return {port(self.number, at): card for at, card in own} | {
            port(self.number, 0): management
        }

    def _nspawn(self) -> Iterator[str]:
        yield from ("systemd-nspawn", "--quiet", f"--directory={self.root}")
        yield from (f"--machine={self.name}", "--register=no", "--keep-unit")
        yield f"--network-namespace-path=/run/netns/{self.name}"
        yield from ("--console=pipe", "--capability=all")
        yield f"--drop-capability={','.join(DROPPED)}"
        yield from ("--kill-signal=SIGRTMIN+3", "--resolv-conf=off", "--timezone=off")
        yield from ("--link-journal=no", "--bind=/dev/kmsg")
        if self.layout.prepared and self.is_node:
            own = disk(self.lab, self.name)
            yield from (f"--bind={own / at}:{place}" for at, place in BOUND.items())
            yield f"--bind-ro={self.prepared / prepared.BUNDLE}:{_BUNDLE_PLACE}"
            if self.machine.os != "linux":
                yield f"--bind-ro={self.layout.prepared / prepared.BUNDLE}:{LINUX_BUNDLE}"
        yield FIRST

    def _management(self) -> str:
        return f"{self.layout.address(self.name)}/{self.layout.management.prefixlen}"


def _links(
    machine: str, cards: Mapping[str, Interface], bridges: Mapping[str, str]
) -> Iterator[str]:
    for device, card in cards.items():
        yield (
            f"link add {device} mtu {card.mtu} type veth peer name {card.card or card.name} "
            f"address {card.mac} mtu {card.mtu} netns {machine}"
        )
        yield f"link set {device} master {bridges[card.segment]} up"


def port(machine: int, card: int) -> str:
    """The holder's end of a machine's cable, by machine and card; card 0 is the management card."""
    return f"m{machine}c{card}"


def first_process(memory_mib: int, cpus: int) -> Mapping[str, str]:
    """Files for a machine's root file system, by path; they set up ``/proc`` and ``/sys``.

    ``/proc/meminfo`` shows the machine's own memory size to its programs; the free memory in it is
    not measured. ``cpus``: the number of processors that the kubelet sees.
    """
    folder = FIRST.rpartition("/")[0]
    files = {f"{folder}/kernel/{key}": f"{value}\n" for key, value in KERNEL_SETTINGS.items()}
    files[f"{folder}/online"] = f"0-{cpus - 1}\n" if cpus > 1 else "0\n"
    kib = memory_mib << 10
    files[f"{folder}/meminfo"] = "".join(
        f"{key + ':':<16}{value:>8} kB\n"
        for key, value in (
            ("MemTotal", kib),
            ("MemFree", kib // 2),
            ("MemAvailable", kib // 2),
            ("Buffers", 0),
            ("Cached", kib // 4),
            ("SwapCached", 0),
            ("SwapTotal", 0),
            ("SwapFree", 0),
        )
    )
    lines = [
        "#!/bin/sh",
        "# Runs as the machine's process 1, and becomes systemd.",
        "for each in /sys/fs/cgroup /sys/fs/cgroup/*; do",
        '    mountpoint -q "$each" && mount -o remount,bind,rw "$each" 2>/dev/null',
        "done",
        *(
            f"mount --bind {folder}/kernel/{key} /proc/sys/{key} && "
            f"mount -o remount,bind,ro /proc/sys/{key}"
            for key in KERNEL_SETTINGS
        ),
        *(
            f"mount --bind {folder}/{name} {place} && mount -o remount,bind,ro {place}"
            for name, place in (("meminfo", "/proc/meminfo"), ("online", _ONLINE))
        ),
        f"[ ! -e {_READ_ONLY} ] || mount -o bind,ro {_READ_ONLY} {_READ_ONLY}",
        *(f"[ ! -d {path} ] || mount -t tmpfs -o ro none {path}" for path in _HIDDEN),
        "exec /usr/lib/systemd/systemd",
    ]
    # a container that ignores SIGTERM would delay a reboot by systemd's default 90 s
    files["/etc/systemd/system.conf.d/hybridlab.conf"] = (
        f"[Manager]\nDefaultTimeoutStopSec={_STOP_SECONDS}s\n"
    )
    files[FIRST] = "\n".join(lines) + "\n"
    return files
