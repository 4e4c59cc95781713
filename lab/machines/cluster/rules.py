"""Which versions work together: the data of ``rules.json`` and pure functions that query it.

Sources of the data: ``minors`` from ``cmd/kubeadm/app/constants/constants.go``,
``build/dependencies.yaml`` and ``test/utils/image/manifest.go`` of Kubernetes v1.33.0, v1.34.0,
v1.35.0 and v1.36.3; ``flags`` from its ``pkg/features/kube_features.go`` and kubelet options and
from sig-windows-tools (issue 397: kubelet 1.34 on Windows);
``oldest-containerd`` is the first that reads the configuration that Linux nodes get
(version 3; containerd's ``docs/cri/config.md``), and the one that SIG Windows builds 1.36 with;
``needs`` is the lab's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from lab._errors import PreflightError
from lab.machines.addons.addon import addons
from lab.machines.bundle.manifest import (
    ContainerImage,
    Manifest,
    add_on_images,
    add_on_versions,
    create_command,
)
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.images.terms import RELEASES
from lab.scenario.terms import Os
from lab.scenario.versions import MAX_SKEW


def components(minor: str) -> Mapping[str, str]:
    """Component and version that upstream combines with a Kubernetes minor."""
    return {**_rules()["every-minor"], **_rules()["minors"][minor]}


def flags(program: str, os: Os, version: str) -> tuple[str, ...]:
    """Flags that only some versions of a program get on this system, for this version.

    ``program``: ``"kubelet"`` or ``"kube-proxy"``. ``version``: that of Kubernetes, minor or patch.
    """
    pause = components(".".join(version.split(".")[:2]))["pause"]
    return tuple(
        f"{flag['flag']}={flag['value'].format(pause=pause)}"
        for flag in _rules()["flags"]
        if (flag["program"], flag["os"]) == (program, os)
        and not ("below" in flag and _parts(version) >= _parts(flag["below"]))
    )


def windows_build(version: str) -> int | None:
    """The build number in ``10.0.20348.2762``, or the number alone; None if it is unsupported."""
    parts = version.split(".")
    number = parts[2] if len(parts) > 2 else parts[-1]  # noqa: PLR2004  10.0.BUILD
    return next(
        (release.build for release in RELEASES.values() if str(release.build) == number), None
    )


def windows_image(manifest: Manifest, repository: str, version: str) -> ContainerImage | None:
    """The image that this Windows build can run with process isolation, or None.

    The image's base must have the host's build number; its patch level makes no difference.
    """
    build = windows_build(version)
    for image in manifest.images:
        named = image.os == "windows" and image.name.rpartition(":")[0] == repository
        if named and build is not None and windows_build(image.os_version or "") == build:
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


def missing(manifest: Manifest, cluster: Cluster) -> tuple[str, ...]:
    """Names of what the bundle lacks for the nodes of a cluster."""
    lacking: dict[str, None] = {}
    for node in cluster.nodes:
        lacking |= dict.fromkeys(_list_lacking(manifest, cluster, node))
        if node.os == "linux":
            lacking |= dict.fromkeys(_lacking_of_add_on(manifest, cluster))
    oldest, own = _rules()["oldest-containerd"], dict(manifest.versions).get("containerd")
    if own and _parts(own) < _parts(oldest):
        lacking[f"containerd {oldest} or newer (it has {own})"] = None
    return tuple(lacking)


def require(manifest: Manifest, cluster: Cluster) -> None:
    """Check, before anything is created, that a bundle has everything a cluster needs.

    Raises PreflightError naming everything that is missing and every node of the wrong version.
    """
    reasons = {node.name: skew(cluster.version, node.version) for node in cluster.nodes}
    refused = {name: why for name, why in reasons.items() if why is not None}
    if refused:
        nodes = " and ".join(f"'{name}'" for name in refused)
        raise PreflightError(
            f"joining node {nodes} to lab '{cluster.name}'",
            "; ".join(dict.fromkeys(refused.values())),
            "change the node's 'version' in the scenario, or remove it",
        )
    lacking = missing(manifest, cluster)
    if lacking:
        raise PreflightError(
            f"checking the bundle of Kubernetes {manifest.kubernetes} for lab '{cluster.name}'",
            "it lacks " + ", ".join(lacking),
            _how_to_have(manifest, cluster),
        )


def _how_to_have(manifest: Manifest, cluster: Cluster) -> str:
    if any(node.version != manifest.kubernetes for node in cluster.nodes):
        return "a bundle has one kubelet version: remove the node's own 'version' from the scenario"
    minor = manifest.kubernetes.rpartition(".")[0]
    systems = {node.os for node in cluster.nodes}
    command = create_command(minor, systems, addons()[cluster.topology].bundled)
    return (
        f"'{command}' downloads all of it; a bundle '--from' a directory has only what the "
        "directory has"
    )


def _list_lacking(manifest: Manifest, cluster: Cluster, node: ClusterNode) -> Iterator[str]:
    if node.version != manifest.kubernetes:
        yield f"kubelet {node.version} (node '{node.name}'; it has {manifest.kubernetes})"
    programs = {(program.os, program.name) for program in manifest.programs}
    images = {(image.os, image.name) for image in manifest.images}
    images |= {(os, name.rpartition(":")[0]) for os, name in images}
    pinned = {
        component.replace("-", "_"): version
        for versions in add_on_versions().values()
        for component, version in versions.items()
    }
    windows = any(member.os == "windows" for member in cluster.nodes)
    for need in _rules()["needs"]:
        facts = {"os": node.os, "how": cluster.how, "role": node.role, "windows": windows}
        if any(need.get(key, value) != value for key, value in facts.items()):
            continue
        if cluster.topology not in need.get("topologies", [cluster.topology]):
            continue
        for program in need.get("programs", ()):
            if (node.os, program) not in programs:
                yield f"program '{program}' for {node.os}"
        for template in need.get("images", ()):
            image = template.format(kubernetes=manifest.kubernetes, **pinned)
            if (node.os, image) not in images:
                yield f"image '{image}' for {node.os}"


def _lacking_of_add_on(manifest: Manifest, cluster: Cluster) -> Iterator[str]:
    """Images of the network add-on that the bundle lacks; with a tag if the version matters."""
    addon = addons()[cluster.topology]
    tagged = add_on_images(addon.bundled) if addon.pinned(cluster) else ()
    named = {image.rpartition(":")[0]: image for image in tagged}
    images = {image.name for image in manifest.images if image.os == "linux"}
    images |= {name.rpartition(":")[0] for name in images}
    for image in addon.images(cluster):
        if named.get(image, image) not in images:
            yield f"image '{named.get(image, image)}' for linux"


def _parts(version: str) -> tuple[int, ...]:
    numbers = version.removeprefix("v").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


@cache
def _rules() -> Any:
    return json.loads(
        files("lab.machines.cluster").joinpath("rules.json").read_text(encoding="utf-8")
    )
