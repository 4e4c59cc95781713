from __future__ import annotations

import io
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

from lab._errors import PreflightError
from lab.imaging import medium

FILES = {"user-data": b"#cloud-config\n", "meta-data": b"", "a.long-name.with_dots": b"x" * 5000}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.iso"
    path.write_bytes(medium.medium("OEMDRV", FILES))
    return path


def test_same_files_are_the_same_bytes_at_another_time_and_place(monkeypatch):
    first = medium.medium("cidata", FILES)
    moment = time.time() + 86_400 * 400
    monkeypatch.setattr(time, "time", lambda: moment)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert medium.medium("cidata", dict(reversed(FILES.items()))) == first
    finally:
        monkeypatch.undo()
        time.tzset()


def test_files_come_out_by_their_own_names(image):
    for name, content in FILES.items():
        out = io.BytesIO()
        medium.extract(image, f"/{name}", out)
        assert out.getvalue() == content


def test_other_programs_read_it(image):
    try:
        told = subprocess.run(
            ["xorriso", "-indev", str(image), "-find", "/", "-type", "f"],
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        pytest.skip("xorriso is not installed")
    assert sorted(told.stdout.split()) == sorted(f"'/{name}'" for name in FILES)


def test_missing_file_is_refused_with_what_is_there(image):
    with pytest.raises(PreflightError, match=r"its folder holds a\.long-name"):
        medium.extract(image, "/vmlinuz", io.BytesIO())


@pytest.mark.parametrize("content", [b"", b"\0" * 60_000, b"<html>not found</html>" * 4000])
def test_what_is_no_medium_is_refused(content, tmp_path):
    path = tmp_path / "image.iso"
    path.write_bytes(content)
    with pytest.raises(PreflightError, match="no ISO 9660 image"):
        medium.label_of(path)
    with pytest.raises(PreflightError, match="give the vendor's ISO"):
        medium.extract(path, "/vmlinuz", io.BytesIO())
