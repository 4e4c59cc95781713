"""Key pairs as OpenSSH's own tools take them, and which keys of a known_hosts file are a host's."""

import pytest
from processes import run_program

from lab.machines.ssh.keys import bare_key, fingerprint, host_keys, make_key_pair


def test_a_pair_belongs_together_no_two_are_the_same_and_the_private_half_is_not_shown():
    key_pair, other = make_key_pair("lab overlay"), make_key_pair("lab overlay")
    assert key_pair.public != other.public
    assert key_pair.public.startswith("ssh-ed25519 AAAA")
    assert key_pair.public.endswith(" lab overlay\n")
    assert key_pair.private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert "PRIVATE" not in repr(key_pair)
    assert key_pair.public.strip() in repr(key_pair)


def test_ssh_keygen_reads_both_halves(tmp_path):
    pair = make_key_pair("lab overlay")
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(pair.private)

    def ask(*words: str) -> str:
        return run_program(["ssh-keygen", *words, "-f", key]).stdout

    assert bare_key(ask("-y")) == bare_key(pair.public)
    key.write_text(pair.public)
    assert fingerprint(pair.public).split()[1] == ask("-l").split()[1]


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "  "])
def test_what_is_no_public_key_is_refused(text):
    with pytest.raises(ValueError, match="not a public key"):
        bare_key(text)


A, B, C = "ssh-ed25519 AAAA", "ssh-rsa BBBB", "ecdsa-sha2-nistp256 CCCC"


@pytest.mark.parametrize(
    ("text", "host", "port", "keys"),
    [
        ("", "hv1", 22, ()),
        (f"hv1 {A}\n", "hv1", 22, (A,)),
        (f"hv1 {A} a comment\n", "HV1", 22, (A,)),
        (f"hv1 {A}\nhv1 {B}\nhv2 {C}\n", "hv1", 22, (A, B)),
        (f"hv1 {A}\nhv1 {A}\n", "hv1", 22, (A,)),
        (f"hv1 {A}\n", "hv1", 2222, ()),
        (f"[hv1]:2222 {A}\n", "hv1", 2222, (A,)),
        (f"[hv1]:2222 {A}\n", "hv1", 22, ()),
        (f"*.example,!bad.example {A}\n", "bad.example", 22, ()),
        (f"@revoked * {A}\nhv1 {A}\nhv1 {B}\n", "hv1", 22, (B,)),
        (f"@cert-authority *.example {A}\n", "hv1.example", 22, ()),
        (f"# hv1 {A}\n\n  \nhv1\nhv1 ssh-rsa\n", "hv1", 22, ()),
        ("|1|broken|also broken ssh-rsa BBBB\n", "hv1", 22, ()),
        ("|1| ssh-rsa BBBB\n", "hv1", 22, ()),
    ],
)
def test_a_host_has_the_keys_that_its_lines_give_it(tmp_path, text, host, port, keys):
    file = tmp_path / "known_hosts"
    file.write_text(text)
    assert host_keys(file, host, port) == keys


def test_hashed_names_are_found_and_a_missing_file_has_none(tmp_path):
    file = tmp_path / "known_hosts"
    assert host_keys(file, "hv1") == ()
    key = bare_key(make_key_pair("host").public)
    file.write_text(f"hv1 {key}\n[hv2]:2222 {key}\n")
    run_program(["ssh-keygen", "-qH", "-f", file])
    assert all(line.startswith("|1|") for line in file.read_text().splitlines())
    assert host_keys(file, "hv1") == host_keys(file, "hv2", 2222) == (key,)
    assert host_keys(file, "hv2") == ()
