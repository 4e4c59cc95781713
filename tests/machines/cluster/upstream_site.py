"""A small upstream: release addresses on one web server, and a registry."""

import gzip
import io
import json
import zipfile

import bundle_parts as parts
from registry import Registry
from web_server import Web

from lab.machines.bundle import upstream
from lab.machines.bundle.manifest import SYSTEMS, Asset, wanted_assets, wanted_images
from lab.machines.images import download

BUILDS = ("10.0.17763.6054", "10.0.20348.2762", "10.0.14393.1", "10.0.26100.100")
HOSTS = ("dl.k8s.io", "github.com", "api.github.com")
REGISTRIES = ("registry.k8s.io", "ghcr.io")


class Site(Web):
    """Answers for every host of ``HOSTS`` below ``/<host>/``."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.registry = registry

    def mirrors(self) -> dict[str, str]:
        hosts = {f"https://{host}/": f"{self.url}/{host}/" for host in HOSTS}
        base = f"https://{self.registry.address}/v2"
        return hosts | {f"https://{host}/v2/": f"{base}/{host}/" for host in REGISTRIES}

    def web(self) -> download.Web:
        return download.Web(self.mirrors(), {}, upstream.INSTEAD, upstream.TRUSTING)

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def release(self, versions: dict[str, str]) -> None:
        """Publish all files for a bundle of these versions."""
        self.files["/dl.k8s.io/release/stable-1.36.txt"] = b"v1.36.1\n"
        for asset in wanted_assets(versions, SYSTEMS):
            self._asset(asset)

    def path(self, url: str) -> str:
        return "/" + url.removeprefix("https://")

    def _asset(self, asset: Asset) -> None:
        make = parts.elf if asset.os == "linux" else parts.pe
        file = asset.url.rpartition("/")[2]
        if asset.program:
            content = make(asset.program)
        elif file.endswith(".zip"):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as packed:
                for member, program in asset.members:
                    packed.writestr(zipfile.ZipInfo(member), make(program))
            content = out.getvalue()
        else:
            members = {f"./{member}": make(program) for member, program in asset.members}
            content = gzip.compress(parts.tar(members), mtime=0)
        self.files[self.path(asset.url)] = content
        digest = parts.sha256(content)
        if asset.sums:
            bare = "dl.k8s.io" in asset.sums
            line = digest if bare else f"{digest}  {file}\n"
            path = self.path(asset.sums)
            self.files[path] = self.files.get(path, b"") + line.encode()
        else:
            old = "windows-container-networking" in file
            one = {"name": file, "digest": None if old else f"sha256:{digest}"}
            path = self.path(asset.release)
            before = json.loads(self.files.get(path, b'{"assets": []}'))["assets"]
            self.files[path] = json.dumps({"assets": [*before, one]}).encode()


def push_images(registry: Registry, versions: dict[str, str]) -> None:
    """Push all images for a bundle of these versions."""
    for wanted in wanted_images(versions, SYSTEMS):
        images = [parts.Image(wanted.name)]
        if "windows" in wanted.systems:
            images += [parts.Image(wanted.name, "windows", build) for build in BUILDS]
        push(registry, wanted.name, images)


def push(registry: Registry, name: str, images: list[parts.Image]) -> None:
    """Push an image for some platforms, plus one for a platform that labs do not use."""
    repository, _, tag = name.rpartition(":")
    other = parts.Image(name)
    other.config = parts.config([parts.layer(name)], machine="arm64")
    other.describe(parts.MANIFEST)
    other.platform = {"os": "linux", "architecture": "arm64"}
    for image in (other, *images):
        registry.push_image(repository, image)
    registry.push(repository, tag, parts.index([image.entry() for image in (other, *images)]))
