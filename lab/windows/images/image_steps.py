"""Steps over the shell of a Windows guest: their typed parameters, deadlines and order.

A step is a script ``images/windows/<name>.ps1``. :func:`lab.windows.step_runner.run_step` sends it
with the shared module and a JSON file of settings, and reads its answer. The file's keys are the
fields of the dataclasses here; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from lab.machines.images.recipes import directory
from lab.machines.images.terms import RELEASES, Year

FOLDER = "windows"
"""Folder of the scripts among the image files."""
MODULE = "hybridlab.psm1"
"""The module beside every script, which it imports."""


@dataclass(frozen=True)
class ImageStep:
    """A step; its fields are its settings.

    Subclasses say ``name``, that of the script, and ``minutes``, the limit for the script.
    """

    name: ClassVar[str]
    deadline_s: ClassVar[int]

    def __init_subclass__(cls, name: str = "", minutes: int = 0) -> None:
        cls.name, cls.deadline_s = name, minutes * 60


@dataclass(frozen=True)
class PatchLevel(ImageStep, name="patch-level", minutes=95):
    """Refuse a Windows that is too old, or update it."""

    build: int
    least_revision: int
    why: str
    """What older revisions lack."""
    update: str | None = None
    """Path of an .msu on the guest."""
    update_sha256: str | None = None
    update_seconds: int = 90 * 60
    """Limit for the update: cumulative ones of 2019 take over an hour on slow disks."""


HyperV = Literal["none", "full", "without-hypervisor"]
"""``without-hypervisor`` for a guest that cannot run one: only the networking parts."""


@dataclass(frozen=True)
class Features(ImageStep, name="features", minutes=30):
    """Install roles and features of Windows."""

    features: tuple[str, ...] = ("Containers",)
    hyper_v: HyperV = "without-hypervisor"


@dataclass(frozen=True)
class Containerd(ImageStep, name="containerd", minutes=10):
    """Configure containerd and its service; its programs are already in place."""

    sandbox_image: str
    """``registry.k8s.io/pause:3.10.2``."""
    cni_bin: str = "C:\\opt\\cni\\bin"
    cni_conf: str = "C:\\etc\\cni\\net.d"
    mirrors: str = "C:\\ProgramData\\containerd\\certs.d"
    """Folder of the registry mirrors, the same as in step ``registry-mirrors``."""
    log: str = "C:\\var\\log\\containerd\\containerd.log"
    pipe_seconds: int = 120
    """Limit for containerd's first answer."""


@dataclass(frozen=True)
class HnsClean(ImageStep, name="hns-clean", minutes=5):
    """Remove what an earlier lab left in the Host Networking Service."""

    stop: tuple[str, ...] = ("kubelet", "kube-proxy", "containerd")
    """Services that would recreate it."""
    keep: tuple[str, ...] = ()
    """Names of networks to keep."""


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """An inbound firewall rule."""

    name: str
    protocol: Literal["TCP", "UDP", "ICMPv4"]
    ports: tuple[str, ...] = ()
    """Numbers or ranges (``30000-32767``); empty for ICMP."""
    remote: tuple[str, ...] = ()
    """Addresses or ranges that may connect; empty for all."""


@dataclass(frozen=True)
class Firewall(ImageStep, name="firewall", minutes=3):
    """Set the inbound rules of a node."""

    rules: tuple[FirewallRule, ...]


@dataclass(frozen=True)
class Observe(ImageStep, name="observe", minutes=2):
    """Report the node's network and services. Changes nothing."""

    services: tuple[str, ...] = ("containerd", "kubelet", "kube-proxy")
    tasks: tuple[str, ...] = ("flanneld",)
    """Programs that run as scheduled tasks, ``hybridlab-NAME``."""
    logs: str = "C:\\var\\log"
    """Folder of the services' logs, ``SERVICE\\SERVICE.log`` in it."""
    lines: int = 60
    """Number of last lines of each log."""
    ports: tuple[str, ...] = ("10250", "4789", "30000-32767")
    """Firewall rules to report."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Endpoints that are tried before a registry itself."""

    registry: str
    """``registry.k8s.io``, ``registry.example:5000``."""
    endpoints: tuple[str, ...]
    ca: str | None = None
    """Path on the guest of a certificate to trust."""


