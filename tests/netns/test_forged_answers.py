"""What a program in a pod writes into the pipe of its helper is data to the caller, never code."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from netns_running import PROGRAMS

PLAIN = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
USERS = [
    pytest.param((), id="this user"),
    pytest.param(
        PLAIN,
        id="a plain user",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
    ),
]


class Ran:
    """Unpickled, it makes a directory: the pod's program itself makes none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def forged(new_lab, user: tuple[str, ...], message: bytes) -> dict[str, object]:
    lab = new_lab("forged")
    lab.directory.chmod(0o777)
    done = subprocess.run(
        [
            *user,
            sys.executable,
            str(PROGRAMS / "forged.py"),
            lab.token,
            str(lab.directory),
            message.hex(),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    assert document["opened"]
    return document


# SECURITY.md: What comes from a lab is data.
@pytest.mark.parametrize("user", USERS)
def test_a_pickle_from_a_pod_is_not_loaded(new_lab, tmp_path, user):
    code = pickle.dumps(("told", Ran(tmp_path / "ran")))
    found = forged(new_lab, user, struct.pack("=I", len(code)) + code)
    assert not (tmp_path / "ran").exists()
    assert "cannot be read" in str(found["met"])


# SECURITY.md: What comes from a lab is data.
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"code": "0", "stdout": "", "stderr": ""}', "int is wanted, not str"),
        (b'{"code": 0}', "not the fields of Completed"),
        (b"[" * 50_000, "nested too deeply"),
        (b"\xff", "codec can't decode"),
    ],
    ids=["a wrong type", "missing fields", "nesting", "no text"],
)
def test_an_answer_of_another_form_is_refused(new_lab, user, body, says):
    message = struct.pack("=cI", b"t", len(body)) + body
    found = forged(new_lab, user, message)
    assert "cannot be read" in str(found["met"])
    assert says in str(found["met"])
