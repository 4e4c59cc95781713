"""Run the tests of a cluster with a Windows node on Wine; as a program, and as root.

``python tests/machines/real/nspawn/wine_tests.py FILE...``: these tests; without a file, only
whether this machine can run them. Bundle, images and the template are kept in a cache of their own:
another bundle than that of other tests, with programs for Windows and PowerShell. Where it cannot,
the last line says NOT RUN, and the exit code is 4.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[3]
sys.path += [str(TESTS), str(TESTS / "bundle")]

from bundle.made_bundle import PARTS, default_cache, made_input  # noqa: E402
from bundle_pins import read_pins  # noqa: E402
from container_labs import why_not  # noqa: E402

from lab.machines.nspawn.holder import KIND  # noqa: E402
from lab.providers.netns.holders import list_holders  # noqa: E402

CACHE = default_cache().with_name("test-wine")
"""Their ``XDG_CACHE_HOME``."""
NOT_POSSIBLE = 4
_SECONDS = 2400


def lacking() -> str:
    """Why this machine cannot run them; empty if it can."""
    version = read_pins().windows_versions["powershell"]
    archive = default_cache() / f"PowerShell-{version}-win-x64.zip"
    return why_not() or ("" if archive.is_file() else f"there is no {archive}")


def lab(*words: str) -> None:
    """Run a command on that cache."""
    command = [sys.executable, "-m", "lab", *words]
    subprocess.run(command, check=True, timeout=_SECONDS, stdout=subprocess.DEVNULL)


def main() -> int:
    """Make the bundle if it is not made, and run the tests; pytest's exit code."""
    if why := lacking():
        print(f"NOT RUN: tests of Wine nodes: {why}")
        return NOT_POSSIBLE
    if not sys.argv[1:]:
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = made_input(*PARTS, "windows")
        os.environ |= {"XDG_CACHE_HOME": str(CACHE), "HYBRIDLAB_INVENTORY": os.devnull}
        lab("bundle", "create", "--from", made)
        if not list_holders(KIND):  # another's lab may use what this one's journal does not know
            lab("bundle", "gc", "--yes")
        words = ("-m", "pytest", "--timeout", "1200", "-m", "clusters", *sys.argv[1:])
        return subprocess.run([sys.executable, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