@dataclass(frozen=True)
class RegistryMirrors(ImageStep, name="registry-mirrors", minutes=2):
    """Configure registry mirrors for containerd."""

    mirrors: tuple[Mirror, ...]
    folder: str = "C:\\ProgramData\\containerd\\certs.d"


@dataclass(frozen=True, slots=True)
class RegistryValue:
    """A number (DWORD) in the guest's registry."""

    path: str
    """Path with PowerShell's drive: ``HKLM:\\SYSTEM\\...``."""
    name: str
    number: int


_HNS = "HKLM:\\SYSTEM\\CurrentControlSet\\Services\\hns\\State"
_OVERRIDES = "HKLM:\\SYSTEM\\CurrentControlSet\\Policies\\Microsoft\\FeatureManagement\\Overrides"
_WCIFS = "HKLM:\\SYSTEM\\CurrentControlSet\\Services\\wcifs"
_UPDATES = "HKLM:\\SOFTWARE\\Policies\\Microsoft\\Windows\\WindowsUpdate\\AU"

EVERY_RELEASE: tuple[RegistryValue, ...] = (
    RegistryValue(_UPDATES, "NoAutoUpdate", 1),
    RegistryValue(_HNS, "EnableCompartmentNamespace", 1),
)
"""Values that Kubernetes' image-builder sets on all releases (its role systemprep)."""
OF_RELEASE: Mapping[Year, tuple[RegistryValue, ...]] = {
    "2019": (
        RegistryValue(_HNS, "HNSControlFlag", 80),
        RegistryValue(_WCIFS, "WcifsSOPCountDisabled", 0),
    ),
    "2022": (RegistryValue(_OVERRIDES, "1114842764", 0),),
    "2025": (RegistryValue(_OVERRIDES, "520997518", 1),),
}
"""Values for single releases."""


@dataclass(frozen=True)
class NodeSettings(ImageStep, name="settings", minutes=3):
    """Set registry values, dynamic ports and Defender exclusions of a node."""

    registry: tuple[RegistryValue, ...]
    port_start: int = 34000
    """First dynamic TCP port; the range is image-builder's and excludes the NodePorts."""
    port_count: int = 31536
    defender_processes: tuple[str, ...] = ("containerd.exe", "ctr.exe")


@dataclass(frozen=True)
class WsMan(ImageStep, name="wsman", minutes=3):
    """Check WinRM and set its quotas."""

    certificate: str | None = None
    """SHA-256 that the listener's certificate must have, 64 hex digits."""
    timeout_ms: int = 1_800_000


@dataclass(frozen=True)
class SysprepPrepare(ImageStep, name="sysprep-prepare", minutes=10):
    """Prepare the installation for sysprep, or refuse it."""

    packages: tuple[str, ...] = (
        "Microsoft.MicrosoftEdge.*",
        "Microsoft.Edge.*",
        "Microsoft.WinAppRuntime.*",
        "Microsoft.WindowsAppRuntime.*",
    )
    """Appx packages that break sysprep on desktop editions, with wildcards."""


@dataclass(frozen=True)
class Sysprep(ImageStep, name="sysprep", minutes=2):
    """Generalise the installation; it shuts down some minutes after the answer.

    The shutdown itself has the deadline of its phase in the recipe.
    """

    settle_seconds: int = 5
    """Seconds between the end of the calling shell and the closing of the ports."""
    keep_devices: bool = True
    """Keep installed devices, so that virtio drivers stay."""
    skip_rearm: bool = False
    """Keep the rearm count; a clone's evaluation period then counts from the image's build."""


def golden_steps(year: Year, certificate: str) -> tuple[ImageStep, ...]:
    """The steps from an installation to a golden image, in order.

    Checks come first; features install the services whose registry values are set afterwards;
    sysprep is last because nothing may be pending: after its answer the guest generalises itself
    and shuts down.

    ``certificate``: SHA-256 of the pinned WinRM certificate, 64 hex digits.
    """
    release = RELEASES[year]
    return (
        PatchLevel(release.build, release.least_revision, release.why),
        WsMan(certificate),
        Features(),
        NodeSettings((*EVERY_RELEASE, *OF_RELEASE[year])),
        SysprepPrepare(),
        Sysprep(),
    )


def settings(step: Any) -> dict[str, Any]:
    """A step's settings as JSON for its script."""
    return asdict(step)


def script(name: str) -> bytes:
    """A shipped script or module by file name, unchanged."""
    return (directory() / FOLDER / name).read_bytes()
