"""The virtio-win medium and OpenSSH's archive: the wrong ones are refused before anything boots."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import beside_maker
import media_maker
import pytest

from lab._errors import PreflightError
from lab.imaging import inputs, recipes
from lab.imaging import medium as imaging_medium
from lab.imaging.image_store import ImageStore
from lab.imaging.windows import medium
from lab.imaging.windows.settings import RELEASES, Release
from lab.inventory.inventory import ImageSource, Inventory

RELEASE = RELEASES["2022"]


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_the_whole_medium_of_drivers_is_taken(release: Release, tmp_path: Path) -> None:
    whole = beside_maker.virtio_win(tmp_path / "virtio-win.iso")
    files = medium.read_drivers(whole, release)
    folder = f"drivers/NetKVM/{release.drivers}/amd64"
    assert {f"{folder}/netkvm.{ending}" for ending in ("inf", "sys", "cat")} <= set(files)
    assert {path.split("/")[2] for path in files} == {release.drivers}
    disc = tmp_path / "answers.iso"
    disc.write_bytes(imaging_medium.medium("X", files))
    with imaging_medium.opened(disc, "reading", "") as read:
        assert {path: read.read(f"/{path}") for path in files} == files


def test_a_medium_of_drivers_without_this_release_is_refused_with_those_it_has(
    tmp_path: Path,
) -> None:
    old = beside_maker.virtio_win(tmp_path / "old.iso", releases=("2k16", "2k19"))
    with pytest.raises(
        PreflightError, match="'viostor/2k22/amd64', only for 2k16, 2k19"
    ) as refused:
        medium.check_drivers(old, RELEASE)
    assert "has this release" in refused.value.hint


def test_a_medium_without_the_cards_driver_is_refused(tmp_path: Path) -> None:
    part = beside_maker.virtio_win(tmp_path / "part.iso", drivers=("viostor",))
    with pytest.raises(PreflightError, match="no folder 'NetKVM'"):
        medium.check_drivers(part, RELEASE)


def _windows(folder: Path) -> Path:
    return media_maker.make(folder)


def _zeros(folder: Path) -> Path:
    path = folder / "zeros"
    path.write_bytes(bytes(100_000))
    return path


def _empty(folder: Path) -> Path:
    (folder / "empty").touch()
    return folder / "empty"


def _archive(folder: Path) -> Path:
    return beside_maker.openssh(folder / "a.zip")


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_windows, "has no folder 'viostor': it is not the virtio-win ISO"),
        (_zeros, "all zeros"),
        (_empty, "it is empty"),
        (_archive, "it is "),
        (_pipe, "it is not a file"),
        (lambda folder: folder, "Is a directory"),
        (lambda folder: folder / "absent", "No such file"),
    ],
)
def test_what_is_no_medium_of_drivers_is_refused(
    make: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match=words):
        medium.check_drivers(make(tmp_path), RELEASE)


def test_an_archive_of_openssh_is_taken(tmp_path: Path) -> None:
    medium.check_openssh(beside_maker.openssh(tmp_path / "OpenSSH-Win64.zip"))


def _another(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "other.zip", "w") as archive:
        archive.writestr("nssm/nssm.exe", b"MZ")
    return folder / "other.zip"


def _huge(folder: Path) -> Path:
    with (folder / "huge").open("wb") as file:
        file.truncate(10 << 30)
    return folder / "huge"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_windows, "not a complete ZIP archive"),
        (_empty, "not a complete ZIP archive"),
        (_another, "holds no 'sshd.exe'"),
        (_huge, "10,737,418,240 bytes"),
        (_pipe, "it is not a file"),
        (lambda folder: folder, "it is not a file"),
        (lambda folder: folder / "absent", "No such file"),
    ],
)
def test_what_is_no_archive_of_openssh_is_refused(
    make: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match=words):
        medium.check_openssh(make(tmp_path))


def test_a_pipe_is_no_medium_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="it is not a file"):
        medium.read(_pipe(tmp_path))


@pytest.mark.parametrize("name", [inputs.VIRTIO, inputs.OPENSSH])
def test_a_wrong_file_is_refused_when_it_is_given_and_when_the_inventory_has_it(
    name: str, tmp_path: Path
) -> None:
    recipe = recipes.load("windows-server-2022")
    wrong = _zeros(tmp_path)
    with pytest.raises(PreflightError, match="reading"):
        ImageStore(tmp_path / "cache", Inventory()).remember(recipe.name, {name: wrong})
    assert not (tmp_path / "cache").exists()
    images = {
        recipe.name: ImageSource(url=str(media_maker.make(tmp_path))),
        "virtio-win": ImageSource(url=str(beside_maker.virtio_win(tmp_path / "virtio-win.iso"))),
    }
    image = next(need.image for need in inputs.needs(recipe) if need.name == name)
    with pytest.raises(PreflightError, match="reading"):
        inputs.check(recipe, Inventory(images=images | {image: ImageSource(url=str(wrong))}))
