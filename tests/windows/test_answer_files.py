"""Answer files as they are made, against golden files and against what they are made from."""

from __future__ import annotations

import base64
from dataclasses import replace

import answers
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from lab.imaging import recipes
from lab.imaging.windows import commands
from lab.imaging.windows.answer import answer_file, clone_answer_file, driver_paths
from lab.imaging.windows.answer_rules import findings
from lab.imaging.windows.release import RELEASES

NAMES = (*answers.INSTALLATIONS, *answers.CLONES)
UNATTEND = {"u": "urn:schemas-microsoft-com:unattend"}
WCM = "{http://schemas.microsoft.com/WMIConfig/2002/State}"


def tree(document: bytes) -> etree._Element:
    return etree.fromstring(document)


def texts(document: bytes, path: str) -> list[str]:
    steps = "/".join(f"u:{step}" if step else "" for step in path.split("/"))
    return [node.text for node in tree(document).xpath(f"//{steps}", namespaces=UNATTEND)]


@pytest.mark.parametrize("name", NAMES)
def test_answer_file_is_its_golden_file(name):
    golden = answers.golden(name).decode()
    assert answers.documents()[name].decode() == golden, f"meant so? {answers.RENEW}"


def test_every_golden_file_is_of_a_variant():
    assert sorted(path.stem for path in answers.GOLDEN.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_golden_file_has_no_findings(name):
    assert findings(answers.golden(name), answers.facts(name)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_golden_file_has_the_shape_that_windows_reads(name):
    schema = etree.XMLSchema(file=str(answers.CASES / "unattend.xsd"))
    schema.assertValid(tree(answers.golden(name)))


def test_variants_cover_every_release_firmware_storage_channel_and_surface():
    settings = [variant.settings for variant in answers.INSTALLATIONS.values()]
    assert {one.wanted.year for one in settings} == set(RELEASES)
    assert {(one.firmware, one.storage) for one in settings} == {
        (firmware, storage) for firmware in ("bios", "uefi") for storage in ("virtio", "sata")
    }
    channels = {variant.facts.channel for variant in answers.INSTALLATIONS.values()}
    assert channels == {"evaluation", "volume", "retail", "unknown"}
    assert {one.wanted.surface for one in settings} == {"core", "desktop"}


@pytest.mark.parametrize("name", answers.INSTALLATIONS)
def test_image_is_chosen_by_its_name_in_the_wim(name):
    wanted = answers.INSTALLATIONS[name].settings.wanted
    assert texts(answers.golden(name), "MetaData/Value") == [wanted.name]


@pytest.mark.parametrize("name", answers.INSTALLATIONS)
def test_product_key_stands_at_both_places_or_at_none(name):
    key = answers.INSTALLATIONS[name].settings.key
    document = answers.golden(name)
    assert texts(document, "UserData/ProductKey/Key") == ([key] if key else [])
    assert texts(document, "component/ProductKey") == ([key] if key else [])


def test_evaluation_media_get_no_key_whatever_else_is_said():
    for name, variant in answers.INSTALLATIONS.items():
        if variant.facts.channel == "evaluation":
            assert b"<Key>/IMAGE/NAME</Key>" in answers.golden(name)
            assert answers.golden(name).count(b"<Key>") == 1


@pytest.mark.parametrize("name", NAMES)
def test_passwords_are_encoded_with_the_name_of_their_element(name):
    document = answers.golden(name)
    for suffix in ("AdministratorPassword", "Password"):
        (value,) = texts(document, f"{suffix}/Value")
        assert base64.b64decode(value).decode("utf-16-le") == answers.PASSWORD + suffix
    assert answers.PASSWORD.encode() not in document
    assert set(texts(document, "PlainText")) == {"false"}


def test_words_with_markup_arrive_as_they_are():
    name = "2025-core-uefi-unknown-sata-awkward-words"
    words = answers.INSTALLATIONS[name].settings.organization
    document = answers.golden(name)
    assert texts(document, "UserData/Organization") == [words]
    assert words.encode() not in document


@example(words="one\u2028two\u00a0")
@given(words=st.text(st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn")), min_size=1))
def test_any_words_arrive_as_they_are(words):
    settings = answers.INSTALLATIONS["2022-desktop-bios-evaluation-sata"].settings
    document = answer_file(replace(settings, organization=words))
    assert texts(document, "UserData/Organization") == [words]


def test_drivers_are_looked_for_on_every_letter_that_a_cd_may_have():
    document = answers.golden("2022-core-uefi-evaluation-virtio")
    found = texts(document, "PathAndCredentials/Path")
    assert found == [rf"{x}:\{name}\2k22\amd64" for x in "DEFGH" for name in answers.FEW]
    keys = [one.get(f"{WCM}keyValue") for one in tree(document).iter("{*}PathAndCredentials")]
    assert len(set(keys)) == len(found)


@pytest.mark.parametrize(("year", "folder"), [("2019", "2k19"), ("2022", "2k22"), ("2025", "2k25")])
def test_drivers_are_those_of_the_release(year, folder):
    assert driver_paths(("viostor",), RELEASES[year].drivers)[0] == rf"D:\viostor\{folder}\amd64"


def test_sata_disk_gets_no_drivers():
    for name, variant in answers.INSTALLATIONS.items():
        there = b"PnpCustomizationsWinPE" in answers.golden(name)
        assert there == (variant.settings.storage == "virtio")


def test_commands_are_these_in_this_order():
    document = answers.golden("2022-core-uefi-evaluation-virtio")
    paths = texts(document, "RunSynchronousCommand/Path")
    assert paths == [one.line for one in (*commands.WINDOWS_PE, *commands.SPECIALIZE)]
    assert paths[0] == "cmd /c echo hybridlab: phase winpe> COM1"
    assert paths[1:3] == [
        "cmd /c echo hybridlab: phase specialize> COM1",
        "net user Administrator /active:yes",
    ]
    lines = texts(document, "SynchronousCommand/CommandLine")
    assert lines == [one.line for one in commands.first_logon("bootstrap.ps1")]
    assert lines[0] == "cmd /c echo hybridlab: phase first-logon> COM1"
    assert "SysWOW64" in lines[2]
    assert "SysWOW64" not in lines[1]
    assert "-ExecutionPolicy Bypass -File" in lines[3]


def test_clone_runs_its_own_script_and_goes_through_its_own_passes_alone():
    document = answers.golden("clone")
    passes = [one.get("pass") for one in tree(document)]
    assert passes == ["specialize", "oobeSystem"]
    lines = texts(document, "SynchronousCommand/CommandLine")
    assert "'clone.ps1'" in lines[3]
    assert not any("bootstrap.ps1" in line for line in lines)


@pytest.mark.parametrize("script", ["bootstrap.ps1", "clone.ps1"])
def test_line_that_looks_for_the_script_is_powershell_and_has_no_quote_of_its_own(script):
    grammar = pytest.importorskip("tree_sitter_powershell", reason="no grammar of PowerShell")
    tree_sitter = pytest.importorskip("tree_sitter", reason="no parser")
    line = commands.first_logon(script)[3].line
    head, quoted, rest = line.split('"')
    assert rest == ""
    assert head.endswith(" -Command ")
    parsed = tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(quoted.encode())
    assert not parsed.root_node.has_error


def test_own_templates_are_used_where_they_are_given():
    recipe = recipes.load("windows-server-2022")
    own = dict(recipe.templates)
    own["oobe.xml.j2"] = own["oobe.xml.j2"].replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    settings = answers.CLONES["clone"]
    changed = clone_answer_file(settings, own)
    assert changed == answers.golden("clone").replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    assert clone_answer_file(settings, recipe.templates) == answers.golden("clone")


def test_other_passwords_change_nothing_but_their_two_values():
    settings = answers.INSTALLATIONS["2022-core-uefi-evaluation-virtio"].settings
    other = replace(settings, administrator_password="Another-Password.2")
    one, two = (answer_file(each).decode().splitlines() for each in (settings, other))
    assert sum(a != b for a, b in zip(one, two, strict=True)) == 2


def test_settings_do_not_show_their_secrets():
    shown = repr(answers.INSTALLATIONS["2022-desktop-uefi-retail-sata-german"].settings)
    assert answers.PASSWORD not in shown
    assert answers.OWN_KEY not in shown
    assert answers.PASSWORD not in repr(answers.CLONES["clone"])
