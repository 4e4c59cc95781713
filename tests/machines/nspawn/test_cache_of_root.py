"""Root runs what is in the cache: it must be root's own, and a prepared bundle must be whole."""

import os
import sys

import pytest

from lab._errors import PreflightError
from lab.machines.nspawn.preflight import strangers_cache
from lab.machines.nspawn.prepared import check, fill_store

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@as_root
def test_a_cache_of_roots_own_or_none_at_all_is_used(tmp_path):
    assert strangers_cache(tmp_path / "none") is None
    (tmp_path / "roots").mkdir(mode=0o755)
    assert strangers_cache(tmp_path) is None


# SECURITY.md: Root runs what is in its own cache alone.
@as_root
@pytest.mark.parametrize("place", ["", "roots", "containers", "bundles"])
def test_a_cache_that_another_user_owns_or_may_write_is_refused(tmp_path, place):
    path = tmp_path / place
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    diagnosis = strangers_cache(tmp_path)
    assert diagnosis is not None
    assert str(path) in diagnosis.seen
    path.chmod(0o755)
    os.chown(path, 65534, 65534)
    assert strangers_cache(tmp_path) is not None


# SECURITY.md: Root runs what is in its own cache alone.
@as_root
def test_a_cache_that_another_user_may_move_away_is_refused(tmp_path):
    cache = tmp_path / "theirs" / "cache"
    cache.mkdir(parents=True)
    os.chown(cache.parent, 65534, 65534)
    assert strangers_cache(cache) is not None


FILES = {"bundle/bin/kubelet": b"program", "containerd/blobs/sha256/0123": b"layer of an image"}


@pytest.fixture
def ready(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (tmp_path / "containerd/link").symlink_to("nowhere")
    lines = (f"{len(content)} {name}\n" for name, content in FILES.items())
    (tmp_path / "files").write_text("".join(lines))
    return tmp_path


def test_a_whole_one_is_taken(ready):
    check(ready)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(b""), "has 0 bytes of"),
        (lambda path: path.write_bytes(path.read_bytes() * 2), "has "),
    ],
)
def test_a_file_that_is_not_as_it_was_made_is_named(ready, name, damage, words):
    damage(ready / name)
    with pytest.raises(PreflightError) as refused:
        check(ready)
    assert f"'{name}' {words}" in refused.value.happened
    assert f"rm -r '{ready}'" in refused.value.hint


def test_one_without_its_list_is_refused(ready):
    (ready / "files").unlink()
    with pytest.raises(PreflightError, match="no list of its files"):
        check(ready)


def test_of_many_the_first_are_named_and_the_others_counted(ready):
    lines = "".join(f"1 bundle/{number}\n" for number in range(9))
    (ready / "files").write_text(lines)
    with pytest.raises(PreflightError, match="'bundle/3' is gone; and 5 more"):
        check(ready)


CONTAINERD = """
(address,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--address=")]
server = socket.socket(socket.AF_UNIX)
server.bind(address)
server.listen()
signal.pause()
"""
CTR = """
socket.socket(socket.AF_UNIX).connect(sys.argv[sys.argv.index("--address") + 1])
print(*sys.argv[3:], file=open("../asked", "a"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own needs root")
def test_images_are_imported_however_long_the_caches_path_is(tmp_path):
    draft, programs = tmp_path / ("long" * 30), tmp_path / "bundle" / "bin"
    draft.mkdir()
    programs.mkdir(parents=True)
    for name, text in (("containerd", CONTAINERD), ("ctr", CTR)):
        path = programs / name
        path.write_text(f"#!{sys.executable}\nimport signal, socket, sys\n{text}")
        path.chmod(0o755)
    fill_store(draft, tmp_path / "bundle", [tmp_path / "pause.tar"])
    commands = (tmp_path / "asked").read_text()
    assert f"images import --local {tmp_path}/pause.tar" in commands
    assert not list(draft.iterdir())
