"""One cache, several processes, and whatever can go wrong between them. Needs qemu-img alone."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import run_program
from recipe_writer import recipe

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError, StateError, UsageError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import golden, job
from lab.machines.images.golden import DISK, Built
from lab.machines.images.image_store import ImageStore
from lab.machines.images.job import BuildJob
from lab.shells import programs

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")
ROOT = Path(__file__).parents[3]
SECONDS = 30.0


def disk(path: Path, size: str = "8M") -> Path:
    run_program(["qemu-img", "create", "-q", "-f", "qcow2", str(path), size])
    return path


@pytest.fixture
def image_store(tmp_path):
    source = ImageSource(url=str(disk(tmp_path / "vendor.qcow2")))
    inventory = Inventory(images={"tiny": source})
    return ImageStore(tmp_path / "cache", inventory, None, recipe(tmp_path))


def test_image_is_built_once_and_found_again(image_store):
    told: list[str] = []
    image = image_store.get("tiny", told.append)
    assert image.disk.exists()
    assert image.virtual_gib == 1
    assert (image.name, image.firmware, image.user) == ("tiny", "bios", "root")
    assert image.digest == image_store.digest("tiny")
    assert image_store.peek("tiny") == image
    assert image_store.get("tiny", pytest.fail) == image
    assert "image 'tiny': built" in told[-1]


@pytest.mark.parametrize("harm", ["shorter", "gone"])
def test_image_whose_disk_was_harmed_in_the_cache_is_built_anew(image_store, harm):
    image = image_store.get("tiny", print)
    whole = image.disk.read_bytes()
    image.disk.chmod(0o600)
    if harm == "gone":
        image.disk.unlink()
    else:
        image.disk.write_bytes(whole[:-1])
    assert image_store.peek("tiny") is None
    told: list[str] = []
    assert image_store.get("tiny", told.append) == image
    assert image.disk.read_bytes() == whole
    wanted = {"gone": "is missing", "shorter": f"has {len(whole) - 1} of {len(whole)} bytes"}
    assert f"disk.qcow2' {wanted[harm]}: building it again" in told[0]


@pytest.mark.parametrize("what", ["recipe", "template", "input"])
def test_change_of_anything_makes_another_image(what, image_store, tmp_path):
    first = image_store.get("tiny", print)
    if what == "recipe":
        recipe(tmp_path, user="admin")
    elif what == "template":
        (tmp_path / "recipes/tiny/extra").write_text("x")
    else:
        disk(tmp_path / "vendor.qcow2", "9M")
    assert image_store.peek("tiny") is None
    assert image_store.get("tiny", print).digest != first.digest


def test_other_words_make_no_other_image(image_store, tmp_path):
    first = image_store.get("tiny", print)
    path = tmp_path / "recipes/tiny/image.yaml"
    path.write_text(path.read_text().replace("A disk of the tests", "Some disk"))
    assert image_store.get("tiny", pytest.fail) == first


def test_build_that_fails_leaves_nothing(image_store, tmp_path, monkeypatch):
    def fails(build_job: BuildJob) -> Built:
        (build_job.scratch / DISK).write_text("half")
        raise BrokenError("building", "it broke")

    monkeypatch.setattr("lab.machines.images.image_store.build", fails)
    with pytest.raises(BrokenError, match="it broke"):
        image_store.get("tiny", print)
    assert list((tmp_path / "cache/images").iterdir()) == []
    assert list((tmp_path / "cache/locks").iterdir()) == []


PROGRAM = """
import sys
from pathlib import Path
from lab.machines.images import image_store as building
from lab.machines.images.image_store import ImageStore
from lab.inventory.inventory import ImageSource, Inventory

here = Path(sys.argv[1])

def build(job, made=building.build):
    with (here / "builds").open("a") as log:
        log.write("one\\n")
    (here / "building").touch()
    while not (here / "go").exists():
        pass
    return made(job)

