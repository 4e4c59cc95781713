"""One cache, several processes, and whatever can go wrong between them. Needs qemu-img alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError, UsageError
from lab.imaging import builders, job, stored, tools
from lab.imaging.job import DISK, Built, Job
from lab.imaging.library import Library
from lab.inventory.inventory import ImageSource, Inventory

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")
ROOT = Path(__file__).parents[3]
SECONDS = 30.0


def recipe(folder: Path, name: str = "tiny", **more: str) -> Path:
    own = folder / "recipes" / name
    own.mkdir(parents=True, exist_ok=True)
    keys = {"disk": "1GiB", "firmware": "bios", "first_boot": "cloud-init", "user": "root"} | more
    lines = "".join(f"{key}: {value}\n" for key, value in keys.items())
    (own / "image.yaml").write_text(
        f"name: {name}\nsummary: A disk of the tests\n{lines}"
        f"cloud:\n  url: https://vendor.example/{name}.qcow2\n"
    )
    return own.parent


def disk(path: Path, size: str = "8M") -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(path), size], check=True)
    return path


@pytest.fixture
def library(tmp_path: Path) -> Library:
    source = ImageSource(str(disk(tmp_path / "vendor.qcow2")))
    inventory = Inventory((), images={"tiny": source})
    return Library(tmp_path / "cache", inventory, None, recipe(tmp_path))


def test_image_is_built_once_and_found_again(library):
    told: list[str] = []
    image = library.get("tiny", told.append)
    assert image.disk.exists()
    assert image.virtual_gib == 1
    assert (image.name, image.firmware, image.user) == ("tiny", "bios", "root")
    assert image.digest == library.digest("tiny")
    assert library.peek("tiny") == image
    assert library.get("tiny", pytest.fail) == image
    assert "image 'tiny': built" in told[-1]


@pytest.mark.parametrize("harm", ["shorter", "gone"])
def test_image_whose_disk_was_harmed_in_the_cache_is_built_anew(library, harm):
    image = library.get("tiny", print)
    whole = image.disk.read_bytes()
    image.disk.chmod(0o600)
    if harm == "gone":
        image.disk.unlink()
    else:
        image.disk.write_bytes(whole[:-1])
    assert library.peek("tiny") is None
    told: list[str] = []
    assert library.get("tiny", told.append) == image
    assert image.disk.read_bytes() == whole
    wanted = {"gone": "is gone", "shorter": f"has {len(whole) - 1} bytes of {len(whole)}"}
    assert f"disk.qcow2' {wanted[harm]}: it is built anew" in told[0]


def test_peek_builds_nothing(library, tmp_path):
    assert library.peek("tiny") is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("what", ["recipe", "template", "input"])
def test_change_of_anything_makes_another_image(what, library, tmp_path):
    first = library.get("tiny", print)
    if what == "recipe":
        recipe(tmp_path, user="admin")
    elif what == "template":
        (tmp_path / "recipes/tiny/extra").write_text("x")
    else:
        disk(tmp_path / "vendor.qcow2", "9M")
    assert library.peek("tiny") is None
    assert library.get("tiny", print).digest != first.digest


def test_other_words_make_no_other_image(library, tmp_path):
    first = library.get("tiny", print)
    path = tmp_path / "recipes/tiny/image.yaml"
    path.write_text(path.read_text().replace("A disk of the tests", "Some disk"))
    assert library.get("tiny", pytest.fail) == first


def test_build_that_fails_leaves_nothing(library, tmp_path, monkeypatch):
    def fails(one: Job) -> Built:
        (one.scratch / DISK).write_text("half")
        raise BrokenError("building", "it broke")

    monkeypatch.setattr(builders, "build", fails)
    with pytest.raises(BrokenError, match="it broke"):
        library.get("tiny", print)
    assert list((tmp_path / "cache/images").iterdir()) == []
    assert list((tmp_path / "cache/locks").iterdir()) == []


PROGRAM = """
import sys
from pathlib import Path
from lab.imaging import builders
from lab.imaging.library import Library
from lab.inventory.inventory import ImageSource, Inventory

here = Path(sys.argv[1])

def build(job, made=builders.build):
    with (here / "builds").open("a") as log:
        log.write("one\\n")
    (here / "building").touch()
    while not (here / "go").exists():
        pass
    return made(job)

