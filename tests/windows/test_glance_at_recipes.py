"""What recipes ask of a medium, read quickly: the same as when they are read whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import media_maker
import pytest

from lab.imaging import recipes
from lab.imaging.windows import glance
from lab.imaging.windows.release import Wanted

SHIPPED = Path(recipes.directory() / "windows-server-2022" / recipes.FILE).read_text()
SLOW = ("pydantic", "ruamel", "jinja2", "libvirt", "paramiko", "importlib.metadata")


def test_shipped_recipes_ask_for_what_they_say() -> None:
    whole = {name: recipes.load(name).windows for name in recipes.shipped()}
    assert glance.all_wanted() == {name: one.wanted for name, one in whole.items() if one}


@pytest.mark.parametrize(
    "change",
    [
        ('  release: "2022"', "  release: '2022'"),
        ("  edition: standard", "  edition:   standard   # the usual one"),
        ("  edition: standard\n", ""),
        ("  surface: core", "  surface: desktop"),
        ("windows:\n", '"windows":\n'),
        ("windows:\n", "windows:   # Microsoft's\n"),
        ("windows:\n", "windows:\n\n  # which one\n\n"),
        ("  edition: standard\n", "  medium_: x\n  edition: standard\n"),
        ("  surface: core", '  "surface": desktop'),
        ("  surface: core", "  surface:\n    desktop"),
    ],
)
def test_one_that_is_written_otherwise_is_read_as_the_whole_reader_does(
    change: tuple[str, str], tmp_path: Path
) -> None:
    name = "windows-server-2022"
    (tmp_path / name).mkdir()
    (tmp_path / "windows").symlink_to(recipes.directory() / "windows")
    assert change[0] in SHIPPED
    (tmp_path / name / recipes.FILE).write_text(SHIPPED.replace(*change))
    try:
        found = recipes.load(name, tmp_path).windows
    except recipes.RecipeError:
        assert isinstance(glance.all_wanted(tmp_path)[name], Wanted)
        return
    assert found is not None
    assert glance.all_wanted(tmp_path) == {name: found.wanted}


def test_looking_at_a_medium_imports_nothing_slow(tmp_path: Path) -> None:
    iso = media_maker.make(tmp_path)
    script = (
        "import sys\nfrom lab.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "image", "inspect", str(iso)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert re.search(r"windows-server-2022 +yes", done.stdout)
    loaded = set(done.stderr.split())
    assert not {one for one in loaded if one in SLOW or one.partition(".")[0] in SLOW}
