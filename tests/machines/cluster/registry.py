"""A container registry on loopback: Debian's docker-registry, with TLS and an account."""

import base64
import http.client
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import bundle_parts as parts
from certificates import Authority

from lab._deadline import Deadline

MISSING = [name for name in ("docker-registry", "skopeo") if shutil.which(name) is None]
PASSWORD = "secret"
ENCRYPTED = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
CONFIGURATION = """
version: 0.1
log: {{accesslog: {{disabled: false}}, level: warn}}
storage: {{filesystem: {{rootdirectory: {place}/data}}}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {certificate}, key: {key}}}
auth: {{htpasswd: {{realm: it, path: {place}/htpasswd}}}}
validation: {{manifests: {{urls: {{allow: ["^https://"]}}}}}}
"""
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """A registry that tests push to, with a record of its requests."""

    def __init__(self, address: str, authority: Path, data: Path, log: Path) -> None:
        self.address = address
        self.authority = authority
        self.data = data
        self._log = log

    def asked(self) -> list[str]:
        """The paths of all requests with the account."""
        lines = re.findall(r'"GET (\S+) HTTP/1.1" 200', self._log.read_text())
        return [line for line in lines if line != "/v2/"]

    def blob(self, content: bytes) -> Path:
        """The file of a blob."""
        digest = parts.sha256(content)
        return self.data / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data"

    def push(self, repository: str, reference: str, content: bytes, kind: str = INDEX) -> None:
        """Push an index or a manifest."""
        path = f"/v2/{repository}/manifests/{reference}"
        self._ask("PUT", path, content, {"Content-Type": kind})

    def push_image(self, repository: str, image: parts.Image, kind: str = MANIFEST) -> None:
        """Push an image by its digest."""
        for content in (image.config, image.layer):
            place = self._ask("POST", f"/v2/{repository}/blobs/uploads/")
            path = place.partition(self.address)[2]
            self._ask("PUT", f"{path}&digest=sha256:{parts.sha256(content)}", content)
        self.push(repository, f"sha256:{parts.sha256(image.manifest)}", image.manifest, kind)

    def _ask(
        self, verb: str, path: str, content: bytes = b"", more: dict[str, str] | None = None
    ) -> str:
        """Send a request; return the Location header of the response."""
        host, port = self.address.split(":")
        account = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        trusted = ssl.create_default_context(cafile=str(self.authority))
        with closing(http.client.HTTPSConnection(host, int(port), context=trusted)) as connection:
            headers = {"Authorization": f"Basic {account}", **(more or {})}
            connection.request(verb, path, content, headers)
            answer = connection.getresponse()
            assert answer.status < 300, (path, answer.read())
            return answer.headers.get("Location", "")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(place: Path) -> Iterator[Registry]:
    authority = Authority(place)
    pair = authority.sign("registry", addresses=("127.0.0.1",))
    port = _free_port()
    (place / "htpasswd").write_text(f"me:{ENCRYPTED}\n")
    (place / "config.yml").write_text(
        CONFIGURATION.format(place=place, port=port, certificate=pair.certificate, key=pair.key)
    )
    log = place / "log"
    registry = Registry(f"127.0.0.1:{port}", authority.file, place / "data", log)
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(place / "config.yml")], stdout=out, stderr=out
        )
    try:
        Deadline(60).wait("waiting for the registry", lambda: _answers(port, process), every=0.02)
        yield registry
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the registry has ended"
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