builders.build = build
inventory = Inventory((), images={"tiny": ImageSource(str(here / "vendor.qcow2"))})
library = Library(here / "cache", inventory, None, here / "recipes")
say = lambda sentence: print(sentence, file=sys.stderr, flush=True)
print(library.get("tiny", say).disk)
"""


def asked(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_several_ask_at_once_and_one_builds_while_the_others_wait_for_it_by_name(library, tmp_path):
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
    found = library.peek("tiny")
    assert found is not None
    assert f"{found.disk}\n" in answers


def test_build_that_was_killed_is_done_anew(library, tmp_path):
    killed = asked(tmp_path)
    Deadline(SECONDS).wait("the build", (tmp_path / "building").exists)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert [path.name[0] for path in (tmp_path / "cache/images").iterdir()] == ["."]
    assert library.peek("tiny") is None

    told: list[str] = []
    image = library.get("tiny", told.append)
    assert "image 'tiny': an interrupted build is done anew" in told
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
)
def test_image_with_a_damaged_record_is_built_anew_and_stops_no_gc(library, content):
    image = library.get("tiny", print)
    record = image.disk.with_name(stored.FILE)
    whole = record.read_bytes()
    record.write_bytes(content)
    assert library.peek("tiny") is None
    assert library.gc((), yes=False).found == ()
    assert {one.state for one in library.list()} == {"absent"}
    assert library.get("tiny", print) == image
    record.write_bytes(whole.replace(b'"sizes": {', b'"sizes": {"a\\u0000": 1, '))
    assert library.peek("tiny") is None


def test_gc_takes_nothing_that_is_no_image(library, tmp_path):
    other = tmp_path / "cache/images/lost+found"
    other.mkdir(parents=True)
    (tmp_path / "cache/downloads").mkdir()
    (tmp_path / "cache/downloads/a.pin").write_bytes(b"\xff")
    assert library.gc((), yes=True).found == ("downloads/a.pin",)
    assert other.is_dir()


def test_gc_takes_old_images_and_dead_builds_and_nothing_else(library, tmp_path):
    old = library.get("tiny", print)
    disk(tmp_path / "vendor.qcow2", "9M")
    kept = library.get("tiny", print)
    dead = tmp_path / "cache/images/.tiny-0123456789abcdef.partial"
    dead.mkdir()
    stray = tmp_path / "cache/downloads" / f"{'0' * 32}.file.part"
    stray.write_bytes(b"half")

    seen = library.gc((), yes=False)
    assert not seen.removed
    assert old.disk.exists()
    assert set(seen.found) == {
        f"images/{old.disk.parent.name}",
        f"images/{dead.name}",
        f"downloads/{stray.name}",
    }
    assert f"images/{old.disk.parent.name}" not in library.gc((old.digest,), yes=False).found

    assert library.gc((), yes=True).found == seen.found
    assert not old.disk.exists()
    assert not dead.exists()
    assert not stray.exists()
    assert library.peek("tiny") == kept


def test_gc_leaves_what_is_being_built(library, tmp_path):
    builds = asked(tmp_path)
    Deadline(SECONDS).wait("the build", (tmp_path / "building").exists)
    assert library.gc((), yes=True).found == ()
    (tmp_path / "go").touch()
    assert builds.wait(SECONDS) == 0
    builds.communicate()


def test_list_says_of_every_recipe_what_there_is(library, tmp_path):
    recipe(tmp_path, "other")
    (tmp_path / "recipes/broken").mkdir()
    (tmp_path / "recipes/broken/image.yaml").write_text("name: broken\n")
    library.get("tiny", print)
    found = {one.name: one for one in library.list()}
    assert (found["tiny"].state, found["tiny"].kind) == ("built", "cloud")
    assert found["tiny"].bytes > 0
    assert found["other"].state == "absent"
    assert found["broken"].state == "unusable"


def test_show_tells_of_a_built_image_and_refuses_others(library):
    with pytest.raises(UsageError, match="has not been built"):
        library.show("tiny")
    library.get("tiny", print)
    facts = library.show("tiny")
    assert isinstance(facts, stored.Facts)
    assert facts.summary == "A disk of the tests"


def test_no_room_is_said_before_anything_is_made(library, tmp_path, monkeypatch):
    class Full:
        f_bavail = 0
        f_frsize = 4096

    monkeypatch.setattr(job.os, "statvfs", lambda _: Full)
    with pytest.raises(PreflightError, match=r"has 0\.0 GiB free"):
        library.get("tiny", print)
    assert list((tmp_path / "cache/images").iterdir()) == []


def test_missing_program_is_named_with_the_command_that_installs_it(library, monkeypatch):
    monkeypatch.setattr(tools, "_find", lambda _: None)
    with pytest.raises(PreflightError, match="apt-get install qemu-utils"):
        library.get("tiny", print)


def test_image_that_is_there_needs_no_program(library, monkeypatch):
    image = library.get("tiny", print)
    monkeypatch.setattr(tools, "_find", lambda _: None)
    assert library.digest("tiny") == image.digest
    assert library.peek("tiny") == image
    assert library.get("tiny", pytest.fail) == image


def test_root_file_system_of_an_image_without_a_disk_is_kept(library, tmp_path):
    place = library.get("tiny", print).disk.parent
    (tmp_path / "cache/roots").mkdir()
    place.rename(tmp_path / "cache/roots" / place.name)
    assert library.gc((), yes=True).found == ()


def test_cache_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "cache").write_text("a file")
    source = ImageSource(str(disk(tmp_path / "vendor.qcow2")))
    library = Library(
        tmp_path / "cache", Inventory((), images={"tiny": source}), None, recipe(tmp_path)
    )
    with pytest.raises(PreflightError, match="cache"):
        library.get("tiny", print)
