"""A bundle, or what was made of it, with a file cut short: refused by name, and nothing is made."""

from pathlib import Path

import pytest
from bundle.made_bundle import missing_bundle
from container_labs import CLUSTER_UP, ContainerLabs, why_not
from processes import run_program

from lab.inventory.inventory import STOCK
from lab.machines.bundle.store import BundleStore
from lab.machines.images.golden import cache_directory
from lab.machines.nspawn import prepared

KUBERNETES = "1.36"


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    """Labs with a cache of their own, whose files are those of the user's own cache by links."""
    why = why_not() or missing_bundle()
    if why:
        pytest.skip(why)
    base = tmp_path_factory.mktemp("cache")
    shared = cache_directory(STOCK)
    cache = base / "hybridlab"
    cache.mkdir(mode=0o700)
    kept = BundleStore(shared).newest(KUBERNETES)
    if not prepared.place(shared, kept).is_dir():
        pytest.skip("the bundle was never prepared for system containers: 'make e2e' does it")
    for path in (BundleStore(shared).directory(kept), prepared.place(shared, kept)):
        place = cache / path.parent.name
        place.mkdir()
        linked = ("cp", "--archive", "--link", "--", str(path), str(place))
        run_program(linked)
    (cache / "roots").symlink_to(shared / "roots")
    made = ContainerLabs(tmp_path_factory.mktemp("state"), extra={"XDG_CACHE_HOME": str(base)})
    yield made
    assert made.left() == set()


@pytest.fixture
def cache(labs):
    return Path(labs.extra["XDG_CACHE_HOME"]) / "hybridlab"


@pytest.fixture
def manifest(cache):
    return BundleStore(cache).newest(KUBERNETES)


@pytest.fixture
def damaged():
    """Files that were put aside, by their names; they go back."""
    aside = dict[Path, Path]()
    yield aside
    for path, kept in aside.items():
        path.unlink(missing_ok=True)
        kept.rename(path)


def cut(path: Path, aside: dict[Path, Path]) -> int:
    """Leave the first half of a file, and the file that is linked elsewhere as it is; its size."""
    kept = path.with_name(f"{path.name}.aside")
    path.rename(kept)
    aside[path] = kept
    whole = kept.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    path.chmod(kept.stat().st_mode)
    return len(whole)


def refused(labs: ContainerLabs) -> str:
    stderr = labs.run(*CLUSTER_UP, code=4).stderr
    assert not (labs.state / "labs/cluster/layout.json").exists()
    assert labs.left() == set()
    return stderr


@pytest.mark.parametrize("what", ["program", "image manifest", "image layer"])
def test_a_blob_that_is_cut_short_is_named_with_what_it_belongs_to(
    labs, cache, manifest, damaged, what
):
    """Where it is not prepared yet: afterwards nobody reads the blobs again."""
    ready = prepared.place(cache, manifest)
    ready.rename(ready.with_name("aside"))
    try:
        program = next(program for program in manifest.programs if program.name == "kubelet")
        image = next(image for image in manifest.images if "kube-proxy" in image.name)
        blob, owner = {
            "program": (program.blob, "program 'kubelet' (linux)"),
            "image manifest": (image.manifest, f"image '{image.name}' (linux), its manifest"),
            "image layer": (image.layers[0].blob, f"image '{image.name}' (linux), layer 1"),
        }[what]
        path = BundleStore(cache).blob(manifest, blob)
        size = cut(path, damaged)
        said = refused(labs)
    finally:
        ready.with_name("aside").rename(ready)
    assert f"{owner}: '{path}' has {size // 2:,} bytes of {size:,}" in said
    assert "make it again with 'lab bundle create'" in said


def test_a_manifest_that_is_cut_short_is_no_bundle(labs, cache, manifest, damaged):
    cut(BundleStore(cache).directory(manifest) / "manifest.json", damaged)
    said = refused(labs)
    assert f"lab bundle create --kubernetes {KUBERNETES}" in said


@pytest.mark.parametrize("what", ["bundle/bin/kubelet", "an image's layer", "an archive"])
def test_what_was_prepared_and_is_cut_short_is_named(labs, cache, manifest, damaged, what):
    ready = prepared.place(cache, manifest)
    path = {
        "an image's layer": max(ready.glob("containerd/*.content.*/blobs/sha256/*"), key=large),
        "an archive": max(ready.glob("bundle/images/*.tar"), key=large),
    }.get(what, ready / what)
    size = cut(path, damaged)
    said = refused(labs)
    assert f"'{path.relative_to(ready)}' has {size // 2:,} bytes of {size:,}" in said
    assert f"rm -r '{ready}'" in said


def large(path: Path) -> int:
    return path.stat().st_size


def test_a_root_file_system_with_a_truncated_systemd_is_reported_for_its_machine(
    labs, cache, damaged
):
    shared = (cache / "roots").resolve()
    (cache / "roots").unlink()
    try:
        run_program(("cp", "--archive", "--link", "--", shared, cache / "roots"))
        for systemd in (cache / "roots").glob("debian-12-*/root/usr/lib/systemd/systemd"):
            cut(systemd, damaged)
        assert damaged
        stderr = labs.up(code=3).stderr
        labs.run("down", "small")
    finally:
        for path, kept in damaged.items():
            kept.replace(path)
        damaged.clear()
        run_program(("rm", "-r", "--", cache / "roots"))
        (cache / "roots").symlink_to(shared)
    assert "booting machine '" in stderr
    assert labs.left() == set()
