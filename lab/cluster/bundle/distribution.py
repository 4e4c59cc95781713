"""Container images pulled from their registries, by the OCI distribution protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from lab._errors import PreflightError
from lab._log import quantity
from lab.cluster import rules
from lab.cluster.bundle import names, oci
from lab.cluster.bundle.catalogue import Wanted
from lab.cluster.bundle.manifest import Blob, ContainerImage
from lab.cluster.bundle.oci import Descriptor
from lab.cluster.bundle.scratch import Scratch, guarded, settle
from lab.imaging.download import Web, fetch
from lab.imaging.job import Say
from lab.imaging.patience import Answer

_HUB, _HUBS_REGISTRY = "docker.io", "registry-1.docker.io"
_ACCEPTED = ", ".join(sorted(oci.INDEXES | oci.MANIFESTS))
_UNAUTHORIZED = 401
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_REPOSITORY = re.compile(r"/v2/(?P<path>.+)/(?:manifests|blobs)/[^/]+$")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Registries(Web):
    """The web, with the tokens that registries hand out for reading."""

    tokens: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """By the registry's host and the repository."""

    def open(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask for an address; a registry that wants a token is asked for one."""
        found = _REPOSITORY.search(urlsplit(url).path)
        if found is None:
            return Web.open(self, url, headers)
        place = urlsplit(url).netloc, found["path"]
        asked = {"Accept": _ACCEPTED, **headers} if "/manifests/" in url else {**headers}
        try:
            return Web.open(self, url, {**self._bearer(place), **asked})
        except HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate") or ""
            if error.code != _UNAUTHORIZED or not challenge.lower().startswith("bearer "):
                raise
            error.close()
        self.tokens[place] = self._token(dict(_PARAMETER.findall(challenge)), url, place[1])
        return Web.open(self, url, {**self._bearer(place), **asked})

    def _bearer(self, place: tuple[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[place]}"} if place in self.tokens else {}

    def _token(self, challenge: Mapping[str, str], url: str, path: str) -> str:
        doing = f"asking for a token to read {url}"
        realm = challenge.get("realm", "")
        if not _is_web(realm):
            raise PreflightError(doing, f"the registry does not say where: '{realm}'", self.instead)
        asked = {"scope": challenge.get("scope") or f"repository:{path}:pull"}
        if challenge.get("service"):
            asked["service"] = challenge["service"]
        said = self.text(f"{realm}?{urlencode(asked)}", doing)
        try:
            found = oci.parsed(said)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise PreflightError(doing, f"{realm} gave no token", self.instead) from None


def _is_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme in {"http", "https"}
    except ValueError:
        return False


def pull(web: Registries, wanted: Wanted, into: Scratch, say: Say) -> Iterator[ContainerImage]:
    """Pull an image for every platform that labs have, by digests once its tag is known.

    Raises
    ------
    PreflightError
        When the registry does not answer, has no such image or not for those systems, or what
        came is not what its digest says.
    BrokenError
        When the connection breaks again and again; what came stays for the next try.

    """
    base = _base(wanted.name)
    where = f"image '{wanted.name}'"
    for one in _chosen(web, wanted, base, into, where):
        manifest = oci.small(one.blob, where)
        _fetch(web, f"{base}/manifests/sha256:{manifest.sha256}", manifest, into, say)
        content = oci.document(into.read(manifest), where)
        config = oci.descriptor(content.get("config"), where)
        oci.small(config.blob, where)
        layers = oci.descriptors(content, "layers", where)
        for part in (config, *layers):
            _blob(web, base, part, into, say)
        contents = into.read(manifest), into.read(config.blob)
        found = oci.image(wanted.name, manifest, contents, f"{base}/", where)
        size = sum(layer.blob.size for layer in layers) / _MIB
        build = f" {found.os_version}" if found.os_version else ""
        say(f"{where} for {found.os}{build}: {quantity(len(layers), 'layer')}, {size:.0f} MiB")
        yield found


def _base(name: str) -> str:
    found = names.parse(name)
    assert found is not None, "the catalogue has full names"
    host = _HUBS_REGISTRY if found.host == _HUB else found.host
    return f"https://{host}/v2/{found.path}"


def _chosen(
    web: Registries, wanted: Wanted, base: str, into: Scratch, where: str
) -> list[Descriptor]:
    """The manifests that a tag leads to, for the systems that are wanted."""
    tag = wanted.name.rpartition(":")[2]
    content = _top(web, f"{base}/manifests/{tag}", where)
    top = oci.document(content, where)
    kind = oci.media_type(top)
    if kind in oci.MANIFESTS:
        blob = into.keep_bytes(content)
        return [Descriptor(kind, blob, None, {})]
    listed = oci.descriptors(top, "manifests", where)
    chosen = list({one.blob.sha256: one for one in listed if _fits(one, wanted)}.values())
    there = {one.platform.os for one in chosen if one.platform is not None}
    lacking = [system for system in wanted.systems if system not in there]
    if lacking:
        raise PreflightError(
            f"pulling {where}",
            f"its registry has none for {' and '.join(lacking)} on {oci.ARCHITECTURE}",
            "leave those out with --os, or make the bundle from a directory",
        )
    return chosen


def _fits(one: Descriptor, wanted: Wanted) -> bool:
    platform = one.platform
    if platform is None or not platform.of_a_lab() or platform.os not in wanted.systems:
        return False
    return platform.os != "windows" or rules.windows_build(platform.os_version or "") is not None


def _top(web: Registries, url: str, where: str) -> bytes:
    """What a tag stands for; small, and without a digest to go by."""
    doing = f"looking for {where}"
    content, headers = web.small(url, doing)
    said = headers.get("Docker-Content-Digest", "")
    found = f"sha256:{sha256(content).hexdigest()}"
    if said.startswith("sha256:") and said != found:
        raise PreflightError(
            doing, f"{url} says that it is {said}, and it is {found}", web.trusting
        )
    return content


def _blob(web: Registries, base: str, part: Descriptor, into: Scratch, say: Say) -> None:
    try:
        _fetch(web, f"{base}/blobs/sha256:{part.blob.sha256}", part.blob, into, say)
    except PreflightError:
        for url in part.urls:  # a layer that registries may not keep
            if urlsplit(url).scheme == "https":
                _fetch(web, url, part.blob, into, say)
                return
        raise


def _fetch(web: Web, url: str, blob: Blob, into: Scratch, say: Say) -> None:
    if into.has(blob):
        return
    doing = f"downloading {url}"
    path = into.path(blob)
    with guarded(doing):
        fetch(web, url, path, f"sha256:{blob.sha256}", say, blob.size)
        settle(path)
        if not into.has(blob):
            path.unlink()
            raise PreflightError(
                doing, f"it has not the {blob.size:,} bytes that it should", web.trusting
            )
