"""The bundle's medium in a Linux machine: mounted at every start, its programs linked.

Programs are links to the medium and no copies: half a gigabyte less to write on every node,
and what runs is what the bundle's digest says. Services that run them require the mount.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab.cluster.bundle.manifest import ContainerImage, Manifest
from lab.cluster.bundle.medium import image_path
from lab.cluster.linux.operations import Operations, Run, Symlink, WriteFile

PLACE = "/run/hybridlab/bundle"
LABEL = "HYBRIDBUNDLE"
UNIT = "run-hybridlab-bundle.mount"
"""systemd wants a mount's unit named after its place."""
PROGRAMS = "/usr/local/bin"
CNI_PROGRAMS = "/opt/cni/bin"
IMPORT_SECONDS = 180.0
"""For one container image: the largest, kube-apiserver's, has some 100 MB to unpack."""


def mount() -> Operations:
    """The medium mounted, now and at every start."""
    unit = WriteFile(
        f"/etc/systemd/system/{UNIT}",
        f"""[Unit]
Description=The lab's bundle: programs and images of Kubernetes

[Mount]
What=/dev/disk/by-label/{LABEL}
Where={PLACE}
Type=iso9660
Options=ro

[Install]
WantedBy=multi-user.target
""",
    )
    # never mounted anew: programs run from it
    there = f"systemctl is-active --quiet {UNIT} && systemctl is-enabled --quiet {UNIT}"
    return (unit, Run(("systemctl", "enable", "--quiet", "--now", UNIT), unless=there))


def programs(wanted: Iterable[str]) -> Iterator[Symlink]:
    """Programs of the medium where a shell and systemd find them."""
    for name in wanted:
        yield Symlink(f"{PROGRAMS}/{name}", f"{PLACE}/bin/{name}")


def cni_programs(manifest: Manifest) -> Iterator[Symlink]:
    """Every CNI plugin of the bundle where containerd looks for them."""
    for program in manifest.programs:
        kind, _, name = program.name.rpartition("/")
        if program.os == "linux" and kind == "cni":
            yield Symlink(f"{CNI_PROGRAMS}/{name}", f"{PLACE}/cni/{name}")


def image_file(name: str) -> str:
    """The image's path on the medium, in the machine."""
    return f"{PLACE}/{image_path(name)}"


def imported(image: ContainerImage) -> Run:
    """The image in containerd's store, under its name and with the bundle's own digest.

    ``--local``: the transfer service is sent the archive in small pieces, which takes two thirds
    longer (16.2 s and 26.7 s for kube-scheduler's 49 MB in an emulated guest).
    """
    there = f"ctr -n k8s.io images ls name=={image.name} | grep -q sha256:{image.manifest.sha256}"
    return Run(
        ("ctr", "-n", "k8s.io", "images", "import", "--local", image_file(image.name)),
        unless=there,
        seconds=IMPORT_SECONDS,
        hint="see that the bundle holds: 'lab bundle verify'",
    )
