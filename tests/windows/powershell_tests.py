"""Run the tests of ``tests/powershell`` by a real PowerShell; as a program, all of them.

PowerShell is ``pwsh`` in the directory that ``POWERSHELL_HOME`` names, else ``pwsh`` or
``powershell.exe`` on PATH. Where there is none, the last line says NOT RUN.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = sorted((Path(__file__).parents[1] / "powershell").glob("*.ps1"))
_SECONDS = 300


def find_powershell() -> str | None:
    """The program; None if there is none."""
    home = os.environ.get("POWERSHELL_HOME")
    own = shutil.which("pwsh", path=home) if home else None
    return own or shutil.which("pwsh") or shutil.which("powershell.exe")


def run_script(program: str, path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script's exit code and output."""
    command = [program, "-NoProfile", "-File", str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)


def main() -> int:
    """Run all of them; 1 if one fails."""
    program = find_powershell()
    if program is None:
        print("NOT RUN: make test-powershell: no pwsh on PATH or in $POWERSHELL_HOME")
        return 0
    failed = []
    for path in TESTS:
        done = run_script(program, path)
        print(f"{path.name}:\n{done.stdout}{done.stderr}", end="", flush=True)
        failed += [path.name] if done.returncode else []
    passed = len(TESTS) - len(failed)
    print(f"{passed} of {len(TESTS)} passed" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
