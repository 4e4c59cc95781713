"""The bundle's own registry."""

from __future__ import annotations

import hashlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import bundle_parts as parts
import pytest

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.cluster.bundle import answering, directory, registry
from lab.cluster.bundle.catalogue import Wanted
from lab.cluster.bundle.distribution import Registries, pull
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.registry import Registry
from lab.cluster.bundle.scratch import Scratch
from lab.cluster.bundle.store import Store

PAUSE = "registry.k8s.io/pause:3.10.2"


@pytest.fixture
def made(store: Store, tmp_path: Path) -> Manifest:
    source = parts.directory(tmp_path / "given", windows=True)
    two = parts.docker_archive("example.com/pause:3.10.2")
    (source / "images" / "two.tar").write_bytes(two)
    return directory.create(store, source, (), None, print)


@pytest.fixture
def served(store: Store, made: Manifest) -> Iterator[Registry]:
    with registry.serving(store, made, "127.0.0.1") as found:
        yield found


def ask(served: Registry, path: str, method: str = "GET", **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://{served.address}{path}", headers=named, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_it_speaks_the_distribution_protocol(served):
    assert ask(served, "/v2/")[0] == 200
    assert ask(served, "/v2/etcd/tags/list")[2] == b'{"name": "etcd", "tags": ["3.6.8-0"]}'
    code, _, body = ask(served, "/v2/etcd/manifests/9")
    assert (code, json.loads(body)["errors"][0]["code"]) == (404, "MANIFEST_UNKNOWN")
    assert ask(served, "/v2/etcd/blobs/sha256:00")[0] == 404
    assert ask(served, "/v2/nothing/tags/list")[0] == 404
    assert ask(served, "/etc/passwd")[0] == 404
    assert ask(served, "/v2/../../etc/passwd")[0] == 404
    assert ask(served, "/v2/etcd/blobs/..%2f..%2fmanifest.json")[0] == 404
    assert ask(served, "/v2/etcd/manifests/3.6.8-0", "PUT")[0] == 501
    assert ask(served, "/v2/etcd/manifests/3.6.8-0", "DELETE")[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/v2/etcd/manifests/3.6.8-0",
        "/v2/etcd/manifests/3.6.8-0?ns=registry.k8s.io",
        "/v2/registry.k8s.io/etcd/manifests/3.6.8-0",
    ],
)
def test_an_image_of_one_platform_is_its_manifest(served, made, path):
    code, headers, body = ask(served, path)
    image = made.image("registry.k8s.io/etcd")
    assert code == 200
    assert hashlib.sha256(body).hexdigest() == image.manifest.sha256
    assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
    assert headers["Docker-Content-Digest"] == f"sha256:{image.manifest.sha256}"
    bare = ask(served, path, "HEAD")
    assert (bare[0], bare[1]["Content-Length"], bare[2]) == (200, str(len(body)), b"")


def test_an_image_of_several_platforms_is_an_index_that_leads_to_them(served):
    code, headers, body = ask(served, "/v2/pause/manifests/3.10.2?ns=registry.k8s.io")
    assert (code, headers["Content-Type"]) == (200, "application/vnd.oci.image.index.v1+json")
    found = json.loads(body)["manifests"]
    assert [one["platform"] for one in found] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "amd64", "os": "windows", "os.version": "10.0.17763.6054"},
        {"architecture": "amd64", "os": "windows", "os.version": "10.0.20348.2762"},
    ]
    for one in found:
        code, _, content = ask(served, f"/v2/pause/manifests/{one['digest']}")
        assert (code, f"sha256:{hashlib.sha256(content).hexdigest()}") == (200, one["digest"])
    digest = headers["Docker-Content-Digest"]
    assert ask(served, f"/v2/pause/manifests/{digest}")[2] == body


def test_a_path_that_two_registries_have_is_told_apart_by_their_names(served):
    assert ask(served, "/v2/pause/manifests/3.10.2")[0] == 404
    one = ask(served, "/v2/pause/manifests/3.10.2?ns=example.com")
    other = ask(served, "/v2/example.com/pause/manifests/3.10.2")
    assert one[0] == 200
    assert one[2] == other[2]
    assert ask(served, "/v2/pause/manifests/3.10.2?ns=docker.io")[0] == 404


