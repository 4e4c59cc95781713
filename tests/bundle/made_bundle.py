"""The bundle of Kubernetes for tests: made once from Go modules, then kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

MAKE = Path(__file__).with_name("make.py")
SECONDS = 7200
PARTS = ("server", "node", "images")
"""Without programs for Windows, which cannot run here."""
CALICO = "calico"


def missing_bundle() -> str:
    """Why no cluster can be created here; empty if the user's cache has a bundle."""
    listed = subprocess.run(
        (sys.executable, "-m", "lab", "bundle", "list", "--json"),
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return "" if json.loads(listed.stdout) else "no bundle: tests/bundle/make.py makes one"


def made_bundle() -> str:
    """Create the bundle in the user's cache, with Calico if built; return its digest."""
    built = any(default_cache().glob(f"{CALICO}-linux-*"))
    made = made_input(*PARTS, *([CALICO] if built else []))
    done = subprocess.run(
        (sys.executable, "-m", "lab", "bundle", "create", "--from", made),
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout.strip()


def made_input(*parts: str) -> str:
    """Create the input directory of some parts; return its path."""
    asked = [word for part in parts for word in ("--only", part)]
    made = subprocess.run(
        (sys.executable, MAKE, *asked),
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return made.stdout.strip()


def default_cache() -> Path:
    """The cache directory of make.py."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hybridlab" / "test-bundle"


if __name__ == "__main__":
    print(made_bundle())