building.build = build
inventory = Inventory(images={"tiny": ImageSource(url=str(here / "vendor.qcow2"))})
image_store = ImageStore(here / "cache", inventory, None, here / "recipes")
say = lambda sentence: print(sentence, file=sys.stderr, flush=True)
print(image_store.get("tiny", say).disk)
"""


def asked(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_several_ask_at_once_and_one_builds_while_the_others_wait_for_it_by_name(
    image_store, tmp_path
):
    first = asked(tmp_path)
    Deadline(SECONDS).wait("the first one building", (tmp_path / "building").exists)
    others = [asked(tmp_path) for _ in range(2)]
    for other in others:
        assert other.stderr is not None
        line = next(said for said in other.stderr if "waiting" in said)
        assert f"'lab image build tiny' (process {first.pid})" in line
    (tmp_path / "go").touch()
    answers = {one.communicate(timeout=SECONDS)[0] for one in (first, *others)}
    assert len(answers) == 1
    assert (tmp_path / "builds").read_text() == "one\n"
    image = image_store.peek("tiny")
    assert image is not None
    assert f"{image.disk}\n" in answers


def test_build_that_was_killed_is_done_anew(image_store, tmp_path):
    killed = asked(tmp_path)
    Deadline(SECONDS).wait("the build", (tmp_path / "building").exists)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert [path.name[0] for path in (tmp_path / "cache/images").iterdir()] == ["."]
    assert image_store.peek("tiny") is None

    told: list[str] = []
    image = image_store.get("tiny", told.append)
    assert "image 'tiny': starting the interrupted build over" in told
    assert [path.name for path in (tmp_path / "cache/images").iterdir()] == [image.disk.parent.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b'{"sizes": ' * 60_000,
        b"9" * 9_000,
        b'{"sizes": {"a\\u0000": 1}}',
    ],
    ids=["empty", "binary", "list", "nothing", "deep", "long", "null"],
)
def test_image_with_a_damaged_record_is_built_anew_and_stops_no_gc(image_store, content):
    image = image_store.get("tiny", print)
    record = image.disk.with_name(golden.FILE)
    whole = record.read_bytes()
    record.write_bytes(content)
    assert image_store.peek("tiny") is None
    assert image_store.gc((), yes=False).paths == ()
    assert {one.state for one in image_store.list()} == {"absent"}
    assert image_store.get("tiny", print) == image
    record.write_bytes(whole.replace(b'"sizes": {', b'"sizes": {"a\\u0000": 1, '))
    assert image_store.peek("tiny") is None
    record.write_bytes(whole.replace(b'"built": ', b'"built": 1e999, "was": '))
    assert image_store.peek("tiny") is None


@pytest.mark.parametrize("place", ["images", "roots", "downloads"])
def test_gc_takes_links_and_what_cannot_be_read_and_follows_nothing(image_store, tmp_path, place):
    image_store.get("tiny", print)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_bytes(b"x" * 9000)
    directory = tmp_path / "cache" / place
    directory.mkdir(exist_ok=True)
    dead = directory / ".dead-0123456789abcdef.partial"
    dead.mkdir()
    for name in ("dead-0123456789abcdef", ".to-a-directory.partial", f"{dead.name}/in-it"):
        (directory / name).symlink_to(mine)
    for name in (".to-nothing.partial", f"{dead.name}/in-it-to-nothing"):
        (directory / name).symlink_to("/nowhere")
    (directory / ".itself.partial").symlink_to(".itself.partial")
    collected = image_store.gc((), yes=True)
    assert len(collected.paths) == 5
    assert collected.bytes < 9000
    assert (mine / "file").exists()
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]


def test_a_cache_with_foreign_files_is_reported(image_store, tmp_path):
    image_store.get("tiny", print)
    (tmp_path / "cache/roots").write_bytes(b"")
    with pytest.raises(StateError, match=r"looking into '.*roots'"):
        image_store.gc((), yes=True)
    (tmp_path / "cache/roots").unlink()
    os.mkfifo(tmp_path / "cache/downloads/0.pin")
    (tmp_path / "cache/downloads/1.pin").mkdir()
    assert image_store.gc((), yes=True).paths == ("downloads/0.pin", "downloads/1.pin")


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", ["", "images", "downloads"])
@pytest.mark.parametrize("action", ["get", "gc"])
def test_root_writes_into_no_cache_of_another_user(image_store, tmp_path, place, action):
    path = tmp_path / "cache" / place
    path.mkdir(parents=True)
    os.chown(path, 65534, 65534)
    with pytest.raises(PreflightError, match=f"'{path}' belongs to"):
        image_store.get("tiny", print) if action == "get" else image_store.gc((), yes=True)
    assert image_store.peek("tiny") is None


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("action", ["get", "choose"])
def test_root_makes_no_cache_where_another_user_may_move_it_away(tmp_path, action):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    source = ImageSource(url=str(disk(tmp_path / "vendor.qcow2")))
    folder = recipe(tmp_path) if action == "get" else None
    store = ImageStore(theirs / "cache", Inventory(images={"tiny": source}), None, folder)
    with pytest.raises(PreflightError, match=f"'{theirs}' belongs to"):
        store.get("tiny", print) if folder else store.choose("windows-server-2022", "bios")
    assert not list(theirs.iterdir())


# SECURITY.md: An inventory is trusted.
@pytest.mark.parametrize("part", ["image.yaml", "extra", "."])
def test_a_recipe_that_others_may_write_is_not_built(image_store, tmp_path, part):
    folder = tmp_path / "recipes/tiny"
    (folder / "extra").write_text("x")
    (folder / part).chmod(0o777)
    with pytest.raises(UsageError, match=r"everyone may write .*, and a recipe has commands"):
        image_store.get("tiny", print)
    assert not list((tmp_path / "cache/images").iterdir())
    (folder / part).chmod(0o755)
    assert image_store.get("tiny", print).disk.is_file()


def test_gc_takes_old_images_and_dead_builds_and_nothing_else(image_store, tmp_path):
    old = image_store.get("tiny", print)
    disk(tmp_path / "vendor.qcow2", "9M")
    kept = image_store.get("tiny", print)
    dead = tmp_path / "cache/images/.tiny-0123456789abcdef.partial"
    dead.mkdir()
    stray = tmp_path / "cache/downloads" / f"{'0' * 32}.file.part"
    stray.write_bytes(b"half")

    collected = image_store.gc((), yes=False)
    assert not collected.removed
    assert old.disk.exists()
    assert set(collected.paths) == {
        f"images/{old.disk.parent.name}",
        f"images/{dead.name}",
        f"downloads/{stray.name}",
    }
    assert f"images/{old.disk.parent.name}" not in image_store.gc((old.digest,), yes=False).paths

    assert image_store.gc((), yes=True).paths == collected.paths
    assert not old.disk.exists()
    assert not dead.exists()
    assert not stray.exists()
    assert image_store.peek("tiny") == kept


def test_gc_leaves_what_is_being_built(image_store, tmp_path):
    builds = asked(tmp_path)
    Deadline(SECONDS).wait("the build", (tmp_path / "building").exists)
    assert image_store.gc((), yes=True).paths == ()
    (tmp_path / "go").touch()
    assert builds.wait(SECONDS) == 0
    builds.communicate()


def test_list_shows_every_recipe_with_its_image(image_store, tmp_path):
    recipe(tmp_path, "other")
    (tmp_path / "recipes/broken").mkdir()
    (tmp_path / "recipes/broken/image.yaml").write_text("name: broken\n")
    image_store.get("tiny", print)
    found = {one.name: one for one in image_store.list()}
    assert (found["tiny"].state, found["tiny"].kind) == ("built", "cloud")
    assert found["tiny"].bytes > 0
    assert found["other"].state == "absent"
    assert found["broken"].state == "unusable"


def test_too_little_space_is_reported_before_anything_is_made(image_store, tmp_path, monkeypatch):
    class Full:
        f_bavail = 0
        f_frsize = 4096

    monkeypatch.setattr(job.os, "statvfs", lambda _: Full)
    with pytest.raises(PreflightError, match=r"has 0\.0 GiB free"):
        image_store.get("tiny", print)
    assert list((tmp_path / "cache/images").iterdir()) == []


def test_image_that_is_there_needs_no_program(image_store, monkeypatch):
    image = image_store.get("tiny", print)
    monkeypatch.setattr(programs, "_find", lambda _: None)
    assert image_store.digest("tiny") == image.digest
    assert image_store.peek("tiny") == image
    assert image_store.get("tiny", pytest.fail) == image


def test_root_file_system_of_an_image_without_a_disk_is_kept(image_store, tmp_path):
    place = image_store.get("tiny", print).disk.parent
    (tmp_path / "cache/roots").mkdir()
    place.rename(tmp_path / "cache/roots" / place.name)
    assert image_store.gc((), yes=True).paths == ()
