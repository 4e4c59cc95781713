"""``lab gather`` as a user runs it, on a lab that is up and on one that is broken."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from lab_command import processes_with

pytestmark = pytest.mark.slow


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as packed:
        return {
            member.name.removeprefix("overlay-evidence/"): content.read()
            for member in packed
            if (content := packed.extractfile(member))
        }


# SECURITY.md: No secret is on a command line.
def test_a_lab_that_is_up_or_broken_is_gathered_without_its_token(lab, tmp_path):
    lab.run("up", "overlay", "--only", "linux")
    lab.run("test", "overlay", "-k", "pod-pod")
    path = tmp_path / "one.tar.gz"
    assert lab.run("gather", "overlay", "-o", str(path)).stdout == f"{path}\n"
    found = members(path)
    assert json.loads(found["journal.json"])["lab"]["status"] == "up"
    assert b"default via" in found["netns/worker1/routes.txt"]
    (result,) = (content for name, content in found.items() if name.endswith("/result.json"))
    assert json.loads(result)["scenario"]
    token = lab.token().encode()
    assert len(token) == 16
    runs = [path for path in (lab.state / "labs").rglob("runs/*/*") if path.is_file()]
    assert not [path for path in runs if token in path.read_bytes()]
    assert not [name for name, content in found.items() if token in content]
    lab.kill_holder()
    lab.run("gather", "overlay", "-o", str(path))
    assert b"no holder process" in members(path)["netns/holder.txt"]
    lab.run("down", "overlay")
    assert not processes_with(str(lab.state))
