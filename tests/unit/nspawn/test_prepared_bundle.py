"""A prepared bundle whose files were cut short, as by a power cut, is refused with their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab._errors import PreflightError
from lab.providers.nspawn.prepared import check

FILES = {"bundle/bin/kubelet": b"program", "containerd/blobs/sha256/0123": b"layer of an image"}


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (tmp_path / "containerd/link").symlink_to("nowhere")
    lines = (f"{len(content)} {name}\n" for name, content in FILES.items())
    (tmp_path / "files").write_text("".join(lines))
    return tmp_path


def test_a_whole_one_is_taken(ready: Path) -> None:
    check(ready)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(b""), "has 0 bytes of"),
        (lambda path: path.write_bytes(path.read_bytes() * 2), "has "),
    ],
)
def test_a_file_that_is_not_as_it_was_made_is_named(
    ready: Path, name: str, damage: Callable[[Path], object], words: str
) -> None:
    damage(ready / name)
    with pytest.raises(PreflightError) as refused:
        check(ready)
    assert f"'{name}' {words}" in refused.value.happened
    assert f"rm -r '{ready}'" in refused.value.hint


def test_one_without_its_list_is_refused(ready: Path) -> None:
    (ready / "files").unlink()
    with pytest.raises(PreflightError, match="no list of its files"):
        check(ready)


def test_of_many_the_first_are_named_and_the_others_counted(ready: Path) -> None:
    lines = "".join(f"1 bundle/{number}\n" for number in range(9))
    (ready / "files").write_text(lines)
    with pytest.raises(PreflightError, match="'bundle/3' is gone; and 5 more"):
        check(ready)
