"""Where the user's media are: given once, remembered, the inventory counting more."""

import json
import os
import stat
from pathlib import Path

import pytest

from lab._errors import LabError, PreflightError, UsageError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import image_store, inputs, recipes
from lab.machines.images.golden import make_own
from lab.machines.images.image_store import ImageStore
from lab.machines.images.inputs import ImageInputs

RECIPE = recipes.load("windows-server-2022")
NOTHING = Inventory()


def merged(cache: Path, inventory: Inventory) -> Inventory:
    return ImageStore(cache, inventory)._inventory


@pytest.fixture
def media(tmp_path, monkeypatch):
    """Files that count as the right media; what a medium must be has tests of its own."""
    monkeypatch.setattr(inputs, "check_file", lambda *_: None)
    found = {name: tmp_path / name for name in ("iso", "virtio-win", "openssh")}
    for name, path in found.items():
        path.write_text(name)
    return found


def test_what_was_given_once_is_known_from_then_on(tmp_path, media):
    cache = tmp_path / "cache"
    ImageStore(cache, NOTHING).remember(RECIPE.name, media)
    inventory = merged(cache, NOTHING)
    digests = ImageInputs(RECIPE, inventory, tmp_path / "downloads").digests()
    assert set(digests) == {"iso", "virtio-win", "openssh"}
    assert ImageInputs(RECIPE, inventory, tmp_path / "downloads").known_digests() == digests
    assert stat.S_IMODE((cache / image_store.FILE).stat().st_mode) == 0o600
    ImageStore(cache, NOTHING).remember(RECIPE.name, {"iso": media["openssh"]})
    inventory = merged(cache, NOTHING)
    assert inventory.images[RECIPE.name].url == str(media["openssh"])
    assert inventory.images["virtio-win"].url == str(media["virtio-win"])


def test_the_inventory_counts_more(tmp_path, media):
    ImageStore(tmp_path, NOTHING).remember(RECIPE.name, media)
    own = Inventory(images={RECIPE.name: ImageSource(url="/mine"), "virtio-win": ImageSource()})
    inventory = merged(tmp_path, own)
    assert inventory.images[RECIPE.name].url == "/mine"
    assert inventory.images["virtio-win"].url == str(media["virtio-win"])


def test_a_file_that_is_not_there_is_refused_and_nothing_is_remembered(tmp_path):
    with pytest.raises(PreflightError, match=r"--iso: .* is not a file"):
        ImageStore(tmp_path, NOTHING).remember(RECIPE.name, {"iso": tmp_path / "none"})
    assert merged(tmp_path, NOTHING) == NOTHING


def test_an_option_that_the_image_has_no_use_for_is_refused(tmp_path, media):
    with pytest.raises(PreflightError, match="not made from 'iso'"):
        ImageStore(tmp_path, NOTHING).remember("debian-12", {"iso": media["iso"]})


def test_a_path_beside_another_one_of_the_inventory_is_refused(tmp_path, media):
    own = Inventory(images={RECIPE.name: ImageSource(url="/mine.iso")})
    with pytest.raises(UsageError, match=r"of the inventory says '/mine\.iso'"):
        ImageStore(tmp_path, own).remember(RECIPE.name, media)
    same = Inventory(images={RECIPE.name: ImageSource(url=str(media["iso"]))})
    ImageStore(tmp_path, same).remember(RECIPE.name, media)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 60_000])
def test_a_damaged_memory_is_none(text, tmp_path):
    (tmp_path / image_store.FILE).write_text(text)
    assert merged(tmp_path, NOTHING) == NOTHING


