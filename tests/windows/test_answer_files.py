"""Answer files against golden files and what they are made from; passwords and product keys."""

from __future__ import annotations

import base64
import re
import string
from dataclasses import replace

import answers
import pytest
from golden_files import check_golden
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree
from powershell_syntax import Script
from tables import CASES

from lab._errors import PreflightError, UsageError
from lab.machines.images import recipes
from lab.machines.images.terms import LENGTH, RELEASES, WantedImage, random_password
from lab.windows.images import answer
from lab.windows.images.answer import answer_file, clone_answer_file
from lab.windows.images.settings import MASK, encode_password, mask, product_key

DOCUMENTS = answers.documents()
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
    made = {one: document.decode() for one, document in DOCUMENTS.items()}
    check_golden(answers.GOLDEN / f"{name}.xml", made[name], made.get(answers.LIKE.get(name)))


def test_every_golden_file_is_of_a_variant():
    names = {f"{name}.xml.diff" if name in answers.LIKE else f"{name}.xml" for name in NAMES}
    assert {path.name for path in answers.GOLDEN.iterdir()} == names


def test_variants_cover_every_release_firmware_storage_channel_and_surface():
    settings = [variant.settings for variant in answers.INSTALLATIONS.values()]
    assert {setting.wanted.year for setting in settings} == set(RELEASES)
    assert {(setting.firmware, setting.storage) for setting in settings} == {
        (firmware, storage) for firmware in ("bios", "uefi") for storage in ("virtio", "sata")
    }
    channels = {variant.channel for variant in answers.INSTALLATIONS.values()}
    assert channels == {"evaluation", "volume", "retail", "unknown"}
    assert {setting.wanted.surface for setting in settings} == {"core", "desktop"}


