"""A real containerd takes what the lab gives it on the medium."""

import os
import shutil
import subprocess

import pytest
from processes import run_program

from lab._deadline import Deadline
from lab.machines.bundle import medium
from lab.machines.images.medium import opened

PROGRAMS = ("containerd", "ctr")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd wants root"),
]
ETCD = "registry.k8s.io/etcd:3.6.8-0"
PAUSE = "registry.k8s.io/pause:3.10.2"
CONFIGURATION = """
version = 2
root = "{place}/root"
state = "{place}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{place}/socket"
[ttrpc]
  address = "{place}/ttrpc"
"""


WINDOWS = True


@pytest.fixture
def ctr(tmp_path):
    place = tmp_path / "containerd"
    place.mkdir()
    (place / "config.toml").write_text(CONFIGURATION.format(place=place))
    command = [str(shutil.which("containerd")), "-c", str(place / "config.toml")]
    address = ["--address", str(place / "socket"), "--namespace", "k8s.io"]

    def run(*arguments: str, check: bool = True) -> str:
        asked = ["ctr", *address, *arguments]
        return run_program(asked, check=check).stdout

    with (place / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            Deadline(60).wait(
                "waiting for containerd",
                lambda: run("version", check=False),
                until=bool,
                every=0.1,
            )
            yield run
        finally:
            running.terminate()
            running.wait(60)


def image_list(ctr):
    """Digest of every image by its name."""
    rows = [line.split() for line in ctr("images", "ls").splitlines()[1:]]
    return {row[0]: row[2] for row in rows}


def test_it_imports_the_archives_of_the_medium_under_their_full_names(store, made, ctr, tmp_path):
    image = medium.medium(store, made, "linux")
    for name in (ETCD, PAUSE):
        archive = tmp_path / "image.tar"
        with opened(image, "reading", "") as found:
            archive.write_bytes(found.read(f"/{medium.image_path(name)}"))
        ctr("images", "import", str(archive))
    assert image_list(ctr) == {
        name: f"sha256:{made.image(name.rpartition(':')[0]).manifest.sha256}"
        for name in (ETCD, PAUSE)
    }
    assert all("complete" in line for line in ctr("images", "check").splitlines()[1:])
