"""Secrets go, and what is none stays."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.lifecycle.evidence import GONE, SHORTEST, scrub, secret_values
from lab.remote.keys import make_key_pair

G = GONE.decode()
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\nAAAA==\n-----END OPENSSH PRIVATE KEY-----\n"
HASH = "$6$salt.salt$abcdefghijklmnopqrstuvwxyz./0123456789"


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        (f"before\n{KEY}after", f"before\n{G}\nafter"),
        (f"two\n{KEY}{KEY}", f"two\n{G}\n{G}\n"),
        (json.dumps({"key": KEY, "on": 1}), json.dumps({"key": G + "\n", "on": 1})),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA", G),
        (KEY.replace("b3Blbn", "Proc-Type: 4,ENCRYPTED\nDEK-Info: A,B\n\nAA"), G + "\n"),
        ("it says '-----BEGIN PRIVATE KEY-----'; then more", f"it says '{G}'; then more"),
        ("password: hunter2", f"password: {G}"),
        ("password: 'two words'\nnext", f"password: '{G}'\nnext"),
        ('{"password": "a\\"b", "x": 1}', f'{{"password": "{G}", "x": 1}}'),
        ("ADMIN_PASSWORD=x;y", f"ADMIN_PASSWORD={G};y"),
        ("<graphics type='vnc' passwd='x y'/>", f"<graphics type='vnc' passwd='{G}'/>"),
        ("client-secret=abc&on=1", f"client-secret={G}&on=1"),
        ("kubeadm join --token abc --on", f"kubeadm join --token {G} --on"),
        ("token abcdef.0123456789abcdef is", f"token {G} is"),
        ("https://me:pw@host/path", f"https://me:{G}@host/path"),
        ("client-key-data: LS0tLS1CRUdJTg==\nnext", f"client-key-data: {G}\nnext"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {G}"),
        (f"root:{HASH}:19000:", f"root:{G}:19000:"),
        ("password_hash: x", f"password_hash: {G}"),
    ],
)
def test_what_looks_like_a_secret_goes(text, scrubbed):
    assert scrub(text.encode()).decode() == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"pass": 360, "fail": 0}',
        "the token of the lab",
        "PasswordAuthentication no",
        "sshd: no password authentication",
        "tokens: 3",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI worker1",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "http://10.0.0.1:8080/path",
        "fe80::1/64 dev eth0 proto kernel",
        "secretRef:\n  name: x",
        "costs $6 or $12",
    ],
)
def test_what_is_no_secret_stays(text):
    assert scrub(text.encode()).decode() == text


@pytest.mark.parametrize("secret", ["p<&>\"'w", "päss", "a/b c%", "x" * SHORTEST])
def test_a_known_secret_goes_however_it_is_written(secret):
    raw = secret.encode()
    xml = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    texts = [raw, base64.b64encode(raw)]
    if secret.isascii():
        texts += [json.dumps(secret)[1:-1].encode(), xml.encode()]
    for text in texts:
        assert scrub(b"(" + text + b")", [raw]) == b"(" + GONE + b")"


def test_in_what_is_no_text_only_known_secrets_go():
    picture = b"\x89PNG\0password: x known"
    assert scrub(picture, [b"known"]) == b"\x89PNG\0password: x " + GONE


def test_what_is_too_short_for_a_secret_tears_no_holes():
    assert scrub(b"a b c", [b"a", b""]) == b"a b c"


def test_of_a_key_file_no_line_is_left():
    private = make_key_pair("x").private
    values = list(secret_values(private.encode()))
    for line in private.splitlines()[1:-1]:
        assert line.encode() not in scrub(f"log: {line} end".encode(), values)


@given(
    st.lists(st.binary(min_size=SHORTEST, max_size=40), max_size=4),
    st.lists(st.binary(max_size=30), min_size=1, max_size=6),
)
def test_no_known_secret_is_ever_left(secrets, parts):
    text = b"".join(part + secret for part in parts for secret in (secrets or [b""]))
    done = scrub(text, secrets)
    for secret in secrets:
        assert secret not in done.replace(GONE, b"\xff\0\xff")
