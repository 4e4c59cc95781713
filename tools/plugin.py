"""Start a plug-in as a renamed copy of a small one of its kind.

    python tools/plugin.py fault cable-cut
    python tools/plugin.py --list

The copy works at once, like its model; CONTRIBUTING.md says what else a plug-in needs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODELS = {
    "fault": "lab/explain/faults/ip_forward_off.py",
    "family": "lab/matrix/families/hairpin.py",
    "topology": "lab/topology/upstream_tor.py",
    "command": "lab/cli/events.py",
    "image": "images/debian-12-cloud",
}
"""The model of each kind. A check, a CNI and a provider are classes: see CONTRIBUTING.md."""
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def begin(kind: str, name: str, root: Path) -> Path:
    """Copy the model of a kind; return the new file or folder.

    Raises FileExistsError when the name is taken, ValueError when it is invalid.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"'{name}' is not a name: use a-z, 0-9, and '-' between words")
    model = ROOT / MODELS[kind]
    if model.is_dir():
        made = root / Path(MODELS[kind]).with_name(name)
        shutil.copytree(model, made)
        return made
    made = root / Path(MODELS[kind]).with_name(f"{name.replace('-', '_')}.py")
    if made.exists():
        raise FileExistsError(made)
    text = model.read_text(encoding="utf-8")
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(
        text.replace(f'"{model.stem.replace("_", "-")}"', f'"{name}"'), encoding="utf-8"
    )
    return made


def main() -> int:
    """Create the plug-in, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list the kinds and their models")
    parser.add_argument("kind", nargs="?", choices=MODELS)
    parser.add_argument("name", nargs="?")
    asked = parser.parse_args()
    if asked.list:
        for kind, model in MODELS.items():
            print(f"{kind:<9} {model}")
        return 0
    if asked.name is None:
        parser.error("name a kind, and the plug-in")
    try:
        print(begin(asked.kind, asked.name, ROOT).relative_to(ROOT))
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
