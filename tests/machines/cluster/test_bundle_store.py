"""The store: what is in it is whole, and what is not is said."""

import json
import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import bundle_parts as parts
import pytest
from broken_json import COUNT, SEED, broken

from lab._errors import BrokenError, PreflightError, UsageError
from lab.machines.bundle import directory
from lab.machines.bundle.manifest import (
    FILE,
    Blob,
    ContainerImage,
    Layer,
    Manifest,
    Program,
    decode,
)
from lab.machines.bundle.store import BundleStore, Scratch
from lab.state.lock import lab_lock


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", ["", "bundles"])
def test_root_writes_into_no_cache_of_another_user(store, source, made, place):
    path = store.directory(made).parent.parent / place
    os.chown(path, 65534, 65534)
    mine = source.parent / "mine"
    mine.mkdir()
    (mine / "file").touch()
    partial = store.directory(made).with_name(".upstream-1.36.1-linux.partial")
    partial.symlink_to(mine)
    with pytest.raises(PreflightError, match=f"'{path}' belongs to"):
        store.add("upstream-1.36.1-linux", lambda _: made, print, goes_on=True)
    with pytest.raises(PreflightError, match=f"'{path}' belongs to"):
        store.gc((), yes=True)
    assert (mine / "file").exists()
    assert partial.is_symlink()


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("earlier", [True, False])
def test_root_makes_no_cache_where_another_user_may_lead_it_elsewhere(
    tmp_path, monkeypatch, made, earlier
):
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    mine.mkdir()

    def come() -> None:
        theirs.symlink_to(mine)
        os.chown(theirs, 65534, 65534, follow_symlinks=False)

    if earlier:
        come()
    else:  # just after root has looked
        make = Path.mkdir
        monkeypatch.setattr(
            Path, "mkdir", lambda *a, **b: [theirs.exists() or come(), make(*a, **b)]
        )
    with pytest.raises(PreflightError, match=f"'{theirs}' belongs to"):
        BundleStore(theirs / "cache").add("new", lambda _: made, print, goes_on=True)
    assert not list(mine.rglob("*.partial"))


def test_order_of_what_went_in_does_not_matter(made):
    turned = Manifest(made.versions[::-1], made.programs[::-1], made.images[::-1])
    assert turned.digest == made.digest


def edited(manifest: Manifest, old: str, new: str) -> bytes:
    content = manifest.encoded().decode()
    assert old in content
    return content.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{", "", "the file: invalid JSON"),
        ('"programs"', '"programmes"', "programs: field required"),
        ('"size": ', '"size": "', "invalid JSON"),
        ('"name": "cni/bridge"', '"name": 5', "programs.0.name: input should be a valid string"),
        ('"os": "linux"', '"os": "beos"', "images.0.os: input should be 'linux' or 'windows'"),
        ('"cni/bridge"', '"../bridge"', "'../bridge' is not a valid program name"),
        ('"cni/bridge"', '"cni/flannel"', "program 'cni/flannel' for linux is listed 2 times"),
        ('"1.36.1"', '"1.36"', "there is no Kubernetes version"),
        ('"name": "ghcr.io/', '"name": "', "' is not a valid full image name"),
        (
            '"component": "cni-plugins"',
            '"component":  "cni-plugins"',
            "is not in the form that lab writes",
        ),
        ('"sha256": "', '"sha256": "../', "is not a valid SHA-256"),
        (f'"{directory.SOURCE}"', '"\\u001b[2J"', "is not a valid printable text"),
        ('"component": "cni-plugins"', '"component": "\\u202e"', "is not a valid printable text"),
        ('"containerd",\n   "2', '"container d",\n   "2', "is not a valid component name"),
        ('"1.36.1"', f'"1.36.{"9" * 5000}"', "is not a valid version"),
        ('"component"', '"author": "me",\n   "component"', "is not in the form that lab writes"),
    ],
)
def test_a_foreign_or_damaged_manifest_is_refused_with_its_place(made, old, new, words):
    with pytest.raises(PreflightError) as refused:
        decode(edited(made, old, new), "bundles/x/manifest.json")
    assert words in refused.value.happened
    assert "'bundles/x/manifest.json'" in refused.value.doing


