"""Whether a Windows node can join, what earlier clusters left on it, and its health. Pure.

Flags by version are data of :mod:`lab.machines.cluster.rules`, checked against the sources of
1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab._log import quantity
from lab.machines.bundle.manifest import ContainerImage, Manifest
from lab.machines.cluster import rules
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.images.terms import RELEASES, Release, Year
from lab.scenario.versions import unsupported
from lab.topology.intent import Intent
from lab.windows.nodes import paths
from lab.windows.nodes.network import DOCUMENTED_ONLY, KNOWN

NEVER_STARTS: Mapping[str, str] = {
    "1.31.0": "kubernetes 126965",
    "1.31.1": "kubernetes 129957",
}
"""Kubelets that do not start on Windows: "protocol unix not supported"."""


def version_refusal(version: str) -> str | None:
    """Why this kubelet version (``"1.36.1"``) is not used on Windows; None if it is."""
    if version in NEVER_STARTS:
        return (
            f"kubelet {version} does not start on Windows: 'protocol \"unix\" not supported' "
            f"({NEVER_STARTS[version]}); use another patch version"
        )
    why = unsupported(".".join(version.split(".")[:2]))
    return f"kubelet {version} {why}" if why else None


def takes_flag(program: str, version: str, flag: str) -> bool:
    """Whether this version of a program needs and accepts a flag such as ``--feature-gates``."""
    return any(known.startswith(f"{flag}=") for known in rules.flags(program, "windows", version))


PAUSE = "registry.k8s.io/pause"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
NEEDED = (PAUSE, AGNHOST)
"""Repositories of every pod's sandbox image and of the probe image."""


def images_for_build(manifest: Manifest, build: int) -> tuple[ContainerImage, ...]:
    """The bundle's images that run on a build: without Hyper-V isolation builds must match."""
    repositories = dict.fromkeys(
        _repository(image) for image in manifest.images if image.os == "windows"
    )
    images = (rules.windows_image(manifest, repository, str(build)) for repository in repositories)
    return tuple(image for image in images if image is not None)


def pause_image(manifest: Manifest, build: int) -> str:
    """Full name of the sandbox image for a build; KeyError if the bundle has none."""
    image = rules.windows_image(manifest, PAUSE, str(build))
    if image is None:
        raise KeyError(f"{PAUSE} for build {build}")
    return image.name


def missing_images(manifest: Manifest, build: int) -> tuple[str, ...]:
    """What a node with this build needs and the bundle lacks, as text."""
    problems = []
    for repository in NEEDED:
        if rules.windows_image(manifest, repository, str(build)) is None:
            builds = sorted(
                image.os_version or "any"
                for image in manifest.images
                if image.os == "windows" and _repository(image) == repository
            )
            has = f"it has {', '.join(builds)}" if builds else "it has none for Windows"
            problems.append(
                f"the bundle has no image '{repository}' for Windows build {build}: {has}"
            )
    return tuple(problems)


def _repository(image: ContainerImage) -> str:
    return image.name.rpartition(":")[0]


DSR_2019 = 1554
"""First revision of 17763 with working Direct Server Return: KB4580390, October 2020."""
CALICO = {17763: 1432, 20348: 169}
"""Lowest revision for each build, from Calico's requirements."""


@dataclass(frozen=True, slots=True)
class WindowsObserved:
    """The Windows version that a node reports."""

    build: int
    """The build number, ``20348``."""
    revision: int
    """The build's revision (UBR), which updates increase."""

    @property
    def release(self) -> Release | None:
        """The Windows Server release; None for an unknown build."""
        return next((release for release in RELEASES.values() if release.build == self.build), None)

    @property
    def dsr(self) -> bool:
        """Whether kube-proxy may use Direct Server Return."""
        return self.build != RELEASES["2019"].build or self.revision >= DSR_2019

    def __str__(self) -> str:
        return f"{self.build}.{self.revision}"


