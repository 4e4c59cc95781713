"""The container images of a test bundle, and what is in each of them."""

from __future__ import annotations

from pathlib import Path

from bundle_pins import read_pins
from go_programs import module_folder
from host_programs import clients, packet_filters, shell
from image_archives import Entry, Image

from lab._deadline import Deadline

USERS = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
GROUPS = "root:x:0:\nnonroot:x:65532:\n"
BASE = (
    Entry("/etc/passwd", text=USERS, mode=0o644),
    Entry("/etc/group", text=GROUPS, mode=0o644),
    Entry("/etc/nsswitch.conf", text="hosts: files dns\n", mode=0o644),
    Entry("/tmp", mode=0o1777),
    Entry("/run"),
)
"""What a static program may look for."""


def bundle_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the images, filled from the folder ``programs`` and from this host."""
    return (
        *_control_plane(versions, programs),
        *_system(versions, programs),
        _kube_proxy(versions, programs, deadline),
        _flannel(versions, programs, deadline),
        _agnhost(versions, programs, shell(deadline)),
    )


def _control_plane(versions: dict[str, str], programs: Path) -> list[Image]:
    """Return the three whose manifests call a bare program name."""
    return [
        Image(
            f"registry.k8s.io/{name}:v{versions['kubernetes']}",
            (*BASE, Entry(f"/usr/local/bin/{name}", source=programs / name)),
            (name,),
        )
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]


def _system(versions: dict[str, str], programs: Path) -> list[Image]:
    """Return the images of one static program, or two."""
    etcd = [Entry(f"/usr/local/bin/{n}", source=programs / n) for n in ("etcd", "etcdctl")]
    coredns = Entry("/coredns", source=programs / "coredns")
    pause = Entry("/pause", source=programs / "pause")
    return [
        # the tag that kubeadm asks for: upstream counts its image's revisions from 0
        Image(f"registry.k8s.io/etcd:{versions['etcd']}-0", (*BASE, *etcd), ("etcd",)),
        Image(
            f"registry.k8s.io/coredns/coredns:v{versions['coredns']}",
            (*BASE, coredns),
            ("/coredns",),
        ),
        Image(
            f"registry.k8s.io/pause:{versions['pause']}", (pause,), ("/pause",), user="65535:65535"
        ),
    ]


def _kube_proxy(versions: dict[str, str], programs: Path, deadline: Deadline) -> Image:
    proxy = Entry("/usr/local/bin/kube-proxy", source=programs / "kube-proxy")
    return Image(
        f"registry.k8s.io/kube-proxy:v{versions['kubernetes']}",
        (*BASE, *packet_filters(deadline), proxy),
        ("/usr/local/bin/kube-proxy",),
    )


def _flannel(versions: dict[str, str], programs: Path, deadline: Deadline) -> Image:
    """Return flanneld; its CNI plugin and ``cp`` are in, for the manifest's init containers."""
    flannel = (
        Entry("/opt/bin/flanneld", source=programs / "flanneld"),
        Entry("/flannel", source=programs / "cni" / "flannel"),
    )
    return Image(
        f"ghcr.io/flannel-io/flannel:v{versions['flannel']}",
        (*BASE, *packet_filters(deadline), *shell(deadline), *flannel),
        ("/opt/bin/flanneld",),
    )


def conformance_images(
    versions: dict[str, str], programs: Path, deadline: Deadline
) -> tuple[Image, ...]:
    """Return the images of Kubernetes' network tests: agnhost and one to ask DNS from.

    Both have programs of this Debian that the tests call; upstream's agnhost has those of Alpine.
    """
    kubernetes = next(one for one in read_pins().modules if one.name == "kubernetes")
    porter = module_folder(kubernetes, deadline) / "test/images/agnhost/porter"
    keys = (Entry(f"/{name}", source=porter / name) for name in ("localhost.crt", "localhost.key"))
    around = clients(deadline)
    dns = f"registry.k8s.io/e2e-test-images/glibc-dns-testing:{versions['glibc-dns-testing']}"
    return (
        _agnhost(versions, programs, (*around, *keys)),
        Image(dns, (*BASE, *around), ("/bin/sh",)),
    )


def _agnhost(versions: dict[str, str], programs: Path, around: tuple[Entry, ...]) -> Image:
    """Return upstream's test program; upstream's image has Alpine around it."""
    agnhost = (
        Entry("/agnhost", source=programs / "agnhost"),
        Entry("/agnhost-2", link="agnhost"),
        Entry("/uploads", mode=0o777),
    )
    return Image(
        f"registry.k8s.io/e2e-test-images/agnhost:{versions['agnhost']}",
        (*BASE, *around, *agnhost),
        ("/agnhost",),
        command=("pause",),
    )
