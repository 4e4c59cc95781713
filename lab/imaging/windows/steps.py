"""Steps over the shell of a Windows guest: their typed parameters, deadlines and order.

A step is a script ``images/windows/<name>.ps1``. :func:`lab.remote.windows_steps.run_step` sends it
with the shared module and a JSON file of settings, and reads its answer. Keys of that file are the
fields of the dataclasses here; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from lab.imaging.recipes import directory
from lab.imaging.windows.settings import RELEASES, Year

FOLDER = "windows"
"""Of the images' folder: where the scripts are."""
MODULE = "hybridlab.psm1"
"""What every script imports from beside itself."""
_MINUTE = 60


@dataclass(frozen=True, slots=True)
class ImageStep:
    """A step; its fields are its settings."""

    name: ClassVar[str]
    deadline_s: ClassVar[int]


@dataclass(frozen=True, slots=True)
class PatchLevel(ImageStep):
    """Refuse a Windows that is too old, or bring it up to date."""

    build: int
    least_revision: int
    why: str
    """What older ones lack."""
    update: str | None = None
    """Path on the guest of an .msu."""
    update_sha256: str | None = None
    update_seconds: int = 90 * _MINUTE
    """How long the update may take: cumulative ones of 2019 take over an hour on slow disks."""

    name: ClassVar[str] = "patch-level"
    deadline_s: ClassVar[int] = 95 * _MINUTE


HyperV = Literal["none", "full", "without-hypervisor"]
"""``without-hypervisor`` where the guest cannot run one: the networking parts alone."""


@dataclass(frozen=True, slots=True)
class Features(ImageStep):
    """Roles and features of Windows."""

    features: tuple[str, ...] = ("Containers",)
    hyper_v: HyperV = "without-hypervisor"

    name: ClassVar[str] = "features"
    deadline_s: ClassVar[int] = 30 * _MINUTE


@dataclass(frozen=True, slots=True)
class Containerd(ImageStep):
    """containerd's configuration and service; its programs are in their folder already."""

    sandbox_image: str
    """``registry.k8s.io/pause:3.10.2``."""
    cni_bin: str = "C:\\opt\\cni\\bin"
    cni_conf: str = "C:\\etc\\cni\\net.d"
    mirrors: str = "C:\\ProgramData\\containerd\\certs.d"
    """Folder of the registries' mirrors; that of the step ``registry-mirrors``."""
    log: str = "C:\\var\\log\\containerd\\containerd.log"
    pipe_seconds: int = 120
    """How long containerd may take to answer."""

    name: ClassVar[str] = "containerd"
    deadline_s: ClassVar[int] = 10 * _MINUTE


@dataclass(frozen=True, slots=True)
class HnsClean(ImageStep):
    """Removes what an earlier lab left in the Host Networking Service."""

    stop: tuple[str, ...] = ("kubelet", "kube-proxy", "containerd")
    """Services that would make it again."""
    keep: tuple[str, ...] = ()
    """Names of networks that stay."""

    name: ClassVar[str] = "hns-clean"
    deadline_s: ClassVar[int] = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """What a node lets in."""

    name: str
    protocol: Literal["TCP", "UDP", "ICMPv4"]
    ports: tuple[str, ...] = ()
    """Numbers or ranges (``30000-32767``); none for ICMP."""
    remote: tuple[str, ...] = ()
    """Addresses or ranges that may come in; none for everybody."""


@dataclass(frozen=True, slots=True)
class Firewall(ImageStep):
    """The inbound rules of a node."""

    rules: tuple[FirewallRule, ...]

    name: ClassVar[str] = "firewall"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class Observe(ImageStep):
    """What the node's network is now, and how its services are; changes nothing."""

    services: tuple[str, ...] = ("containerd", "kubelet", "kube-proxy")
    tasks: tuple[str, ...] = ("flanneld",)
    """Programs that are a task of the scheduler, ``hybridlab-NAME``."""
    logs: str = "C:\\var\\log"
    """Folder of the services' logs, ``SERVICE\\SERVICE.log`` in it."""
    lines: int = 60
    """Of each log, the last ones."""
    ports: tuple[str, ...] = ("10250", "4789", "30000-32767")
    """Firewall rules to report."""

    name: ClassVar[str] = "observe"
    deadline_s: ClassVar[int] = 2 * _MINUTE


