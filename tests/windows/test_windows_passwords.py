"""Passwords of Windows guests, and product keys."""

from __future__ import annotations

import base64
import string

import answers
import pytest

from lab._errors import PreflightError
from lab.imaging.windows.settings import (
    LENGTH,
    MASK,
    WantedImage,
    encode_password,
    mask,
    product_key,
    random_password,
)

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


def test_no_character_of_a_password_means_anything_to_a_shell_or_to_xml():
    special = set("%!^&|<>()\"'`$;,= \t@#{}[]~*?/\\:+")
    assert not set("".join(random_password() for _ in range(200))) & special


@pytest.mark.parametrize(
    ("suffix", "value"),
    [
        (
            "AdministratorPassword",
            "dgBhAGcAcgBhAG4AdABBAGQAbQBpAG4AaQBzAHQAcgBhAHQAbwByAFAAYQBzAHMAdwBvAHIAZAA=",
        ),
        ("Password", "dgBhAGcAcgBhAG4AdABQAGEAcwBzAHcAbwByAGQA"),
    ],
)
def test_password_is_encoded_as_public_answer_files_have_it(suffix, value):
    """Those of rgl/windows-vagrant, whose password is public."""
    assert encode_password("vagrant", suffix) == value


def test_password_outside_ascii_is_encoded_whole():
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


def test_public_key_is_shown():
    document = answers.documents()["2022-datacenter-core-bios-volume-virtio"].decode()
    assert mask(document).count("WX4NM-KYWYW-QJJR4-XV3QB-6VM33") == 2


@pytest.mark.parametrize(
    ("channel", "own", "key"),
    [
        ("evaluation", None, None),
        ("volume", None, "WX4NM-KYWYW-QJJR4-XV3QB-6VM33"),
        ("volume", answers.OWN_KEY, answers.OWN_KEY),
        ("retail", answers.OWN_KEY, answers.OWN_KEY),
        ("unknown", None, None),
        ("unknown", answers.OWN_KEY, answers.OWN_KEY),
    ],
)
def test_product_key_fits_the_medium(channel, own, key):
    assert product_key(WANTED, channel, own) == key


@pytest.mark.parametrize(
    ("channel", "own", "words"),
    [
        ("evaluation", answers.OWN_KEY, "No images are available"),
        ("retail", None, "retail media need one"),
    ],
)
def test_product_key_that_cannot_be_is_refused_without_being_said(channel, own, words):
    with pytest.raises(PreflightError, match=words) as refused:
        product_key(WANTED, channel, own)
    assert answers.OWN_KEY not in str(refused.value)
