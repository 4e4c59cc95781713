"""Which versions work together: the data of ``rules.json`` and pure functions that query it.

Sources of the data: ``minors`` from ``cmd/kubeadm/app/constants/constants.go``,
``build/dependencies.yaml`` and ``test/utils/image/manifest.go`` of Kubernetes v1.33.0, v1.34.0,
v1.35.0 and v1.36.3; ``flags`` and ``gone`` from its ``pkg/features/kube_features.go`` and
kubelet options and from sig-windows-tools (issue 397: kubelet 1.34 on Windows);
``oldest-containerd`` is the first that reads the configuration that Linux nodes get
(version 3; containerd's ``docs/cri/config.md``), and the one that SIG Windows builds 1.36 with;
``windows`` from Microsoft's release notes and Calico's requirements; ``needs`` is the lab's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lab._errors import PreflightError
from lab.cluster.addons.addon import addons
from lab.cluster.bundle.manifest import (
    ContainerImage,
    Manifest,
    add_on_images,
    add_on_versions,
)
from lab.cluster.cluster import Cluster, ClusterNode
from lab.scenario.terms import Os
from lab.scenario.versions import MAX_SKEW


@dataclass(frozen=True, slots=True)
class WindowsBuild:
    """One release of Windows Server."""

    number: int
    image: str
    family: str
    """Tag family of the container images for it, such as ``ltsc2022``."""
    oldest: int
    """Lowest patch level (the fourth part of the version) that a node may have."""
    why: str


def components(minor: str) -> Mapping[str, str]:
    """Component and version that upstream combines with a Kubernetes minor."""
    return {**_rules()["every-minor"], **_rules()["minors"][minor]}


def flags(program: str, os: Os, version: str) -> tuple[str, ...]:
    """Flags that only some versions of a program get on this system, for this version.

    ``program``: ``"kubelet"`` or ``"kube-proxy"``. ``version``: that of Kubernetes, minor or patch.
    """
    pause = components(_minor_name(version))["pause"]
    return tuple(
        f"{one['flag']}={one['value'].format(pause=pause)}"
        for one in _rules()["flags"]
        if (one["program"], one["os"]) == (program, os)
        and not ("below" in one and _parts(version) >= _parts(one["below"]))
    )


def unknown_flags(program: str, version: str, given: Iterator[str]) -> Iterator[str]:
    """Why this version of a program does not start with these arguments, one sentence each."""
    gone = {
        one["flag"]: one
        for one in _rules()["gone"]
        if one["program"] == program and _parts(version) >= _parts(one["from"])
    }
    for argument in given:
        found = gone.get(argument.partition("=")[0])
        if found is not None:
            yield (
                f"{program} {version} no longer has the flag {found['flag']} "
                f"(removed in {found['from']}): {found['why']}"
            )


def windows_build(version: str) -> WindowsBuild | None:
    """The Windows Server release of a build: ``10.0.20348.2762``, or its third part alone."""
    parts = version.split(".")
    number = parts[2] if len(parts) > 2 else parts[-1]  # noqa: PLR2004  10.0.BUILD
    found = _rules()["windows"].get(number)
    if found is None:
        return None
    return WindowsBuild(int(number), found["image"], found["family"], found["oldest"], found["why"])


def old_windows(version: str) -> str | None:
    """Why a node with this Windows build cannot join, as a clause; None if it can."""
    build = windows_build(version)
    if build is None:
        known = ", ".join(_rules()["windows"])
        return f"its Windows is build {version}, but lab supports {known}"
    patch = version.split(".")[3:]
    if patch and patch[0].isdecimal() and int(patch[0]) < build.oldest:
        return (
            f"its Windows is {version}, and must be at least {build.number}.{build.oldest}: "
            f"{build.why}"
        )
    return None


def windows_image(manifest: Manifest, repository: str, version: str) -> ContainerImage | None:
    """The image that this Windows build can run with process isolation, or None.

    The image's base must have the host's build number; its patch level makes no difference.
    """
    build = windows_build(version)
    for image in manifest.images:
        if image.os != "windows" or image.name.rpartition(":")[0] != repository:
            continue
        own = windows_build(image.os_version or "")
        if build is not None and own == build:
            return image
    return None


def skew(control_plane: str, kubelet: str) -> str | None:
    """Why a kubelet of this version cannot be in the cluster, as a clause; None if it can.

    Kubernetes' version skew policy: at most three minors older than the API server, never newer.
    """
    apart = _parts(control_plane)[1] - _parts(kubelet)[1]
    if _parts(kubelet) > _parts(control_plane)[: len(_parts(kubelet))]:
        return (
            f"kubelet {kubelet} is newer than the control plane, {control_plane}, which the "
            "version skew policy forbids"
        )
    if apart > MAX_SKEW:
        return (
            f"kubelet {kubelet} is {apart} minors older than the control plane, {control_plane}; "
            f"the version skew policy allows {MAX_SKEW}"
        )
    return None


def check_skew(cluster: Cluster) -> None:
    """Refuse nodes whose kubelets do not fit the control plane.

    Raises PreflightError with each such node and the rule.
    """
    found = {node.name: skew(cluster.version, node.version) for node in cluster.nodes}
    refused = {name: why for name, why in found.items() if why is not None}
    if refused:
        nodes = " and ".join(f"'{name}'" for name in refused)
        raise PreflightError(
            f"joining node {nodes} to lab '{cluster.name}'",
            "; ".join(dict.fromkeys(refused.values())),
            "change the node's 'version' in the scenario, or remove it",
        )


def missing(
    manifest: Manifest, cluster: Cluster, builds: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Names of what the bundle lacks for the nodes of a cluster.

    ``builds``: the Windows build of each node, as far as known; its images must match it.
    """
    found: dict[str, None] = {}
    for node in cluster.nodes:
        found |= dict.fromkeys(_lacking(manifest, cluster, node))
        if node.os == "linux":
            found |= dict.fromkeys(_lacking_of_add_on(manifest, cluster))
        build = (builds or {}).get(node.name)
        if node.os == "windows" and build:
            found |= dict.fromkeys(_lacking_for(manifest, node, build))
    found |= dict.fromkeys(_old(manifest))
    return tuple(found)


