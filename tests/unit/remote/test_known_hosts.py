"""Which keys of a known_hosts file are a host's, against ssh-keygen where it can be asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.remote.keys import host_keys

A, B, C = "ssh-ed25519 AAAA", "ssh-rsa BBBB", "ecdsa-sha2-nistp256 CCCC"


@pytest.mark.parametrize(
    ("text", "host", "port", "keys"),
    [
        ("", "hv1", 22, ()),
        (f"hv1 {A}\n", "hv1", 22, (A,)),
        (f"hv1 {A} a comment\n", "HV1", 22, (A,)),
        (f"hv1 {A}\nhv1 {B}\nhv2 {C}\n", "hv1", 22, (A, B)),
        (f"hv1 {A}\nhv1 {A}\n", "hv1", 22, (A,)),
        (f"hv1,192.0.2.1 {A}\n", "192.0.2.1", 22, (A,)),
        (f"hv1 {A}\n", "hv1", 2222, ()),
        (f"[hv1]:2222 {A}\n", "hv1", 2222, (A,)),
        (f"[hv1]:2222 {A}\n", "hv1", 22, ()),
        (f"[hv*]:2222 {A}\n", "hv1", 2222, (A,)),
        (f"*.example,!bad.example {A}\n", "good.example", 22, (A,)),
        (f"*.example,!bad.example {A}\n", "bad.example", 22, ()),
        (f"hv? {A}\n", "hv1", 22, (A,)),
        (f"@revoked * {A}\nhv1 {A}\nhv1 {B}\n", "hv1", 22, (B,)),
        (f"@cert-authority *.example {A}\n", "hv1.example", 22, ()),
        (f"# hv1 {A}\n\n  \nhv1\nhv1 ssh-rsa\n", "hv1", 22, ()),
        ("|1|broken|also broken ssh-rsa BBBB\n", "hv1", 22, ()),
        ("|1| ssh-rsa BBBB\n", "hv1", 22, ()),
    ],
)
def test_a_host_has_the_keys_that_its_lines_give_it(
    text: str, host: str, port: int, keys: tuple[str, ...]
) -> None:
    assert host_keys(text, host, port) == keys


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_hashed_names_are_found_as_ssh_keygen_hashes_them(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join(Path(f"{key}.pub").read_text().split()[:2])
    file = tmp_path / "known_hosts"
    file.write_text(f"hv1 {public}\n[hv2]:2222 {public}\n")
    subprocess.run(["ssh-keygen", "-qH", "-f", file], check=True, capture_output=True)
    text = file.read_text()
    assert all(line.startswith("|1|") for line in text.splitlines())
    assert host_keys(text, "hv1") == host_keys(text, "hv2", 2222) == (public,)
    assert host_keys(text, "hv2") == ()
