"""Small programs, images and directories that bundles are made from."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from lab.machines.bundle.directory import create as make
from lab.machines.bundle.manifest import Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.images.job import Say
from lab.scenario.terms import Os

VERSIONS = {"kubernetes": "1.36.1", "containerd": "2.3.7", "etcd": "3.6.8"}
IMAGES = (
    "registry.k8s.io/kube-apiserver:v1.36.1",
    "registry.k8s.io/kube-controller-manager:v1.36.1",
    "registry.k8s.io/kube-scheduler:v1.36.1",
    "registry.k8s.io/kube-proxy:v1.36.1",
    "registry.k8s.io/etcd:3.6.8-0",
    "registry.k8s.io/coredns/coredns:v1.14.2",
    "registry.k8s.io/pause:3.10.2",
    "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
    "ghcr.io/flannel-io/flannel:v0.28.10",
)
LINUX = (
    *("kubelet", "kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager"),
    *("kube-scheduler", "kube-proxy", "etcd", "etcdctl"),
    *("containerd", "containerd-shim-runc-v2", "ctr", "runc"),
    *("cni/bridge", "cni/host-local", "cni/loopback", "cni/portmap", "cni/flannel"),
)
WINDOWS = (
    *("kubelet.exe", "kubeadm.exe", "kube-proxy.exe", "kube-log-runner.exe"),
    *("containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe", "flanneld.exe"),
    *("cni/host-local.exe", "cni/win-bridge.exe", "cni/sdnoverlay.exe", "cni/sdnbridge.exe"),
    "cni/flannel.exe",
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def elf(words: str) -> bytes:
    """Bytes that start like a Linux program for amd64."""
    return b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + b"\x3e\x00" + words.encode()


def pe(words: str) -> bytes:
    """Bytes that start like a Windows program for amd64."""
    return (
        b"MZ".ljust(0x3C, b"\0")
        + (0x80).to_bytes(4, "little").ljust(0x44, b"\0")
        + (b"PE\0\0\x64\x86" + words.encode())
    )


def tar(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def layer(name: str) -> bytes:
    return tar({"bin/program": name.encode()})


def config(
    layers: list[bytes], os: str = "linux", build: str | None = None, machine: str = "amd64"
) -> bytes:
    found: dict[str, object] = {
        "architecture": machine,
        "os": os,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
    }
    if build:
        found["os.version"] = build
    return json.dumps(found).encode()


def docker_archive(name: str | None, **platform: str) -> bytes:
    layers = [layer("base"), layer(str(name))]
    own = config(layers, **platform)
    listed = [
        {
            "Config": f"{sha256(own)}.json",
            "RepoTags": [name] if name else None,
            "Layers": ["a/layer.tar", "b/layer.tar"],
        }
    ]
    return tar(
        {
            f"{sha256(own)}.json": own,
            "a/layer.tar": layers[0],
            "b/layer.tar": layers[1],
            "manifest.json": json.dumps(listed).encode(),
        }
    )


def described(kind: str, content: bytes, **more: object) -> dict[str, object]:
    return {
        "mediaType": kind,
        "digest": f"sha256:{sha256(content)}",
        "size": len(content),
        **more,
    }


OCI = "application/vnd.oci.image"
MANIFEST = f"{OCI}.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_PARTS = (
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)


class Image:
    """One image for one platform, for a registry or an OCI archive."""

    def __init__(
        self, name: str, os: str = "linux", build: str | None = None, kind: str = MANIFEST
    ) -> None:
        plain = layer(f"{name} {os} {build}")
        self.layer = gzip.compress(plain, mtime=0)
        self.config = config([plain], os, build)
        self.platform = {"os": os, "architecture": "amd64"}
        if build:
            self.platform["os.version"] = build
        self.describe(kind)

    def describe(self, kind: str) -> None:
        """Write its manifest."""
        kinds = (f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar+gzip")
        of_config, of_layer = DOCKER_PARTS if kind == DOCKER else kinds
        self.kind = kind
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": kind,
                "config": described(of_config, self.config),
                "layers": [described(of_layer, self.layer)],
            },
            indent=3,
        ).encode()

    def change_layer(self, **facts: object) -> None:
        """State other facts of its layer in the manifest."""
        document = json.loads(self.manifest)
        document["layers"][0].update(facts)
        self.manifest = json.dumps(document).encode()

    @property
    def blobs(self) -> dict[str, bytes]:
        found = (self.manifest, self.config, self.layer)
        return {sha256(content): content for content in found}

    def entry(self, **more: object) -> dict[str, object]:
        return described(self.kind, self.manifest, platform=self.platform, **more)


def index(entries: list[dict[str, object]]) -> bytes:
    found = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": entries}
    return json.dumps(found).encode()


def oci_archive(name: str, images: list[Image]) -> bytes:
    """An archive like that of ``ctr images export``: with several images, a nested index."""
    notes = {"io.containerd.image.name": name}
    members = {f"blobs/sha256/{key}": blob for image in images for key, blob in image.blobs.items()}
    if len(images) == 1:
        top = index([images[0].entry(annotations=notes)])
    else:
        below = index([image.entry() for image in images])
        members[f"blobs/sha256/{sha256(below)}"] = below
        top = index([described(f"{OCI}.index.v1+json", below, annotations=notes)])
    return tar({"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": top, **members})


def file_name(image: str) -> str:
    return f"{image.replace('/', '_').replace(':', '_')}.tar"


def directory(place: Path, *, windows: bool = False) -> Path:
    """A complete directory for ``lab bundle create --from``."""
    (place / "images").mkdir(parents=True)
    (place / "versions.json").write_text(json.dumps(VERSIONS))
    for name in LINUX:
        put(place / "linux-amd64" / name, elf(name))
    for name in IMAGES:
        put(place / "images" / file_name(name), oci_archive(name, [Image(name)]))
    if windows:
        for name in WINDOWS:
            put(place / "windows-amd64" / name, pe(name))
        builds = ("10.0.17763.6054", "10.0.20348.2762")
        for name in IMAGES[6:8]:
            images = [Image(name, "windows", build) for build in builds]
            put(place / "images" / f"windows_{file_name(name)}", oci_archive(name, images))
    return place


def create(
    store: BundleStore, source: Path, *systems: Os, kubernetes: str | None = None, say: Say = print
) -> Manifest:
    """The bundle of an input directory."""
    return make(store, source, systems, kubernetes, say)


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