def test_damaged_blobs_are_named_with_what_they_belong_to_and_those_beyond_eight_counted(
    store, made
):
    kubelet = store.blob(made, made.program("kubelet", "linux").blob)
    kubelet.write_bytes(b"x" * kubelet.stat().st_size)
    store.blob(made, made.program("runc", "linux").blob).unlink()
    pause = made.image("registry.k8s.io/pause")
    with store.blob(made, pause.layers[0].blob).open("ab") as file:
        file.write(b"x")
    with pytest.raises(BrokenError) as broken:
        store.verify(made, print)
    message = broken.value.happened
    assert "program 'kubelet' (linux): " in message
    assert "has other content" in message
    assert "program 'runc' (linux): " in message
    assert "no such file" in message
    assert "image 'registry.k8s.io/pause:3.10.2' (linux), layer 1: " in message
    assert message.count(";") == 2
    blobs = set(made.blobs())
    for blob in blobs:
        store.blob(made, blob).unlink(missing_ok=True)
    with pytest.raises(BrokenError, match=f"; and {len(blobs) - 8} more") as broken:
        store.verify(made, print)
    assert broken.value.happened.count(";") == 8


@pytest.mark.parametrize("damage", ["gone", "short", "another", "foreign"])
def test_a_damaged_bundle_is_fixed_by_making_it_again(store, source, made, damage):
    blob = store.blob(made, made.program("runc", "linux").blob)
    if damage == "gone":
        blob.unlink()
    elif damage == "foreign":
        (store.directory(made) / "manifest.json").write_text("{}")
    else:
        blob.write_bytes(b"x" * (1 if damage == "short" else blob.stat().st_size))
    told: list[str] = []
    parts.create(store, source, say=told.append)
    assert f"bundle '{made.short}' is damaged; making it again" in told
    store.verify(made, print)


def test_a_directory_under_another_bundles_name_is_refused_and_is_garbage(store, made):
    other = store._root / ("0" * 12)
    store.directory(made).rename(other)
    with pytest.raises(PreflightError, match="is another bundle's"):
        store.get("0000")
    assert "is another bundle's" in store.list()[0].detail
    assert store.gc((), yes=True).paths == (f"bundles/{'0' * 12}",)


def test_a_bundle_is_found_by_the_beginning_of_its_digest(store, made):
    assert store.get(made.short[:3]) == made
    assert store.get(made.digest) == made
    for wrong in ("", "xyz"):
        with pytest.raises(UsageError, match=f"none matches; the bundles are: {made.short}"):
            store.get(wrong)
    with pytest.raises(UsageError, match=f"the only one is '{made.digest}'"):
        store.get(made.short + "0" * 52)


def another(store: BundleStore, source: Path, kubernetes: str) -> Manifest:
    versions = {**parts.VERSIONS, "kubernetes": kubernetes}
    (source / "versions.json").write_text(json.dumps(versions))
    return parts.create(store, source)


@pytest.mark.usefixtures("made")
def test_the_newest_patch_version_of_a_minor_is_chosen(store, source):
    tenth = another(store, source, "1.36.10")
    another(store, source, "1.36.9")
    assert store.newest("1.36") == tenth
    with pytest.raises(PreflightError, match=r"lab bundle create --kubernetes 1\.35"):
        store.newest("1.35")


@pytest.mark.parametrize(
    ("systems", "add_on", "hint"),
    [
        ({"linux"}, "calico", "lab bundle create --kubernetes 1.35 --os linux --with calico"),
        ({"linux", "windows"}, "", "lab bundle create --kubernetes 1.35"),
    ],
)
def test_a_missing_bundle_is_made_with_all_that_the_lab_needs_and_no_more(
    store, systems, add_on, hint
):
    with pytest.raises(PreflightError) as raised:
        store.newest("1.35", systems, add_on)
    command, _, size = str(raised.value.hint).partition("  # ")
    assert command == hint
    assert size.startswith("downloads about ")


def test_of_two_with_one_version_the_last_made_is_chosen(store, source, made):
    (source / "linux-amd64" / "crictl").write_bytes(parts.elf("crictl"))
    later = parts.create(store, source)
    os.utime(store.directory(made) / "manifest.json", (1, 1))
    assert store.newest("1.36") == later


def test_garbage_is_what_a_newer_bundle_of_the_minor_stands_for(store, source, made):
    other = another(store, source, "1.35.1")
    newer = another(store, source, "1.36.2")
    found = (f"bundles/{made.short}",)
    assert store.gc((), yes=False).paths == found
    assert store.gc((made.digest,), yes=True).paths == ()
    assert store.gc((), yes=True).paths == found
    assert {one.digest for one in store.list()} == {other.short, newer.short}


