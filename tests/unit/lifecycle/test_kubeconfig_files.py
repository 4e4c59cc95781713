"""A lab's context in the user's own kubeconfig: put in, taken out, all else untouched."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab._errors import DeadlineError, StateError, UsageError
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


def test_the_users_file_is_the_first_of_kubeconfig_that_is_there_else_the_last(
    tmp_path: Path,
) -> None:
    assert kube_file.user_file({"HOME": "/h"}) == Path("/h/.kube/config")
    first, second = tmp_path / "a", tmp_path / "b"
    several = {"HOME": "/h", "KUBECONFIG": os.pathsep.join(("", str(first), str(second), "/c"))}
    assert kube_file.user_file(several) == Path("/c")
    second.touch()
    assert kube_file.user_file(several) == second
    first.touch()
    assert kube_file.user_file(several) == first


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (OWN.replace("my clusters", "m\xe4").encode("latin-1"), "no text in UTF-8"),
        (OWN.encode("utf-16"), "no text in UTF-8"),
        (b"a: " + b"[" * 600, "no YAML that can be read"),
        (b"day: 2020-13-45\n", "no YAML that can be read"),
        (OWN.encode() + b"users: []\n", "no YAML that can be read, line 21"),
    ],
)
def test_a_hostile_file_is_refused_stays_and_keeps_no_lab_from_going(
    tmp_path: Path, lab: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        kube_file.merge(lab, ACCESS, path)
    assert "hidden" not in str(refused.value)
    assert path.read_bytes() == content
    said: list[str] = []
    kube_file.forget(lab, said.append)
    assert words in said[0]
    assert path.read_bytes() == content


def test_what_kubectl_reads_in_a_merged_file_is_what_it_read_before() -> None:
    words = ("off", "yes", "y", "~", "012", "1:30", "2020-01-01", "0o14", "1_0")
    given = OWN + "".join(f'x{n}: "{word}"\n' for n, word in enumerate(words))
    old = YAML(typ="safe")
    old.version = (1, 1)  # as kubectl's
    found = old.load(kubeconfig.without(kubeconfig.merged(given, ACCESS), ACCESS.name))
    assert [found[f"x{n}"] for n in range(len(words))] == list(words)
    assert found == loaded(given) | {"current-context": ""}


@pytest.mark.parametrize("text", ["\n\n", "# nothing yet\n", "---\n"])
def test_a_file_with_nothing_but_comments_takes_the_first_context(text: str) -> None:
    merged = kubeconfig.merged(text, ACCESS)
    assert kubeconfig.read(merged, ACCESS.name) == ACCESS
    assert ("# nothing yet" in merged) == ("# nothing yet" in text)


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, lab: Path, kind: str) -> None:
    path = tmp_path / "config"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    with pytest.raises(UsageError, match=r"regular file|a directory|leads to itself"):
        kube_file.merge(lab, ACCESS, path)
    assert [one.name for one in tmp_path.iterdir() if one.name != "labs"] == ["config"]


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "a\nb", "a\x1cb", "\u2028"])
def test_a_file_of_any_name_takes_the_context_and_loses_it_again(
    tmp_path: Path, lab: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text(OWN)
    kube_file.merge(lab, ACCESS, path)
    assert "hybridlab-x" in path.read_text()
    said: list[str] = []
    kube_file.forget(lab, said.append)
    assert (said, "hybridlab-x" in path.read_text()) == ([], False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_merged_file_stays_its_owners(tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OWN)
    os.chown(path, 65534, 65533)
    kube_file.merge(lab, ACCESS, path)
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65533, 0o600)


def test_a_file_that_cannot_be_written_is_refused_and_stays(tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OWN)
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("root may write everything")
    with pytest.raises(StateError, match="permission denied"):
        kube_file.merge(lab, ACCESS, path)
    assert path.read_text() == OWN


def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    kube_file.write(ACCESS, path)
    again = ACCESS.at("https://1.2.3.4:6443")
    kube_file.write(again, path)
    assert kubeconfig.read(path.read_text(), ACCESS.name) == again
    assert path.stat().st_mode & 0o777 == 0o600
    for other in (OWN, kubeconfig.merged(OWN, ACCESS), "shopping list"):
        path.write_text(other)
        with pytest.raises(UsageError, match="there is something else in it") as refused:
            kube_file.write(ACCESS, path)
        assert f"KUBECONFIG='{path}' lab kubeconfig x --merge" in refused.value.cure
        assert path.read_text() == other


def test_an_export_goes_into_a_pipe_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    kube_file.write(ACCESS, link)
    assert link.is_symlink()
    read, write = os.pipe()
    kube_file.write(ACCESS, Path(f"/dev/fd/{write}"))
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        assert pipe.read() == kubeconfig.text(ACCESS) == (tmp_path / "real").read_text()
    kube_file.write(ACCESS, Path(os.devnull))
    assert not Path(os.devnull).is_file()


def test_a_link_where_the_draft_would_be_leads_nobody_astray(
    tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(("guessed", "another")))
    victim = tmp_path / "victim"
    for name in (".config.guessed", ".kubeconfig.guessed"):
        (tmp_path / name).symlink_to(victim)
    kube_file.merge(lab, ACCESS, tmp_path / "config")
    assert not victim.exists()
    assert (tmp_path / "config").is_file()


def test_labs_that_are_merged_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OWN)
    names = [f"x{number}" for number in range(6)]

    def merge(name: str) -> None:
        (tmp_path / "labs" / name).mkdir(parents=True)
        access = replace(ACCESS, name=kubeconfig.context(name))
        kube_file.merge(tmp_path / "labs" / name, access, path)

    with ThreadPoolExecutor() as pool:
        list(pool.map(merge, names))
    found = {one["name"] for one in loaded(path.read_text())["contexts"]}
    assert found == {"work", *(f"hybridlab-{name}" for name in names)}


def test_two_labs_have_tunnels_of_their_own() -> None:
    assert kube_access.local_port("overlay") == kube_access.local_port("overlay")
    assert kube_access.local_port("overlay") != kube_access.local_port("hard-way")