def test_every_missing_medium_is_named_with_both_ways_to_give_it(tmp_path, media):
    with pytest.raises(PreflightError) as refused:
        ImageInputs(RECIPE, NOTHING, tmp_path).check()
    assert "--iso PATH" in refused.value.hint
    assert f"[images.{RECIPE.name}]" in refused.value.hint
    iso = Inventory(images={RECIPE.name: ImageSource(url=str(media["iso"]))})
    with pytest.raises(PreflightError) as refused:
        ImageInputs(RECIPE, iso, tmp_path).digests()
    assert "virtio-win" in refused.value.happened
    assert ImageInputs(RECIPE, iso, tmp_path).known_digests() is None


def test_an_optional_file_that_nobody_has_given_is_left_out(tmp_path, media):
    places = {RECIPE.name: media["iso"], "virtio-win": media["virtio-win"]}
    images = {name: ImageSource(url=str(path)) for name, path in places.items()}
    made_from = ImageInputs(RECIPE, Inventory(images=images), tmp_path / "downloads")
    made_from.check()
    assert set(made_from.digests()) == {"iso", "virtio-win"}
    assert made_from.known_digests() == made_from.digests()
    assert made_from.find("openssh") is None


def test_the_inventorys_file_at_another_path_is_accepted(tmp_path, media):
    (tmp_path / "link").symlink_to(media["iso"])
    for path in (tmp_path / "link", tmp_path / "x" / ".." / "iso"):
        (tmp_path / "x").mkdir(exist_ok=True)
        own = Inventory(images={RECIPE.name: ImageSource(url=str(path))})
        ImageStore(tmp_path / "cache", own).remember(RECIPE.name, {"iso": media["iso"]})


@pytest.mark.parametrize(("name", "said"), [("", "it is not a file"), ("gone.iso", "No such file")])
def test_a_path_that_is_no_file_is_reported(name, said, tmp_path):
    images = {RECIPE.name: ImageSource(url=str(tmp_path / name))}
    with pytest.raises(PreflightError, match=said):
        ImageInputs(RECIPE, Inventory(images=images), tmp_path).check()
    with pytest.raises(PreflightError, match=said):
        ImageInputs(RECIPE, Inventory(images=images), tmp_path).digests()


def test_a_firmware_that_was_asked_for_once_is_the_images_until_another_is(tmp_path):
    own = ImageStore(tmp_path, NOTHING)
    before = own.recipe(RECIPE.name)
    assert before == RECIPE
    own.choose(RECIPE.name, "bios")
    assert ImageStore(tmp_path, NOTHING).recipe(RECIPE.name) == RECIPE.replace(firmware="bios")
    other = own.recipe("windows-server-2019")
    assert other.firmware == "uefi"
    own.choose(RECIPE.name, "uefi")
    assert own.recipe(RECIPE.name) == RECIPE
    assert json.loads((tmp_path / image_store.FIRMWARE).read_text()) == {}


def test_a_firmware_is_part_of_what_an_image_is(tmp_path, media):
    own = ImageStore(tmp_path, NOTHING)
    own.remember(RECIPE.name, media)
    first = own.digest(RECIPE.name)
    own.choose(RECIPE.name, "bios")
    assert own.digest(RECIPE.name) != first
    own.choose(RECIPE.name, "uefi")
    assert own.digest(RECIPE.name) == first


def test_only_images_of_windows_let_their_firmware_be_chosen(tmp_path):
    with pytest.raises(UsageError, match="Windows images; this one boots with 'kernel'"):
        ImageStore(tmp_path, NOTHING).choose("debian-12", "uefi")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / image_store.FIRMWARE).write_text(
        '{"debian-12": "uefi", "windows-server-2022": "x"}'
    )
    assert ImageStore(tmp_path, NOTHING).recipe("debian-12").firmware == "kernel"
    assert ImageStore(tmp_path, NOTHING).recipe(RECIPE.name) == RECIPE


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="a user's cache is the user's affair")
def test_a_cache_that_somebody_removes_at_once_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", lambda *_: None)
    with pytest.raises(LabError, match=f"'{tmp_path / 'new'}' is not there any more"):
        make_own(tmp_path / "new")
