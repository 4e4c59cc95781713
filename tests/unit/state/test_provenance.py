"""What a run was made with: the commit of a checkout, read as git writes it."""

import getpass
import importlib.metadata
import shutil
import socket
import subprocess

import pytest

from lab.shells.checkout import made_here
from lab.state.provenance import commit_of, provenance


def git(directory, *arguments):
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / "pyproject.toml").write_text("")
    git(directory, "init", "--quiet")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "first")
    return directory


def head(directory):
    return git(directory, "rev-parse", "HEAD")[:12]


def test_the_commit_of_a_branch(checkout):
    assert commit_of(checkout) == head(checkout)
    assert provenance(checkout).commit == head(checkout)


def test_the_commit_of_a_packed_branch(checkout):
    git(checkout, "tag", "--annotate", "--message", "a line that begins with ^", "v1")
    git(checkout, "pack-refs", "--all")
    assert commit_of(checkout) == head(checkout)


def test_the_commit_that_is_checked_out_without_a_branch(checkout):
    git(checkout, "checkout", "--quiet", "--detach")
    assert commit_of(checkout) == head(checkout)


def test_changes_that_are_not_committed(checkout, monkeypatch):
    assert not made_here(checkout).changed
    (checkout / "notes.txt").write_text("")
    assert not made_here(checkout).changed, "not tracked"
    (checkout / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert made_here(checkout).tool.endswith(
        f"commit {commit_of(checkout)} with uncommitted changes"
    )
    monkeypatch.delenv("GIT_DIR")
    git(checkout, "add", ".")
    assert made_here(checkout).changed
    git(checkout, "commit", "--quiet", "--message", "second")
    assert not made_here(checkout).changed
    monkeypatch.setenv("PATH", "/nowhere")
    assert not made_here(checkout).changed


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_of_a_worktree(checkout, tmp_path, packed):
    git(checkout, "worktree", "add", "--quiet", "-b", "other/branch", str(tmp_path / "second"))
    git(tmp_path / "second", "commit", "--quiet", "--allow-empty", "--message", "second")
    if packed:
        git(checkout, "pack-refs", "--all")
    assert commit_of(tmp_path / "second") == head(tmp_path / "second") != head(checkout)


@pytest.mark.parametrize(
    "content", ["", "ref: refs/heads/gone", "0" * 39, "gitdir: /nowhere", "\xff"]
)
def test_a_damaged_checkout_has_no_commit(tmp_path, content):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(content.encode("latin-1"))
    assert commit_of(tmp_path) == ""


def test_a_directory_of_installed_packages_has_no_commit_though_it_is_in_a_checkout(checkout):
    (checkout / "pyproject.toml").unlink()
    assert commit_of(checkout) == ""


def test_what_is_told_of_the_machine_does_not_name_it():
    made = provenance()
    assert made.tool.startswith("hybridlab ")
    words = f"{made.tool} {made.surroundings}".split()
    assert "GiB," in words or "GiB" in words
    assert socket.gethostname() not in words
    assert getpass.getuser() not in words


def test_the_commit_is_told_once(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.1.0.dev7+g1f2e3d4c5.d20261129")
    assert provenance(tmp_path).tool == "hybridlab 0.1.0.dev7, commit 1f2e3d4c5"
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.1.0")
    assert provenance(tmp_path).tool == "hybridlab 0.1.0"