@example(words="one\u2028two\u00a0")
@given(words=st.text(st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn")), min_size=1))
def test_any_words_arrive_as_they_are(words):
    settings = answers.INSTALLATIONS[answers.SATA].settings
    document = answer_file(replace(settings, organization=words))
    assert texts(document, "UserData/Organization") == [words]


RESTARTS = re.compile(
    r"\b(shutdown|reboot|restart-computer|stop-computer|wpeutil|sysprep)\b", re.IGNORECASE
)


@pytest.mark.parametrize("name", NAMES)
def test_answer_file_is_what_windows_reads(name):
    """Commands of 259 and 1,024 characters, by Microsoft's reference; restarts break a pass."""
    document = DOCUMENTS[name]
    etree.XMLSchema(file=str(CASES / "unattend.xsd")).assertValid(tree(document))
    for suffix in ("AdministratorPassword", "Password"):
        (value,) = texts(document, f"{suffix}/Value")
        assert base64.b64decode(value).decode("utf-16-le") == answers.PASSWORD + suffix
    assert answers.PASSWORD.encode() not in document
    assert set(texts(document, "PlainText")) == {"false"}
    orders: dict[tuple[str, ...], list[str]] = {}
    for order in tree(document).iter("{*}Order"):
        above = [
            ancestor.get("pass") or ancestor.get("name") or ancestor.tag
            for ancestor in order.iterancestors()
        ]
        orders.setdefault(tuple(above), []).append(order.text)
    for place, found in orders.items():
        assert found == [str(number + 1) for number in range(len(found))], place
    paths = texts(document, "RunSynchronousCommand/Path")
    lines = texts(document, "SynchronousCommand/CommandLine")
    assert max(map(len, paths)) <= 259
    assert max(map(len, lines)) <= 1024
    assert not [path for path in paths if RESTARTS.search(path)]
    assert not [path for path in paths + lines if re.search(r"\s>\s*COM\d", path)], "echo writes it"


@pytest.mark.parametrize("name", NAMES)
def test_answer_file_has_only_settings_and_values_that_windows_knows(name):
    lines = (CASES / "known-settings.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    known = {tuple(row[:3]): (row[3:] or [".*"])[0] for row in rows}
    for component in tree(DOCUMENTS[name]).iter("{*}component"):
        where = component.getparent().get("pass"), component.get("name")
        for leaf in (one for one in component.iter("{*}*") if len(one) == 0):
            parents = [leaf, *leaf.iterancestors()]
            parents = parents[: parents.index(component)]
            path = "/".join(etree.QName(parent).localname for parent in reversed(parents))
            assert re.fullmatch(known[*where, path], leaf.text or ""), path
        for parent in component.iter("{*}*"):
            once = [one.tag for one in parent if one.get(f"{WCM}action") != "add"]
            assert len(set(once)) == len(once)
            keys = [one.get(f"{WCM}keyValue") for one in parent.iterfind("{*}PathAndCredentials")]
            assert None not in keys
            assert len(set(keys)) == len(keys)


def test_template_that_makes_no_xml_is_refused():
    own = dict(recipes.load("windows-server-2022").files)
    own["oobe.xml.j2"] = own["oobe.xml.j2"].replace(b"</ProtectYourPC>", b"")
    with pytest.raises(UsageError, match=r"template 'unattend\.xml\.j2' is not valid XML: mism"):
        clone_answer_file(answers.CLONES["clone"], own)


@pytest.mark.parametrize("script", ["bootstrap.ps1", "clone.ps1"])
def test_line_that_looks_for_the_script_is_powershell_and_has_no_quote_of_its_own(script):
    line = answer.first_logon(script)[3].line
    head, quoted, rest = line.split('"')
    assert rest == ""
    assert head.endswith(" -Command ")
    assert Script(script, quoted.encode()).errors == ()


def test_own_templates_are_used_where_they_are_given():
    recipe = recipes.load("windows-server-2022")
    own = dict(recipe.files)
    own["oobe.xml.j2"] = own["oobe.xml.j2"].replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    settings = answers.CLONES["clone"]
    changed = clone_answer_file(settings, own)
    assert changed == DOCUMENTS["clone"].replace(b"<ProtectYourPC>3", b"<ProtectYourPC>1")
    assert clone_answer_file(settings, recipe.files) == DOCUMENTS["clone"]


def test_other_passwords_change_nothing_but_their_two_values_and_none_is_shown():
    settings = answers.INSTALLATIONS[answers.CORE].settings
    other = replace(settings, administrator_password="Another-Password.2")
    one, two = (answer_file(each).decode().splitlines() for each in (settings, other))
    assert sum(a != b for a, b in zip(one, two, strict=True)) == 2
    german = answers.INSTALLATIONS[answers.OWN].settings
    shown = repr(german) + repr(answers.CLONES["clone"])
    assert answers.PASSWORD not in shown
    assert answers.OWN_KEY not in shown


WANTED = WantedImage("2022", "datacenter", "core")


def test_random_passwords_meet_the_complexity_rule_and_are_never_the_same():
    made = [random_password() for _ in range(500)]
    assert len(set(made)) == len(made)
    for password in made:
        assert len(password) == LENGTH >= 20
        kinds = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.")
        assert all(set(password) & set(kind) for kind in kinds)
        assert set(password) <= set("".join(kinds))
        assert password[0].isalpha()
    special = set("%!^&|<>()\"'`$;,= \t@#{}[]~*?/\\:+")
    assert not set("".join(made)) & special, "it means something to a shell or to XML"


def test_password_is_encoded_as_public_answer_files_have_it():
    """Those of rgl/windows-vagrant, whose password is public."""
    assert encode_password("vagrant", "AdministratorPassword") == (
        "dgBhAGcAcgBhAG4AdABBAGQAbQBpAG4AaQBzAHQAcgBhAHQAbwByAFAAYQBzAHMAdwBvAHIAZAA="
    )
    assert encode_password("vagrant", "Password") == "dgBhAGcAcgBhAG4AdABQAGEAcwBzAHcAbwByAGQA"
    value = encode_password("Schlüssel-€", "Password")
    assert base64.b64decode(value).decode("utf-16-le") == "Schlüssel-€Password"


@pytest.mark.parametrize("name", [*answers.INSTALLATIONS, *answers.CLONES])
def test_masked_answer_file_has_no_secret_and_is_otherwise_the_same(name):
    document = answers.documents()[name].decode()
    shown = mask(document)
    assert encode_password(answers.PASSWORD, "Password") not in shown
    assert encode_password(answers.PASSWORD, "AdministratorPassword") not in shown
    assert answers.OWN_KEY not in shown
    pairs = zip(document.splitlines(), shown.splitlines(), strict=True)
    changed = [after.strip() for before, after in pairs if before != after]
    keys = ["<Key>********</Key>", "<ProductKey>********</ProductKey>"]
    own = keys if answers.OWN_KEY in document else []
    assert changed == [*own, f"<Value>{MASK}</Value>", f"<Value>{MASK}</Value>"]


def test_product_key_fits_the_medium():
    own = answers.OWN_KEY
    table: dict[tuple[str, str | None], str | None] = {
        ("evaluation", None): None,
        ("volume", None): "WX4NM-KYWYW-QJJR4-XV3QB-6VM33",
        ("unknown", None): None,
        **{(channel, own): own for channel in ("volume", "retail", "unknown")},
    }
    assert {(channel, key): product_key(WANTED, channel, key) for channel, key in table} == table


@pytest.mark.parametrize(
    ("channel", "own", "words"),
    [
        ("evaluation", answers.OWN_KEY, "No images are available"),
        ("retail", None, "retail media need one"),
    ],
)
def test_impossible_product_key_is_refused_without_being_printed(channel, own, words):
    with pytest.raises(PreflightError, match=words) as refused:
        product_key(WANTED, channel, own)
    assert answers.OWN_KEY not in str(refused.value)
