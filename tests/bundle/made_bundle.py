"""The bundle of Kubernetes for tests: made once from Go modules, then kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAKE = Path(__file__).with_name("make.py")
SECONDS = 7200
PARTS = ("server", "node", "images")
"""Without the programs for Windows, which nothing here can run."""


def made_bundle() -> str:
    """Have the bundle in the user's cache; its digest."""
    asked = [word for part in PARTS for word in ("--only", part)]
    made = subprocess.run(
        (sys.executable, MAKE, *asked),
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    done = subprocess.run(
        (sys.executable, "-m", "lab", "bundle", "create", "--from", made.stdout.strip()),
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout.strip()
