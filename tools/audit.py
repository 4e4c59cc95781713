"""Report known weaknesses of the packages in requirements*.txt: exit code 1 if there are any.

pip-audit asks the package index for them. One that has no advisories, as many mirrors, answers for
no package: then nothing was audited, and the exit code is 3.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.txt", "requirements-libvirt.txt", "requirements-nspawn.txt")
NOTHING_AUDITED = 3


def report(audited: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Lines to print of pip-audit's dependencies, and the exit code."""
    names = {f"{package['name']} {package['version']}" for package in audited if "vulns" in package}
    skipped = {str(package["name"]) for package in audited if "vulns" not in package}
    weaknesses = {
        f"{package['name']} {package['version']}: {weakness['id']}, fixed in "
        f"{', '.join(weakness['fix_versions']) or 'no version yet'}"
        for package in audited
        for weakness in package.get("vulns", ())
    }
    lines = sorted(weaknesses)
    if not names:
        return [
            f"nothing audited: the index has no advisories for {len(skipped)} packages"
        ], NOTHING_AUDITED
    if skipped:
        lines.append(f"not audited: {', '.join(sorted(skipped))}")
    lines.append(f"{len(names)} packages audited, {len(weaknesses)} weaknesses known")
    return lines, 1 if weaknesses else 0


def main() -> int:
    """Ask, print, and return the exit code."""
    requirements = [word for lock in LOCKS for word in ("--requirement", str(ROOT / lock))]
    command = ["pip-audit", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(  # noqa: S603  words of our own
            [*command, *requirements], capture_output=True, check=False
        )
    except FileNotFoundError:
        print("audit: pip-audit is missing\n  try: pipx install pip-audit", file=sys.stderr)
        return 4
    try:
        lines, code = report(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        print(done.stderr.decode(errors="replace").strip(), file=sys.stderr)
        return NOTHING_AUDITED
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
