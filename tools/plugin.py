"""Begin a plug-in: a copy of a small one of its kind, under a name of its own.

    python tools/plugin.py fault cable-cut
    python tools/plugin.py --list

The copy works at once, as the one that it is made from; CONTRIBUTING.md says what else belongs to
it.
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
"""What each kind is begun from. A check, a CNI and a provider are classes: CONTRIBUTING.md."""
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def begin(kind: str, name: str, root: Path) -> Path:
    """Copy the model of that kind; the new file, or folder.

    Raises FileExistsError when there is one of that name, ValueError when it is no name.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"'{name}' is not a name: small letters, digits, and '-' between words")
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
    """Begin what is asked for, and say where it is."""
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
