"""Key pairs are such as OpenSSH's own tools take."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.remote.keys import bare_key, fingerprint, make_key_pair


def test_a_pair_belongs_together_and_no_two_are_the_same() -> None:
    one, other = make_key_pair("lab overlay"), make_key_pair("lab overlay")
    assert one.public != other.public
    assert one.public.startswith("ssh-ed25519 AAAA")
    assert one.public.endswith(" lab overlay\n")
    assert one.private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")


def test_the_private_half_is_not_shown() -> None:
    pair = make_key_pair("lab")
    assert "PRIVATE" not in repr(pair)
    assert pair.public.strip() in repr(pair)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_ssh_keygen_reads_both_halves(tmp_path: Path) -> None:
    pair = make_key_pair("lab overlay")
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(pair.private)

    def ask(*words: str) -> str:
        return subprocess.run(
            ["ssh-keygen", *words, "-f", key], check=True, capture_output=True, text=True
        ).stdout

    assert bare_key(ask("-y")) == bare_key(pair.public)
    key.write_text(pair.public)
    assert fingerprint(pair.public).split()[1] == ask("-l").split()[1]


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "  "])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a public key"):
        bare_key(text)