def require(manifest: Manifest, cluster: Cluster, builds: Mapping[str, str] | None = None) -> None:
    """Check, before anything is created, that a bundle has everything a cluster needs.

    Raises PreflightError naming everything that is missing and every node of the wrong version.
    """
    check_skew(cluster)
    lacking = missing(manifest, cluster, builds)
    if lacking:
        raise PreflightError(
            f"checking the bundle of Kubernetes {manifest.kubernetes} for lab '{cluster.name}'",
            "it lacks " + ", ".join(lacking),
            _how_to_have(manifest, cluster),
        )


def _add_on_versions() -> dict[str, str]:
    """Versions of the add-ons, under the names that templates use."""
    return {
        component.replace("-", "_"): version
        for versions in add_on_versions().values()
        for component, version in versions.items()
    }


def _how_to_have(manifest: Manifest, cluster: Cluster) -> str:
    if any(node.version != manifest.kubernetes for node in cluster.nodes):
        return "a bundle has one kubelet version: remove the node's own 'version' from the scenario"
    own = addons()[cluster.topology].bundled
    wanted = f" --with {own}" if own else ""
    return (
        f"'lab bundle create{wanted}' downloads all of it; a bundle '--from' a directory "
        "has only what the directory has"
    )


def _lacking(manifest: Manifest, cluster: Cluster, node: ClusterNode) -> Iterator[str]:
    if node.version != manifest.kubernetes:
        yield f"kubelet {node.version} (node '{node.name}'; it has {manifest.kubernetes})"
    there = {(one.os, one.name) for one in manifest.programs}
    images = {(one.os, one.name) for one in manifest.images}
    images |= {(os, name.rpartition(":")[0]) for os, name in images}
    windows = any(one.os == "windows" for one in cluster.nodes)
    for need in _rules()["needs"]:
        asked = {"os": node.os, "how": cluster.how, "role": node.role, "windows": windows}
        if any(need.get(key, value) != value for key, value in asked.items()):
            continue
        if cluster.topology not in need.get("topologies", [cluster.topology]):
            continue
        for program in need.get("programs", ()):
            if (node.os, program) not in there:
                yield f"program '{program}' for {node.os}"
        for template in need.get("images", ()):
            image = template.format(kubernetes=manifest.kubernetes, **_add_on_versions())
            if (node.os, image) not in images:
                yield f"image '{image}' for {node.os}"


def _lacking_of_add_on(manifest: Manifest, cluster: Cluster) -> Iterator[str]:
    """Images of the network add-on that the bundle lacks; with a tag if the version matters."""
    addon = addons()[cluster.topology]
    tagged = add_on_images(addon.bundled) if addon.pinned(cluster) else ()
    named = {image.rpartition(":")[0]: image for image in tagged}
    there = {one.name for one in manifest.images if one.os == "linux"}
    there |= {name.rpartition(":")[0] for name in there}
    for image in addon.images(cluster):
        if named.get(image, image) not in there:
            yield f"image '{named.get(image, image)}' for linux"


def _lacking_for(manifest: Manifest, node: ClusterNode, build: str) -> Iterator[str]:
    why = old_windows(build)
    if why is not None:
        yield f"support for node '{node.name}': {why}"
        return
    found = windows_build(build)
    assert found is not None, "old_windows() has checked"
    repositories = {one.name.rpartition(":")[0] for one in manifest.images if one.os == "windows"}
    for repository in sorted(repositories):
        if windows_image(manifest, repository, build) is None:
            yield (
                f"image '{repository}' for {found.image} (node '{node.name}' needs a "
                f"{found.family} base)"
            )


def _old(manifest: Manifest) -> Iterator[str]:
    oldest = _rules()["oldest-containerd"]
    own = dict(manifest.versions).get("containerd")
    if own and _parts(own) < _parts(oldest):
        yield f"containerd {oldest} or newer (it has {own})"


def _minor_name(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _parts(version: str) -> tuple[int, ...]:
    numbers = version.removeprefix("v").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


@cache
def _rules() -> Any:
    return json.loads(files("lab.cluster").joinpath("rules.json").read_text(encoding="utf-8"))
