"""Start a plug-in as a renamed copy of a small one of its kind.

    python tools/plugin.py fault cable-cut
    python tools/plugin.py --list

The copy works at once, like its model; CONTRIBUTING.md says what else a plug-in needs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODELS = {
    "topology": "lab/topology/kinds/upstream_tor.py",
    "cni": "lab/machines/addons/bridges.py",
    "family": "lab/matrix/families/hairpin.py",
    "fault": "lab/explain/faults/ip_forward_off.py",
    "check": "lab/explain/checks/shaping.py",
    "image": "images/debian-12-cloud",
    "provider": "lab/providers/fake",
    "command": "lab/cli/events.py",
}
"""The model of each kind. A CNI is that of the topology of its name."""
WORDS = {
    "topology": (
        ('also=("tor", "upstream", "router")', "also=()"),
        ("WITHOUT_POD_DNS", "EVERYWHERE"),
    ),
    "fault": (("    needs=", '    kind="forwarding-off",\n    needs='),),
    "check": (('"slowed"', '"{name}"'),),
    "cni": (('"upstream-tor", "upstream-vrrp", "hard-way"', '"{name}"'),),
    "image": (("name: debian-12-cloud", "name: {name}"),),
}
"""What a copy has instead of words of its model, besides the model's name."""
TABLES = {
    "command": ("lab/cli/main.py", re.compile(r'^ {8}"events": .*\n', re.MULTILINE)),
    "provider": ("pyproject.toml", re.compile(r"^fake = .*\n", re.MULTILINE)),
}
"""The file that lists the plug-ins of a kind, and the row of the model in it."""
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def begin(kind: str, name: str, root: Path) -> Path:
    """Copy the model of a kind; return the new file or folder.

    Raises FileExistsError when the name is taken, ValueError when it is invalid.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"'{name}' is not a name: use a-z, 0-9, and '-' between words")
    model = ROOT / MODELS[kind]
    own = name if kind == "image" else name.replace("-", "_")
    made = root / Path(MODELS[kind]).with_name(f"{own}{model.suffix}")
    if made.exists():
        raise FileExistsError(f"'{made.relative_to(root)}' already exists")
    words = [(f'"{model.stem.replace("_", "-")}"', '"{name}"'), *WORDS.get(kind, ())]
    for source in [*model.rglob("*")] if model.is_dir() else [model]:
        if not source.is_file() or "__pycache__" in source.parts:
            continue
        text = source.read_text(encoding="utf-8")
        for old, new in words:
            text = text.replace(old, new.replace("{name}", name))
        copy = made / source.relative_to(model)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    if kind in TABLES:
        file, pattern = TABLES[kind]
        table = root / file
        text = table.read_text(encoding="utf-8")
        row = pattern.search(text)[0]
        new = row.replace(model.stem, name, 1).replace(f".{model.stem}.", f".{own}.")
        table.write_text(text.replace(row, row + new), encoding="utf-8")
    return made


def main() -> int:
    """Create the plug-in, and print its path."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="list the kinds and their models")
    parser.add_argument("kind", nargs="?", choices=MODELS)
    parser.add_argument("name", nargs="?")
    arguments = parser.parse_args()
    if arguments.list:
        for kind, model in MODELS.items():
            print(f"{kind:<9} {model}")
        return 0
    if arguments.name is None:
        parser.error("name a kind, and the plug-in")
    try:
        print(begin(arguments.kind, arguments.name, ROOT).relative_to(ROOT))
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
