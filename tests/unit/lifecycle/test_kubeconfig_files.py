"""A lab's context in the user's own kubeconfig: put in, taken out, all else untouched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab._errors import DeadlineError, UsageError
from lab.cluster import kubeconfig
from lab.cluster.certificates import Pair
from lab.cluster.kubeconfig import Access, KubeconfigError
from lab.lifecycle import kube_access, kube_file
from lab.lifecycle.removal import remove_files

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


def loaded(text: str) -> dict:
    return YAML(typ="safe").load(text)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    directory = tmp_path / "labs" / "x"
    directory.mkdir(parents=True)
    return directory


def test_a_kubeconfig_reads_as_it_was_written() -> None:
    assert kubeconfig.read(kubeconfig.text(ACCESS), "hybridlab-x") == ACCESS


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "kind: Pod", "kind: Config\nclusters: []"])
def test_what_is_no_kubeconfig_is_refused(text: str) -> None:
    with pytest.raises(KubeconfigError):
        kubeconfig.read(text or "''", "x")


def test_other_contexts_comments_and_order_stay() -> None:
    both = kubeconfig.merged(OWN, ACCESS)
    found = loaded(both)
    assert found["current-context"] == "hybridlab-x"
    assert [one["name"] for one in found["contexts"]] == ["work", "hybridlab-x"]
    assert both.startswith("# my clusters\n")
    assert "token: hidden  # by hand" in both
    gone = kubeconfig.without(both, "hybridlab-x")
    assert loaded(gone) == loaded(OWN) | {"current-context": ""}
    assert "# by hand" in gone


def test_merging_again_replaces_and_a_choice_made_since_stays() -> None:
    twice = kubeconfig.merged(kubeconfig.merged(OWN, ACCESS), ACCESS.at("https://1.2.3.4:6443"))
    assert [one["name"] for one in loaded(twice)["clusters"]] == ["work", "hybridlab-x"]
    assert "1.2.3.4" in twice
    chosen = twice.replace("current-context: hybridlab-x", "current-context: work")
    assert loaded(kubeconfig.without(chosen, "hybridlab-x"))["current-context"] == "work"


@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: Config\nclusters: null\n"])
def test_an_empty_file_takes_the_first_context(text: str) -> None:
    merged = loaded(kubeconfig.merged(text, ACCESS))
    assert kubeconfig.read(kubeconfig.merged(text, ACCESS), "hybridlab-x") == ACCESS
    assert [one["name"] for one in merged["users"]] == ["hybridlab-x"]


def test_a_merged_context_goes_with_the_labs_files(tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "home" / ".kube" / "config"
    kube_file.merge(lab, ACCESS, path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(kubeconfig.merged(OWN, ACCESS))
    remove_files(lab)
    assert loaded(path.read_text())["contexts"] == loaded(OWN)["contexts"]
    assert not list(path.parent.glob("*.lock"))
    assert not list(lab.iterdir())


def test_a_link_stays_one_and_the_file_behind_it_is_changed(tmp_path: Path, lab: Path) -> None:
    real = tmp_path / "real"
    real.write_text(OWN)
    (tmp_path / "config").symlink_to(real)
    kube_file.merge(lab, ACCESS, tmp_path / "config")
    assert (tmp_path / "config").is_symlink()
    assert "hybridlab-x" in real.read_text()


def test_a_broken_file_is_refused_and_stays(tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: [\n")
    with pytest.raises(UsageError, match="is no kubeconfig"):
        kube_file.merge(lab, ACCESS, path)
    assert path.read_text() == "a: [\n"


def test_a_broken_file_keeps_no_lab_from_going(tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "config"
    kube_file.merge(lab, ACCESS, path)
    path.write_text("a: [\n")
    said: list[str] = []
    kube_file.forget(lab, said.append)
    assert "is no kubeconfig" in said[0]
    path.unlink()
    kube_file.forget(lab, said.append)
    assert len(said) == 1


def test_a_file_that_kubectl_holds_is_waited_for(
    tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.lifecycle.kube_file._LOCK_SECONDS", 0.05)
    (tmp_path / "config.lock").touch()
    with pytest.raises(DeadlineError, match=r"config\.lock' is there"):
        kube_file.merge(lab, ACCESS, tmp_path / "config")
    assert (tmp_path / "config.lock").exists(), "it is not ours"


def test_the_users_file_is_the_first_of_kubeconfig() -> None:
    assert kube_file.user_file({"HOME": "/h"}) == Path("/h/.kube/config")
    several = os.pathsep.join(("", "/a", "/b"))
    assert kube_file.user_file({"HOME": "/h", "KUBECONFIG": several}) == Path("/a")


def test_two_labs_have_tunnels_of_their_own() -> None:
    assert kube_access.local_port("overlay") == kube_access.local_port("overlay")
    assert kube_access.local_port("overlay") != kube_access.local_port("hard-way")
