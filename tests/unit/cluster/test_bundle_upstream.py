"""Bundles made from where upstream has released their parts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import bundle_parts as parts
import pytest

from lab._errors import BrokenError, PreflightError, UsageError
from lab.cluster.bundle import upstream
from lab.cluster.bundle.manifest import Manifest
from lab.imaging import download

KUBELET = "/dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet"
PAUSE = "/registry.k8s.io/v2/pause"


def create(store, site, kubernetes="1.36", systems=("linux",), say=print) -> Manifest:
    return upstream.create(store, site.web(), kubernetes, systems, say)


def pause_layer() -> str:
    return parts.sha256(parts.Image("registry.k8s.io/pause:3.10.2").layer)


def partial(store) -> list[Path]:
    return [path for path in store._root.iterdir() if path.name.startswith(".")]


def test_the_newest_patch_version_is_fetched_checked_and_kept(store, site):
    made = create(store, site)
    assert made.kubernetes == "1.36.1"
    store.verify(made, print)
    assert {one.name for one in made.programs} == {*parts.LINUX, "crictl"}
    assert {one.name for one in made.images} == set(parts.IMAGES)
    kubelet = made.program("kubelet", "linux")
    assert kubelet.source == "https://dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet"
    assert store.blob(made, kubelet.blob).read_bytes() == parts.elf("kubelet")
    assert made.program("etcd", "linux").source.endswith("etcd-v3.6.8-linux-amd64.tar.gz")
    assert not any("windows" in path for path in site.paths())
    assert not partial(store)
    blobs = {path.name for path in (store.directory(made) / "blobs" / "sha256").iterdir()}
    assert blobs == {blob.sha256 for blob in made.blobs()}, "no archive is left"


def test_windows_comes_with_images_for_the_builds_that_labs_know(store, site):
    told: list[str] = []
    made = create(store, site, systems=("linux", "windows"), say=told.append)
    assert set(parts.WINDOWS) <= {one.name for one in made.programs if one.os == "windows"}
    agnhost = [one.os_version for one in made.images if "agnhost" in one.name]
    assert agnhost == [None, "10.0.17763.6054", "10.0.20348.2762", "10.0.26100.100"]
    overlay = made.program("cni/sdnoverlay.exe", "windows")
    assert overlay.source.endswith("(no checksum is published)")
    assert any("nobody publishes a checksum" in sentence for sentence in told)


def test_tokens_are_asked_for_by_repository_and_stay_with_their_registry(store, site):
    create(store, site)
    asked = [path for path in site.paths() if path.startswith("/auth/token")]
    assert len(asked) == len(parts.IMAGES)
    assert "/auth/token?scope=repository%3Acoredns%2Fcoredns%3Apull&service=it" in asked
    stored = [headers for path, headers in site.asked if path.startswith("/store/")]
    assert stored
    assert not any("Authorization" in headers for headers in stored)


def test_images_are_pulled_by_digest_once_the_tag_is_known(store, site):
    create(store, site)
    manifests = [path for path in site.paths() if path.startswith(f"{PAUSE}/manifests/")]
    own = parts.sha256(parts.Image("registry.k8s.io/pause:3.10.2").manifest)
    # the first one without a token, of each kind
    assert manifests == [f"{PAUSE}/manifests/3.10.2"] * 2 + [f"{PAUSE}/manifests/sha256:{own}"]


def test_a_patch_version_is_taken_by_its_word(store, site):
    assert create(store, site, "1.36.1").kubernetes == "1.36.1"
    assert not any("stable" in path for path in site.paths())


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.20", "is too old"),
        ("1.99", "is not known"),
        ("latest", "that is no version"),
        ("v1.36", "that is no version"),
    ],
)
def test_versions_that_labs_cannot_have_are_a_wrong_use(store, site, version, words):
    with pytest.raises(UsageError, match=words):
        create(store, site, version)
    assert site.asked == []


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (KUBELET, b"other", "it is not what it must be: expected sha256:"),
        (KUBELET, None, "404 Not Found"),
        (f"{KUBELET}.sha256", None, "404 Not Found"),
        (f"{KUBELET}.sha256", b"<html>", "does not list 'kubelet'"),
        ("/dl.k8s.io/release/stable-1.36.txt", b"<html>", "says '<html>'"),
        (f"{PAUSE}/manifests/3.10.2", None, "404 Not Found"),
        (f"{PAUSE}/manifests/3.10.2", b"<html>", "it is no JSON"),
        (f"{PAUSE}/manifests/3.10.2", parts.index([]), "its registry has none for linux"),
        (f"/store/{pause_layer()}", b"x", "it is not what it must be"),
    ],
)
def test_what_upstream_has_not_or_wrong_is_refused_by_its_address(
    store, site, path, content, words
):
    site.files.pop(path)
    if content is not None:
        site.files[path] = content
    with pytest.raises(PreflightError) as refused:
        create(store, site)
    assert words in str(refused.value)
    assert store.list() == ()


def test_an_archive_without_its_program_is_refused(store, site):
    path = next(path for path in site.files if path.endswith("etcd-v3.6.8-linux-amd64.tar.gz"))
    content = parts.tar({"readme": b"x"})
    site.files[path] = content
    sums = f"{path.rpartition('/')[0]}/SHA256SUMS"
    site.files[sums] = f"{parts.sha256(content)}  etcd-v3.6.8-linux-amd64.tar.gz".encode()
    with pytest.raises(PreflightError, match="it is not in it; there is readme"):
        create(store, site)


def test_a_mirror_with_other_content_is_named_and_what_came_is_thrown_away(store, site):
    site.files[KUBELET] = b"other"
    with pytest.raises(PreflightError) as refused:
        create(store, site)
    assert "downloading https://dl.k8s.io/" in str(refused.value)
    kept = [path for path in partial(store)[0].rglob("*") if path.is_file()]
    assert not any(path.read_bytes() == b"other" for path in kept)


def test_a_broken_connection_is_gone_on_with(store, site):
    site.cuts[KUBELET] = [10]
    create(store, site)
    asked = [headers.get("Range") for path, headers in site.asked if path == KUBELET]
    assert asked == [None, "bytes=10-"]


def test_a_registry_that_hangs_up_is_gone_on_with_in_the_next_try(store, site):
    path = f"/store/{pause_layer()}"
    site.cuts[path] = [50, *[0] * 9]
    with pytest.raises(BrokenError, match="50 bytes are there"):
        create(store, site)
    before = len(site.asked)
    told: list[str] = []
    site.cuts.clear()
    made = create(store, site, say=told.append)
    again = site.asked[before:]
    assert "going on with an interrupted one" in told
    assert KUBELET not in [path for path, _ in again]
    assert [headers["Range"] for one, headers in again if one == path] == ["bytes=50-"]
    assert not partial(store)
    store.verify(made, print)


def test_a_busy_server_is_asked_again_when_it_said(store, site, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(download.time, "sleep", waited.append)
    site.says[KUBELET] = [(429, {"Retry-After": "7"}), (503, {})]
    site.says[f"{PAUSE}/manifests/3.10.2"] = [(429, {"Retry-After": "100000"})]
    create(store, site)
    assert waited == [7.0, 4.0, 60.0]


def test_a_server_that_stays_busy_is_given_up(store, site):
    site.says[KUBELET] = [(429, {})] * 9
    with pytest.raises(PreflightError, match="429 Too Many Requests"):
        create(store, site)


def test_a_token_that_ran_out_is_asked_for_anew(store, site):
    blob = f"{PAUSE}/blobs/sha256:{pause_layer()}"
    realm = {"WWW-Authenticate": 'Bearer realm="https://auth.example/token"'}
    site.says[blob] = [(401, realm)]
    create(store, site)
    assert any("scope=repository%3Apause%3Apull" in path for path in site.paths())


@pytest.mark.parametrize(
    ("realm", "words"),
    [
        ('Bearer realm="file:///etc/passwd"', "does not say where"),
        ('Basic realm="it"', "401"),
        ('Bearer realm="https://auth.example/none"', "404"),
    ],
)
def test_a_registry_without_a_token_is_refused(store, site, realm, words):
    site.says[f"{PAUSE}/manifests/3.10.2"] = [(401, {"WWW-Authenticate": realm})]
    with pytest.raises(PreflightError, match=words):
        create(store, site)


def test_a_wrong_digest_header_is_refused(store, site):
    path = f"{PAUSE}/manifests/3.10.2"
    site.says[path] = [
        (401, {"WWW-Authenticate": 'Bearer realm="https://auth.example/token"'}),
        (200, {"Docker-Content-Digest": f"sha256:{'0' * 64}"}),
    ]
    with pytest.raises(PreflightError, match="says that it is sha256:0000"):
        create(store, site)


def test_a_killed_download_is_gone_on_with(store, site, tmp_path):
    inventory = tmp_path / "lab.toml"
    lines = [f'"{start}" = "{instead}"' for start, instead in site.web().mirrors.items()]
    inventory.write_text("\n".join([f'cache = "{tmp_path}/cache"', "[mirrors]", *lines]))
    layer = f"/store/{pause_layer()}"
    site.stops[layer] = threading.Event()
    command = [sys.executable, "-m", "lab", "bundle", "create", "--os", "linux"]
    environment = {**os.environ, "HYBRIDLAB_INVENTORY": str(inventory)}
    killed = subprocess.Popen(command, env=environment)
    assert site.stops[layer].wait(60)
    killed.kill()
    killed.wait()
    assert len(partial(store)) == 1
    assert store.list() == ()
    del site.stops[layer]
    before = len(site.asked)
    made = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "going on with an interrupted one" in made.stderr
    again = [path for path, _ in site.asked[before:]]
    assert layer in again
    assert KUBELET not in again
    store.verify(store.get(made.stdout.strip()), print)
    assert not partial(store)


def test_a_disk_that_gets_full_is_said_and_what_came_stays(store, site, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device", "kubelet.part")

    with monkeypatch.context() as patched:
        patched.setattr(download, "_copied", full)
        with pytest.raises(PreflightError, match=r"'kubelet.part': the disk is full") as refused:
            create(store, site)
    assert "lab image gc" in refused.value.cure
    assert len(partial(store)) == 1
    store.verify(create(store, site), print)


def test_layers_that_registries_may_not_keep_come_from_their_own_address(store, site):
    image = parts.Image("registry.k8s.io/pause:3.10.2")
    manifest = json.loads(image.manifest)
    manifest["layers"][0]["urls"] = ["https://github.com/layer"]
    image.manifest = json.dumps(manifest).encode()
    digest = parts.sha256(image.manifest)
    site.files[f"{PAUSE}/manifests/sha256:{digest}"] = image.manifest
    site.files[f"{PAUSE}/manifests/3.10.2"] = parts.index([image.entry()])
    site.files.pop(f"{PAUSE}/blobs/sha256:{parts.sha256(image.layer)}")
    site.files["/github.com/layer"] = image.layer
    store.verify(create(store, site), print)


@pytest.mark.parametrize("version", ["1.36.1\n", "1.36.\u0661", "1." + "9" * 5000, "01.36", "2.36"])
def test_a_version_that_cannot_be_is_a_wrong_use(store, site, version):
    with pytest.raises(UsageError, match="making a bundle of Kubernetes"):
        create(store, site, version)
    assert site.asked == []


def test_the_newest_version_is_not_taken_from_half_an_answer(store, site):
    path = "/dl.k8s.io/release/stable-1.36.txt"
    site.files[path], site.cuts[path] = b"v1.36.12", [len(b"v1.36.1")]
    with pytest.raises(PreflightError, match="1 more expected"):
        create(store, site)


def locked_zip(flag: int, method: int) -> bytes:
    """An archive whose headers say that it is encrypted, or packed in a way of their own."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("sdnoverlay.exe", b"x")
    found = bytearray(out.getvalue())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = found.find(mark)
        found[place + at], found[place + at + 2] = flag, method
    return bytes(found)


