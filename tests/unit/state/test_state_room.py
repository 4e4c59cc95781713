"""What room is left: on the disk, in memory, and in the control groups of this process."""

import re
from pathlib import Path

import pytest

from lab.state.capacity import available, check_room
from lab.state.failure import FullError


def test_the_file_named_by_the_error_exists(tmp_path):
    (tmp_path / "overlay").mkdir()
    with pytest.raises(FullError, match="MiB are free") as raised:
        check_room(tmp_path / "overlay", 1 << 60)
    (tmp_path / "overlay").rmdir()  # as the lock does, where no lab came of it
    shown = re.search("df -h '(.+)'", raised.value.hint)
    assert shown is not None
    assert Path(shown[1]).is_mount()


KIB = 1024


def machine(root: Path, groups: str = "", **files: str) -> Path:
    """A machine with 1,000 KiB available; ``a__b`` in a name is ``a/b``."""
    named = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1000 kB\n", "proc/self/cgroup": groups}
    named |= {f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()}
    for name, text in named.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_groups_the_room_is_the_kernels_or_unlimited(tmp_path):
    assert available(tmp_path) > 1 << 60
    assert available(machine(tmp_path)) == 1000 * KIB


@pytest.mark.parametrize(
    ("limit", "left"), [("max", 1000 * KIB), (str(900 * KIB), 400 * KIB), ("nonsense", 1000 * KIB)]
)
def test_a_group_of_version_2_has_what_its_parents_leave(tmp_path, limit, left):
    root = machine(
        tmp_path,
        "0::/a/b\n",
        **{
            "a__memory.max": limit,
            "a__memory.current": str(600 * KIB),
            "a__memory.stat": f"anon 1\ninactive_file {100 * KIB}\n",
            "a__b__memory.max": "max",
            "a__b__memory.current": "1",
        },
    )
    assert available(root) == left


def test_a_group_of_version_1_counts_too(tmp_path):
    files = {
        "memory__x__memory.limit_in_bytes": str(50 * KIB),
        "memory__x__memory.usage_in_bytes": str(20 * KIB),
    }
    root = machine(tmp_path, "5:pids:/x\n4:memory:/x\n", **files)
    assert available(root) == 30 * KIB