def test_a_bundle_without_windows_does_not_stand_for_one_with_it(store, source, tmp_path):
    both = parts.create(store, parts.directory(tmp_path / "both", windows=True))
    linux = another(store, source, "1.36.2")
    assert store.newest("1.36") == linux
    assert store.newest("1.36", {"linux", "windows"}) == both
    assert store.gc((), yes=True).paths == ()
    store.gc((linux.digest,), yes=True)
    another(store, tmp_path / "both", "1.36.3")
    assert {*store.gc((), yes=True).paths} == {
        f"bundles/{manifest.short}" for manifest in (linux, both)
    }


def test_what_is_not_the_labs_beside_the_bundles_stays(store, made):
    for other in ("backup", "0123456789AB", ".snapshot", ".nfs0001"):
        (store._root / other).mkdir()
    assert [one.digest for one in store.list()] == [made.short]
    assert store.gc((), yes=True).paths == ()
    assert len(list(store._root.iterdir())) == 5


def test_a_bundle_behind_a_link_is_read_and_its_link_is_garbage(store, source, made, tmp_path):
    moved = store.directory(made).rename(tmp_path / "other disk")
    store.directory(made).symlink_to(moved)
    store.verify(store.get(made.short), print)
    another(store, source, "1.36.2")
    assert store.gc((), yes=True).paths == (f"bundles/{made.short}",)
    assert moved.is_dir()
    assert not store.directory(made).is_symlink()


def test_one_that_is_begun_while_garbage_is_collected_stays(store, made, monkeypatch):
    half = store._root / ".directory-0123456789ab.partial"
    half.mkdir()
    begun = ExitStack()

    def size(_path: Path) -> int:
        begun.enter_context(lab_lock(store.lock("directory-0123456789ab"), "lab bundle create"))
        return 0

    monkeypatch.setattr("lab.machines.bundle.store.size", size)
    with begun:
        assert store.gc((), yes=True).paths == (f"bundles/{half.name}",)
        assert half.is_dir()
    assert made


def test_files_that_go_while_they_are_counted_are_not_counted(store, made, monkeypatch):
    monkeypatch.setattr("lab.machines.images.golden._blocks", lambda _: 0)
    monkeypatch.setattr(BundleStore, "directory", lambda *_: Path("/nowhere"))
    assert store.list()[0].bytes == 0
    assert store.newest("1.36") == made


def test_equal_directories_make_one_bundle_at_the_same_time(store, source, tmp_path, monkeypatch):
    shutil.copytree(source, tmp_path / "equal")
    both = threading.Barrier(2, timeout=60)
    finish = Scratch.finish

    def together(self: Scratch, manifest: Manifest) -> None:
        finish(self, manifest)
        both.wait()

    monkeypatch.setattr(Scratch, "finish", together)
    with ThreadPoolExecutor() as pool:
        places = (source, tmp_path / "equal")
        manifests = list(pool.map(lambda one: parts.create(store, one), places))
    assert manifests[0] == manifests[1]
    assert [path.name for path in store._root.iterdir()] == [manifests[0].short]


def test_a_manifest_that_is_a_pipe_is_not_waited_for_and_is_garbage(store, made):
    path = store.directory(made) / FILE
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PreflightError, match="not a regular file"):
        store.get(made.short)
    assert store.gc((), yes=True).paths == (f"bundles/{made.short}",)
    assert not store.list()


def test_a_damaged_bundle_goes_where_one_was_going_already(store, made):
    half = store._root / f".{made.short}.partial"
    (half / "blobs").mkdir(parents=True)
    (store.directory(made) / FILE).unlink()
    assert set(store.gc((), yes=True).paths) == {f"bundles/{made.short}", f"bundles/{half.name}"}
    assert list(store._root.iterdir()) == []


def test_a_broken_manifest_of_a_bundle_is_refused():
    blob = Blob("a" * 64, 7)
    whole = Manifest(
        (("containerd", "2.3.7"), ("kubernetes", "1.36.1")),
        (Program("kubelet", "kubernetes", "linux", blob, "upstream"),),
        (
            ContainerImage(
                "registry.k8s.io/pause:3.10", "linux", None, blob, blob, (Layer("x", blob),), "y"
            ),
        ),
    )
    text = whole.encoded()
    assert decode(text, "it") == whole
    mutations = broken(json.loads(text), random.Random(SEED))
    refused = 0
    for _ in range(COUNT):
        made = next(mutations)
        with suppress(ValueError):  # written as the lab writes it, or it is refused for that
            made = json.dumps(json.loads(made), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        content = made.encode(errors="surrogatepass")
        try:
            assert decode(content, "it").encoded() == content
        except PreflightError as error:
            assert error.doing == "reading the bundle's 'it'"  # noqa: PT017  some are harmless
            refused += 1
    assert refused > COUNT // 2