def too_old(observed: WindowsObserved, topology: str) -> str | None:
    """Why this Windows is too old for a topology; None if it is not.

    Sources: KB4489899 for overlay networks on 2019, Calico's requirements for Calico.
    """
    release = observed.release
    if release is None:
        known = ", ".join(f"{release.name} ({release.build})" for release in RELEASES.values())
        return f"build {observed} is not a known Windows build: {known}"
    least, why = 0, ""
    if topology in {"overlay", "kubeinit"}:
        least, why = release.least_revision, release.why
    elif topology.startswith("calico"):
        least, why = CALICO.get(observed.build, 0), "Calico requires it"
    if observed.revision < least:
        return f"{release.name} {observed} is older than {release.build}.{least}: {why}"
    return None


def year_of(image: str) -> Year | None:
    """The release in an image's name (``windows-server-2022``); None if there is none."""
    years: list[Year] = [year for year in RELEASES if year in image]
    return years[0] if len(years) == 1 else None


_OWN_NETWORKS = ("External", "cbr0", "l2bridge", "flannel.", "Calico")
"""Names or name prefixes of HNS networks that a cluster node leaves behind."""


def join_refusals(
    cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
) -> tuple[str, ...]:
    """Why this node cannot join, as far as known before anything is created. Pure."""
    reasons = [version_refusal(node.version)]
    if cluster.topology not in KNOWN:
        unknown = f"topology '{cluster.topology}' is not known on Windows"
        reasons.append(DOCUMENTED_ONLY.get(cluster.topology, unknown))
    year = year_of(intent.machine(node.name).hardware.image)
    if year is not None:
        reasons += missing_images(manifest, RELEASES[year].build)
    return tuple(f"{node.name}: {reason}" for reason in reasons if reason)


def unfit_windows(manifest: Manifest, topology: str, observed: WindowsObserved) -> str | None:
    """Why the Windows that was found cannot be a node; None if it can. Pure."""
    lacking = missing_images(manifest, observed.build)
    return too_old(observed, topology) or (lacking[0] if lacking else None)


CLOCK_SECONDS = 60
"""Allowed clock error of a node: kubeadm's tokens and the lab's certificates are valid from now
on."""


def seconds_off(clock: str, earliest: float, latest: float) -> int:
    """Seconds by which a clock read between two times is off; 0 within the tolerance. Pure."""
    moment = datetime.fromisoformat(clock).timestamp()
    off = max(earliest - moment, moment - latest)
    return int(off) if off > CLOCK_SECONDS else 0


EVALUATION_DAYS = 3
"""An evaluation that has fewer days left is worth a word. One that is not activated lasts 10 days
(Microsoft Evaluation Center); after that WLMS shuts Windows down every hour."""


def evaluation_ending(minutes: int | None) -> str:
    """The warning for an evaluation with this many minutes left; empty if there is time. Pure.

    ``minutes`` is None where Windows is no evaluation, or does not say.
    """
    if minutes is None or minutes >= EVALUATION_DAYS * 24 * 60:
        return ""
    left = f"ends in {quantity(minutes // 60, 'hour')}" if minutes > 0 else "has ended"
    return (
        f"its evaluation of Windows {left}; after that it shuts down every hour: "
        "'lab down' and 'lab up' make a clone with an evaluation of its own"
    )


def leftovers(paths_there: tuple[str, ...], hns_networks: tuple[str, ...]) -> tuple[str, ...]:
    """Network state of an earlier membership that is on the node. Pure."""
    files = tuple(path for path in paths_there if path != paths.KUBELET_CONF)
    return (*files, *(name for name in hns_networks if name.startswith(_OWN_NETWORKS)))


def service_ailments(facts: Mapping[str, Any]) -> str:
    """Services that do not run or would not run after a restart; empty if all is well.

    Each must start by itself and, except for the first, depend on the one before.
    """
    words = []
    before: str | None = None
    for service in facts["services"]:
        if service["state"] != "Running":
            words.append(f"{service['name']} is {service['state']}")
        elif service["start"] != "Automatic":
            words.append(f"{service['name']} starts {service['start']}")
        elif before is not None and before not in service["depends"]:
            words.append(f"{service['name']} does not depend on {before}")
        before = service["name"]
    words += [
        f"task {task['name']} is {task['state'] or 'missing'}"
        for task in facts["tasks"]
        if task["state"] != "Running"
    ]
    return ", ".join(words)