@pytest.mark.parametrize("content", [locked_zip(1, 0), locked_zip(0, 99)])
def test_an_archive_that_cannot_be_unpacked_is_refused(store, site, content):
    (path,) = (path for path in site.files if path.endswith("-v0.3.1.zip"))
    site.files[path] = content
    with pytest.raises(PreflightError, match="it cannot be unpacked"):
        create(store, site, systems=("linux", "windows"))


def test_an_index_that_names_an_image_again_and_again_is_pulled_once(store, site):
    path = f"{PAUSE}/manifests/3.10.2"
    top = json.loads(site.files[path])
    top["manifests"] *= 500
    site.files[path] = json.dumps(top).encode()
    assert [one.os for one in create(store, site).images if "pause" in one.name] == ["linux"]


def test_a_registry_that_sends_to_no_address_for_a_token_is_refused(store, site):
    path = f"{PAUSE}/manifests/3.10.2"
    site.says[path] = [(401, {"WWW-Authenticate": 'Bearer realm="http://["'})]
    with pytest.raises(PreflightError, match=r"does not say where: 'http://\['"):
        create(store, site)


def test_an_image_whose_parts_claim_to_be_huge_is_not_fetched(store, site):
    path = f"{PAUSE}/manifests/3.10.2"
    top = json.loads(site.files[path])
    for one in top["manifests"]:
        one["size"] = 1 << 45
    site.files[path] = json.dumps(top).encode()
    with pytest.raises(PreflightError, match="it is no document"):
        create(store, site)
