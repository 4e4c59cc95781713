"""Which container images a Windows node needs from the bundle, by its build. Pure."""

from __future__ import annotations

from lab.cluster.bundle.manifest import ContainerImage, Manifest

PAUSE = "registry.k8s.io/pause"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
NEEDED = (PAUSE, AGNHOST)
"""The sandbox of every pod, and the probe."""


def build_of(image: ContainerImage) -> int | None:
    """The Windows build that an image was made for; None where it runs on any."""
    if image.os_version is None:
        return None
    return int(image.os_version.split(".")[2])


def fits(image: ContainerImage, build: int) -> bool:
    """Whether it runs there: without Hyper-V isolation the builds must be the same."""
    return image.os == "windows" and build_of(image) in {None, build}


def for_build(manifest: Manifest, build: int) -> tuple[ContainerImage, ...]:
    """All of the bundle that run on a build."""
    return tuple(image for image in manifest.images if fits(image, build))


def pause(manifest: Manifest, build: int) -> str:
    """The sandbox image of a build, in full; KeyError if the bundle has none."""
    for image in for_build(manifest, build):
        if image.name.rpartition(":")[0] == PAUSE:
            return image.name
    raise KeyError(f"{PAUSE} for build {build}")


def missing(manifest: Manifest, build: int) -> tuple[str, ...]:
    """What a node of that build needs and the bundle has not, in words."""
    there = {image.name.rpartition(":")[0] for image in for_build(manifest, build)}
    found = []
    for repository in NEEDED:
        if repository not in there:
            builds = sorted(
                {
                    str(build_of(image) or "any")
                    for image in manifest.images
                    if image.os == "windows" and image.name.rpartition(":")[0] == repository
                }
            )
            has = f"it has builds {', '.join(builds)}" if builds else "it has none for Windows"
            found.append(f"the bundle has no image '{repository}' for Windows build {build}: {has}")
    return tuple(found)


def file_of(image: ContainerImage) -> str:
    """Its file on the bundle medium."""
    return f"images/{image.name.replace('/', '_').replace(':', '_')}.tar"
