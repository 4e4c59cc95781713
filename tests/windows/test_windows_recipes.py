"""Recipes of Windows, and ``lab image answer-file``."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from processes import lab
from tables import table

from lab._errors import UsageError
from lab.machines.images import recipes
from lab.machines.images.recipe import Recipe
from lab.machines.images.terms import RELEASES, Region, secret_name
from lab.windows.images.answer import clone_preview, make_settings
from lab.windows.images.settings import MASK

NAMES = [f"windows-server-{year}" for year in RELEASES]
CASES = table("answer-file")
RECIPE = Path(recipes.directory() / "windows-server-2022" / recipes.FILE)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_recipe_is_of_its_release_and_has_every_template(name):
    recipe = recipes.load(name)
    assert recipe.kind == "windows"
    assert recipe.windows.wanted.year == name[-4:]
    assert recipe.windows.key is None
    assert recipe.windows.minutes["starting"] == 15
    assert {"autounattend.xml.j2", "unattend.xml.j2"} <= set(recipe.files)
    assert (recipe.os, recipe.first_boot, recipe.user) == ("windows", "windows", "Administrator")


def written(tmp_path: Path, *changes: tuple[str, str]) -> Recipe:
    text = RECIPE.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    own = tmp_path / "windows-server-2022"
    own.mkdir()
    shutil.copytree(recipes.directory() / "windows", tmp_path / "windows")
    (own / recipes.FILE).write_text(text, encoding="utf-8")
    return recipes.load("windows-server-2022", tmp_path)


def test_the_windows_of_a_recipe_is_what_is_installed(tmp_path):
    more = (
        "\n  key: ABCDE-FGHIJ-KLMNO-PQRST-UVWXY\n  locale: de-DE\n  keyboard: 0407:00000407"
        "\n  time_zone: W. Europe Standard Time\n  deadlines: {copy: 90, first_logon: 7}\n"
    )
    recipe = written(
        tmp_path,
        ("edition: standard", "edition: datacenter"),
        ("surface: core", "surface: desktop"),
        ("virtio: true", "virtio: false"),
        ("  vcpus: 2\n", f"  vcpus: 3{more}"),
    )
    deadlines = recipe.windows.minutes
    assert (deadlines["copy"], deadlines["first-logon"], deadlines["disk"]) == (90, 7, 10)
    settings = make_settings(recipe.windows, "uefi", "retail", "Secret-Password.1")
    assert settings.wanted.name == "Windows Server 2022 SERVERDATACENTER"
    assert (settings.storage, settings.firmware) == ("sata", "uefi")
    assert settings.key == "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"
    assert settings.region == Region("de-DE", "0407:00000407", "W. Europe Standard Time")
    assert "ABCDE" not in repr(recipe)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES["printed"], ids=str)
def test_answer_file_is_printed_as_the_options_specify(name, case, capfd):
    code, out, err = lab(capfd, "image", "answer-file", name, *case["options"])
    assert (code, err) == (0, "")
    assert all(text in out for text in case["there"])
    assert not any(text in out for text in case["absent"])
    assert out.count(f"<Value>{MASK}</Value>") == 2
    if "volume" in case["options"]:
        assert out.count(RELEASES[name[-4:]].keys["standard"]) == 2
    ET.fromstring(out)


@pytest.mark.parametrize("case", CASES["refused"], ids=str)
def test_refusal_has_a_hint(case, capfd):
    ended, out, err = lab(capfd, "image", "answer-file", *case["options"])
    assert (ended, out) == (2, "")
    assert case["said"] in err


@pytest.mark.parametrize(
    ("text", "words"),
    [("{{ nothing }}", "'nothing' is undefined"), ("{% if %}", "template 'unattend.xml.j2'")],
)
def test_a_users_wrong_template_is_reported(text, words, tmp_path):
    recipe = written(tmp_path)
    broken = {**recipe.files, "unattend.xml.j2": text.encode()}
    with pytest.raises(UsageError, match=words):
        clone_preview(recipe.replace(files=broken))


@pytest.mark.parametrize(("channel", "lines"), [("evaluation", 0), ("volume", 1)])
def test_answer_file_hides_the_inventorys_product_key_and_does_not_read_it(
    channel, lines, tmp_path, monkeypatch, capfd
):
    (tmp_path / "lab.toml").write_text('[secrets.product-key-windows-server-2022]\nenv = "NONE"\n')
    monkeypatch.setenv("HYBRIDLAB_INVENTORY", str(tmp_path / "lab.toml"))
    code, out, err = lab(capfd, "image", "answer-file", "windows-server-2022", "--channel", channel)
    assert (code, err) == (0, "")
    assert out.count(f"<Key>{MASK}</Key>") == lines


def test_an_images_own_product_key_counts_more():
    name, common, another = "windows-server-2022", "product-key", "product-key-windows-server-2019"
    table = {
        (): None,
        (another,): None,
        (common,): common,
        (common, f"{common}-{name}"): f"{common}-{name}",
    }
    assert {known: secret_name(name, known) for known in table} == table
