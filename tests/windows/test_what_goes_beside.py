"""The virtio-win medium and OpenSSH's archive: the wrong ones are refused before anything boots."""

from __future__ import annotations

import os
import zipfile
from functools import partial
from pathlib import Path

import media_maker
import pytest

from lab._errors import PreflightError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import inputs, recipes
from lab.machines.images import medium as imaging_medium
from lab.machines.images.image_store import ImageStore
from lab.machines.images.terms import RELEASES
from lab.windows.images import medium

RELEASE = RELEASES["2022"]


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_the_whole_medium_of_drivers_is_taken(release, tmp_path):
    whole = media_maker.virtio_win(tmp_path / "virtio-win.iso")
    files = medium.read_drivers(whole, release)
    folder = f"drivers/NetKVM/{release.drivers}/amd64"
    assert {f"{folder}/netkvm.{ending}" for ending in ("inf", "sys", "cat")} <= set(files)
    assert {path.split("/")[2] for path in files} == {release.drivers}
    disc = tmp_path / "answers.iso"
    disc.write_bytes(imaging_medium.medium("X", files))
    with imaging_medium.opened(disc, "reading", "") as read:
        assert {path: read.read(f"/{path}") for path in files} == files


def test_a_medium_of_drivers_without_this_release_is_refused_with_those_it_has(tmp_path):
    old = media_maker.virtio_win(tmp_path / "old.iso", releases=("2k16", "2k19"))
    words = "'viostor/2k22/amd64', only for 2k16, 2k19"
    with pytest.raises(PreflightError, match=words) as refused:
        medium.check_drivers(old, RELEASE)
    assert "has this release" in refused.value.hint


def test_a_medium_without_the_cards_driver_is_refused(tmp_path):
    part = media_maker.virtio_win(tmp_path / "part.iso", drivers=("viostor",))
    with pytest.raises(PreflightError, match="no folder 'NetKVM'"):
        medium.check_drivers(part, RELEASE)


@pytest.mark.parametrize(
    ("label", "year", "faulty"),
    [
        ("virtio-win-0.1.271", "2025", True),
        ("VIRTIO-WIN-0.1.262", "2025", True),
        ("virtio-win-0.1.261", "2025", False),
        ("virtio-win-0.1.285", "2025", False),
        ("virtio-win-0.1.271", "2022", False),
        ("drivers", "2025", False),
    ],
)
def test_versions_of_virtio_win_that_hang_a_release_are_named(label, year, faulty, tmp_path):
    path = media_maker.virtio_win(tmp_path / "virtio-win.iso", label=label)
    doubt = medium.driver_doubt(path, RELEASES[year])
    assert bool(doubt) == faulty
    assert not faulty or "use 0.1.285 or later" in str(doubt)


def _zeros(folder: Path, size: int = 100_000) -> Path:
    (folder / "zeros").touch()
    os.truncate(folder / "zeros", size)
    return folder / "zeros"


_empty, _huge = partial(_zeros, size=0), partial(_zeros, size=10 << 30)


def _archive(folder: Path) -> Path:
    return media_maker.openssh(folder / "a.zip")


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _another(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "other.zip", "w") as archive:
        archive.writestr("nssm/nssm.exe", b"MZ")
    return folder / "other.zip"


_drivers = partial(medium.check_drivers, release=RELEASE)


@pytest.mark.parametrize(
    ("check", "make", "words"),
    [
        (_drivers, media_maker.make, "has no folder 'viostor': it is not the virtio-win ISO"),
        (_drivers, _zeros, "all zeros"),
        (_drivers, _empty, "it is empty"),
        (_drivers, _archive, "it is "),
        (_drivers, _pipe, "it is not a file"),
        (_drivers, lambda folder: folder, "Is a directory"),
        (_drivers, lambda folder: folder / "absent", "(?i)no such file"),
        (medium.check_openssh, media_maker.make, "not a complete ZIP archive"),
        (medium.check_openssh, _empty, "not a complete ZIP archive"),
        (medium.check_openssh, _another, "holds no 'sshd.exe'"),
        (medium.check_openssh, _huge, "10,737,418,240 bytes"),
        (medium.check_openssh, _pipe, "it is not a file"),
        (medium.check_openssh, lambda folder: folder, "it is not a file"),
        (medium.check_openssh, lambda folder: folder / "absent", "(?i)no such file"),
        (medium.read, _pipe, "it is not a file"),
    ],
)
def test_what_is_something_else_is_refused_and_nobody_waits_for_it(check, make, words, tmp_path):
    with pytest.raises(PreflightError, match=words):
        check(make(tmp_path))


def test_an_archive_of_openssh_is_taken(tmp_path):
    medium.check_openssh(_archive(tmp_path))


@pytest.mark.parametrize("name", [inputs.ISO, inputs.VIRTIO, inputs.OPENSSH])
def test_a_wrong_file_is_refused_when_it_is_given_and_when_the_inventory_has_it(name, tmp_path):
    recipe = recipes.load("windows-server-2022")
    wrong = _zeros(tmp_path)
    with pytest.raises(PreflightError, match="reading"):
        ImageStore(tmp_path / "cache", Inventory()).remember(recipe.name, {name: wrong})
    assert not (tmp_path / "cache").exists()
    images = {
        recipe.name: ImageSource(url=str(media_maker.make(tmp_path))),
        "virtio-win": ImageSource(url=str(media_maker.virtio_win(tmp_path / "virtio-win.iso"))),
    }
    image = next(need.image for need in inputs.needs(recipe, Inventory()) if need.name == name)
    inventory = Inventory(images=images | {image: ImageSource(url=str(wrong))})
    with pytest.raises(PreflightError, match="reading"):
        inputs.ImageInputs(recipe, inventory, tmp_path).check()
