"""Which container images a Windows node needs from the bundle, by its build. Pure."""

from __future__ import annotations

from lab.cluster import rules
from lab.cluster.bundle.manifest import ContainerImage, Manifest

PAUSE = "registry.k8s.io/pause"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
NEEDED = (PAUSE, AGNHOST)
"""The sandbox of every pod, and the probe."""


def for_build(manifest: Manifest, build: int) -> tuple[ContainerImage, ...]:
    """All of the bundle that run on a build: without Hyper-V isolation it must be their own."""
    repositories = dict.fromkeys(_repository(one) for one in manifest.images if one.os == "windows")
    found = (rules.windows_image(manifest, one, str(build)) for one in repositories)
    return tuple(one for one in found if one is not None)


def pause(manifest: Manifest, build: int) -> str:
    """The sandbox image of a build, in full; KeyError if the bundle has none."""
    found = rules.windows_image(manifest, PAUSE, str(build))
    if found is None:
        raise KeyError(f"{PAUSE} for build {build}")
    return found.name


def missing(manifest: Manifest, build: int) -> tuple[str, ...]:
    """What a node of that build needs and the bundle has not, in words."""
    found = []
    for repository in NEEDED:
        if rules.windows_image(manifest, repository, str(build)) is None:
            builds = sorted(
                one.os_version or "any"
                for one in manifest.images
                if one.os == "windows" and _repository(one) == repository
            )
            has = f"it has {', '.join(builds)}" if builds else "it has none for Windows"
            found.append(f"the bundle has no image '{repository}' for Windows build {build}: {has}")
    return tuple(found)


def _repository(image: ContainerImage) -> str:
    return image.name.rpartition(":")[0]