@dataclass(frozen=True, slots=True)
class Mirror:
    """Who is asked before a registry itself."""

    registry: str
    """``registry.k8s.io``, ``registry.example:5000``."""
    endpoints: tuple[str, ...]
    ca: str | None = None
    """Path on the guest of a certificate to trust."""


@dataclass(frozen=True, slots=True)
class RegistryMirrors(ImageStep):
    """Mirrors of registries, for containerd."""

    mirrors: tuple[Mirror, ...]
    folder: str = "C:\\ProgramData\\containerd\\certs.d"

    name: ClassVar[str] = "registry-mirrors"
    deadline_s: ClassVar[int] = 2 * _MINUTE


@dataclass(frozen=True, slots=True)
class RegistryValue:
    """A number (DWORD) in the guest's registry."""

    path: str
    """With PowerShell's drive: ``HKLM:\\SYSTEM\\...``."""
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
"""Values that Kubernetes' image-builder sets on all of them (its role systemprep)."""
OF_RELEASE: Mapping[Year, tuple[RegistryValue, ...]] = {
    "2019": (
        RegistryValue(_HNS, "HNSControlFlag", 80),
        RegistryValue(_WCIFS, "WcifsSOPCountDisabled", 0),
    ),
    "2022": (RegistryValue(_OVERRIDES, "1114842764", 0),),
    "2025": (RegistryValue(_OVERRIDES, "520997518", 1),),
}
"""And on one alone."""


@dataclass(frozen=True, slots=True)
class NodeSettings(ImageStep):
    """Settings of a node: registry, dynamic ports, what Defender leaves alone."""

    registry: tuple[RegistryValue, ...]
    port_start: int = 34000
    """First dynamic TCP port; the range is image-builder's and leaves the NodePorts alone."""
    port_count: int = 31536
    defender_processes: tuple[str, ...] = ("containerd.exe", "ctr.exe")

    name: ClassVar[str] = "settings"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class WsMan(ImageStep):
    """WinRM is checked, its quotas are put right."""

    certificate: str | None = None
    """SHA-256 that the listener's certificate must have, 64 hex digits."""
    timeout_ms: int = 1_800_000

    name: ClassVar[str] = "wsman"
    deadline_s: ClassVar[int] = 3 * _MINUTE


@dataclass(frozen=True, slots=True)
class SysprepPrepare(ImageStep):
    """The installation is made ready for sysprep, or refused."""

    packages: tuple[str, ...] = (
        "Microsoft.MicrosoftEdge.*",
        "Microsoft.Edge.*",
        "Microsoft.WinAppRuntime.*",
        "Microsoft.WindowsAppRuntime.*",
    )
    """Appx packages that stop sysprep on desktop editions, with wildcards."""

    name: ClassVar[str] = "sysprep-prepare"
    deadline_s: ClassVar[int] = 10 * _MINUTE


@dataclass(frozen=True, slots=True)
class Sysprep(ImageStep):
    """The installation is generalized, and shuts itself down some minutes after the answer."""

    settle_seconds: int = 5
    """Between the end of the shell that asked and the closing of the ports."""
    keep_devices: bool = True
    """Keep installed devices, so that virtio drivers live on."""
    skip_rearm: bool = False
    """Leave the count of rearms alone: then a clone's evaluation counts from the image's build."""

    name: ClassVar[str] = "sysprep"
    deadline_s: ClassVar[int] = 2 * _MINUTE
    """Of the answer alone: the shut-down has the recipe's deadline of its phase."""


def golden_steps(year: Year, certificate: str) -> tuple[ImageStep, ...]:
    """What is done to an installation of a release before it becomes a golden image, in order.

    What refuses comes first; features bring the services whose registry values are set then;
    nothing may be pending when sysprep begins, which is the last: after its answer the guest
    generalizes itself and shuts down.

    ``year``: the release. ``certificate``: SHA-256 of the certificate that its WinRM was pinned to,
    64 hex digits.
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


def settings(step: ImageStep) -> dict[str, Any]:
    """The step's settings, as JSON holds them and its script reads them."""
    return asdict(step)


def script(name: str, folder: Path | None = None) -> bytes:
    """A shipped script or module by its file's name, byte for byte."""
    return ((folder or directory()) / FOLDER / name).read_bytes()