@pytest.mark.parametrize(
    ("wanted", "code", "part"),
    [
        ("bytes=0-4", 206, slice(0, 5)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-7", 206, slice(-7, None)),
        ("bytes=0-99999999", 206, slice(0, None)),
        ("bytes=99999999-", 416, None),
        ("bytes=5-2", 416, None),
        ("bytes=-", 416, None),
        ("bytes=-0", 416, None),
        (f"bytes=0-{'9' * 5000}", 416, None),
        ("bytes=0-1,3-4", 416, None),
        ("lines=1-2", 416, None),
    ],
)
def test_blobs_are_given_in_parts(served, made, wanted, code, part):
    blob = made.image("registry.k8s.io/etcd").config
    path = f"/v2/etcd/blobs/sha256:{blob.sha256}"
    whole = ask(served, path)[2]
    assert hashlib.sha256(whole).hexdigest() == blob.sha256
    found = ask(served, path, Range=wanted)
    assert found[0] == code
    if part is not None:
        assert found[2] == whole[part]
        first = range(len(whole))[part].start
        last = first + len(found[2]) - 1
        assert found[1]["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"


def test_the_labs_own_client_pulls_what_was_put_in(served, made, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    web = Registries({"https://registry.k8s.io/": f"http://{served.address}/"}, {})
    found = list(
        pull(
            web,
            Wanted("registry.k8s.io/coredns/coredns:v1.14.2", ("linux",)),
            Scratch(tmp_path / "a"),
            print,
        )
    )
    own = made.image("registry.k8s.io/coredns/coredns")
    assert [(one.manifest, one.config, one.layers) for one in found] == [
        (own.manifest, own.config, own.layers)
    ]


def test_a_port_that_is_taken_is_refused(store, made, served):
    port = served.server_address[1]
    with (
        pytest.raises(PreflightError, match=rf"127\.0\.0\.1:{port}: address already in use"),
        registry.serving(store, made, "127.0.0.1", port),
    ):
        pass


def test_a_client_that_goes_away_in_the_middle_is_no_news(store, made, capfd):
    layer = made.image("registry.k8s.io/etcd").layers[0].blob
    store.blob(made, layer).write_bytes(bytes(layer.size + (64 << 20)))  # more than buffers take
    large = replace(layer, size=layer.size + (64 << 20))
    with registry.serving(store, made, "127.0.0.1") as served:
        one = served.contents.blob(f"sha256:{layer.sha256}")
        assert one is not None
        served.contents._blobs[one.digest] = replace(one, size=large.size)
        with socket.create_connection(("127.0.0.1", served.server_port), timeout=10) as client:
            client.sendall(f"GET /v2/etcd/blobs/{one.digest} HTTP/1.1\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        assert ask(served, "/v2/")[0] == 200
    assert capfd.readouterr().err == ""


def told(served: Registry, request: bytes) -> bytes:
    """All that comes on a connection of its own until the server closes it."""
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=30) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://[ HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /v2/%ff%00/manifests/%0a HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /v2/?" + b"a&" * 20_000 + b" HTTP/1.1\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /v2/ HTTP/1.1\r\nContent-Length: 20\r\n\r\nGET /v2/ HTTP/1.1\r\n\r\n", b"200"),
    ],
    ids=["no address", "odd bytes", "long query", "body"],
)
def test_odd_requests_have_one_answer_each_and_are_no_news(served, capfd, request_, status):
    answer = told(served, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert capfd.readouterr().err == ""


def test_a_request_that_trickles_in_is_given_up(served, monkeypatch):
    monkeypatch.setattr(answering.Handler, "timeout", 0.5)
    deadline = Deadline(30.0)
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=0.05) as client:

        def trickle() -> str:
            try:
                client.sendall(b"G")
                return "" if client.recv(1) else "closed"
            except TimeoutError:
                return ""
            except ConnectionError:
                return "closed"

        deadline.wait("trickling", trickle)
    assert ask(served, "/v2/")[0] == 200


def test_a_blob_that_is_gone_is_said_and_not_half_an_answer(served, store, made):
    blob = made.image("registry.k8s.io/etcd").config
    store.blob(made, blob).unlink()
    code, _, body = ask(served, f"/v2/etcd/blobs/sha256:{blob.sha256}")
    assert (code, b"the bundle is damaged: no such file" in body) == (500, True)


@pytest.mark.parametrize("address", ["a..b", "192.0.2.1"])
def test_an_address_that_is_none_is_refused(store, made, address):
    with pytest.raises(PreflightError, match="serving the bundle's images at"):
        registry.listening(store, made, address, 0)
