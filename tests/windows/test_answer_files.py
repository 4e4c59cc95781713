"""Answer files as they are made, against golden files and against what they are made from."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import answers
import pytest
from golden_files import check_golden
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from lab._errors import UsageError
from lab.imaging import recipes
from lab.imaging.windows import answer
from lab.imaging.windows.answer import answer_file, clone_answer_file
from lab.imaging.windows.settings import RELEASES

DOCUMENTS = answers.documents()
NAMES = (*answers.INSTALLATIONS, *answers.CLONES)
UNATTEND = {"u": "urn:schemas-microsoft-com:unattend"}


def tree(document: bytes) -> etree._Element:
    return etree.fromstring(document)


def texts(document: bytes, path: str) -> list[str]:
    steps = "/".join(f"u:{step}" if step else "" for step in path.split("/"))
    return [node.text for node in tree(document).xpath(f"//{steps}", namespaces=UNATTEND)]


@pytest.mark.parametrize("name", NAMES)
def test_answer_file_is_its_golden_file(name):
    made = {one: document.decode() for one, document in DOCUMENTS.items()}
    check_golden(answers.GOLDEN / f"{name}.xml", made[name], made.get(answers.LIKE.get(name)))


def test_every_golden_file_is_of_a_variant():
    names = {f"{name}.xml.diff" if name in answers.LIKE else f"{name}.xml" for name in NAMES}
    assert {path.name for path in answers.GOLDEN.iterdir()} == names


@pytest.mark.parametrize("name", NAMES)
def test_answer_file_has_the_shape_that_windows_reads(name):
    schema = etree.XMLSchema(file=str(answers.CASES / "unattend.xsd"))
    schema.assertValid(tree(DOCUMENTS[name]))


def test_variants_cover_every_release_firmware_storage_channel_and_surface():
    settings = [variant.settings for variant in answers.INSTALLATIONS.values()]
    assert {one.wanted.year for one in settings} == set(RELEASES)
    assert {(one.firmware, one.storage) for one in settings} == {
        (firmware, storage) for firmware in ("bios", "uefi") for storage in ("virtio", "sata")
    }
    channels = {variant.channel for variant in answers.INSTALLATIONS.values()}
    assert channels == {"evaluation", "volume", "retail", "unknown"}
    assert {one.wanted.surface for one in settings} == {"core", "desktop"}


@pytest.mark.parametrize("name", NAMES)
def test_passwords_are_encoded_with_the_name_of_their_element(name):
    document = DOCUMENTS[name]
    for suffix in ("AdministratorPassword", "Password"):
        (value,) = texts(document, f"{suffix}/Value")
        assert base64.b64decode(value).decode("utf-16-le") == answers.PASSWORD + suffix
    assert answers.PASSWORD.encode() not in document
    assert set(texts(document, "PlainText")) == {"false"}


@example(words="one\u2028two\u00a0")
@given(words=st.text(st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn")), min_size=1))
def test_any_words_arrive_as_they_are(words):
    settings = answers.INSTALLATIONS["2022-desktop-bios-evaluation-sata"].settings
    document = answer_file(replace(settings, organization=words))
    assert texts(document, "UserData/Organization") == [words]


def every_list(document: bytes) -> dict[tuple[str, ...], list[str]]:
    """Order of the entries of every list, by where it stands."""
    found: dict[tuple[str, ...], list[str]] = {}
    for order in tree(document).iter("{*}Order"):
        above = [one.get("pass") or one.get("name") or one.tag for one in order.iterancestors()]
        found.setdefault(tuple(above), []).append(order.text)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_entries_of_lists_count_from_one(name):
    for place, orders in every_list(DOCUMENTS[name]).items():
        assert orders == [str(number + 1) for number in range(len(orders))], place


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_no_longer_than_windows_reads_and_restart_nothing(name):
    """259 and 1,024 characters, by Microsoft's reference; a restart would break the pass."""
    document = DOCUMENTS[name]
    paths = texts(document, "RunSynchronousCommand/Path")
    lines = texts(document, "SynchronousCommand/CommandLine")
    assert max(map(len, paths)) <= 259
    assert max(map(len, lines)) <= 1024
    assert not [one for one in paths if RESTARTS.search(one)]
    assert not [one for one in paths + lines if re.search(r"\s>\s*COM\d", one)], "echo writes it"


RESTARTS = re.compile(
    r"\b(shutdown|reboot|restart-computer|stop-computer|wpeutil|sysprep)\b", re.IGNORECASE
)


def test_template_that_makes_no_xml_is_refused():
    own = dict(recipes.load("windows-server-2022").files)
    own["oobe.xml.j2"] = own["oobe.xml.j2"].replace(b"</ProtectYourPC>", b"")
    with pytest.raises(UsageError, match=r"template 'unattend\.xml\.j2' is not valid XML: mism"):
        clone_answer_file(answers.CLONES["clone"], own)


@pytest.mark.parametrize("script", ["bootstrap.ps1", "clone.ps1"])
def test_line_that_looks_for_the_script_is_powershell_and_has_no_quote_of_its_own(script):
    grammar = pytest.importorskip("tree_sitter_powershell", reason="no grammar of PowerShell")
    tree_sitter = pytest.importorskip("tree_sitter", reason="no parser")
    line = answer.first_logon(script)[3].line
    head, quoted, rest = line.split('"')
    assert rest == ""
    assert head.endswith(" -Command ")
    parsed = tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(quoted.encode())
    assert not parsed.root_node.has_error


def test_own_templates_are_used_where_they_are_given():
    recipe = recipes.load("windows-server-2022")
    own = dict(recipe.files)
    own["oobe.xml.j2"] = own["oobe.xml.j2"].replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    settings = answers.CLONES["clone"]
    changed = clone_answer_file(settings, own)
    assert changed == DOCUMENTS["clone"].replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    assert clone_answer_file(settings, recipe.files) == DOCUMENTS["clone"]


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
