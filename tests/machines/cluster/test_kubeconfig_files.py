"""A lab's kubeconfig: read, and written to a file of its own."""

import os
from pathlib import Path

import pytest

from lab._errors import UsageError
from lab.lifecycle.down import remove_files
from lab.machines import access
from lab.machines.cluster.credentials import (
    Access,
    KubeconfigError,
    Pair,
    kubeconfig_text,
    read_kubeconfig,
)

OWN = """# my clusters
apiVersion: v1
kind: Config
preferences: {}
current-context: work
clusters:
- name: work
  cluster:
    server: https://work.example:6443
    certificate-authority-data: QQ==
contexts:
- name: work
  context:
    cluster: work
    user: me
    namespace: mine
users:
- name: me
  user:
    token: hidden  # by hand
"""
ACCESS = Access("hybridlab-x", "https://192.168.251.10:6443", "CA\n", Pair("C\n", "K\n"))


def test_a_kubeconfig_reads_as_it_was_written():
    assert read_kubeconfig(kubeconfig_text(ACCESS), "hybridlab-x") == ACCESS


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "kind: Pod", "kind: Config\nclusters: []"])
def test_what_is_no_kubeconfig_is_refused(text):
    with pytest.raises(KubeconfigError):
        read_kubeconfig(text or "''", "x")


def test_an_export_replaces_an_export_and_nothing_else(tmp_path):
    path = tmp_path / "x.conf"
    access.write(ACCESS, path)
    again = ACCESS.at("https://1.2.3.4:6443")
    access.write(again, path)
    assert read_kubeconfig(path.read_text(), ACCESS.name) == again
    assert path.stat().st_mode & 0o777 == 0o600
    for other in (OWN, OWN.encode("utf-16"), b"a: " + b"[" * 600, b"day: 2020-13-45\n", "list"):
        content = other.encode() if isinstance(other, str) else other
        path.write_bytes(content)
        with pytest.raises(UsageError, match="the file has other contents"):
            access.write(ACCESS, path)
        assert path.read_bytes() == content


def test_a_context_merged_by_an_earlier_version_is_reported_when_its_lab_goes(tmp_path, capsys):
    directory = tmp_path / "labs" / "x"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "kubeconfig")
    remove_files(directory)
    assert "kubectl config delete-context hybridlab-x" in capsys.readouterr().err
    assert not list(directory.iterdir())


def test_two_labs_have_tunnels_of_their_own():
    assert access.local_port("overlay") == access.local_port("overlay")
    assert access.local_port("overlay") != access.local_port("hard-way")


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_a_file_that_another_user_makes_meanwhile_is_not_given_a_kubeconfig(
    tmp_path, monkeypatch, make
):
    path = tmp_path / "config"

    def interfere(look):
        def interfered(name, *others, **more):
            try:
                return look(name, *others, **more)
            finally:
                if name == path.name and not os.path.lexists(path):
                    make(path)
                    os.chown(path, 65534, 65534)
                    readers.append(os.open(str(path), os.O_RDONLY | os.O_NONBLOCK))

        return interfered

    readers: list[int] = []
    with monkeypatch.context() as patched:
        for name in ("stat", "open"):
            patched.setattr(os, name, interfere(getattr(os, name)))
        access.write(ACCESS, path)
    os.close(readers.pop())
    assert path.is_file()
    assert path.stat().st_uid == 0
