"""Recipes of the tests."""

from pathlib import Path


def recipe(folder: Path, name: str = "tiny", section: str = "", **more: str) -> Path:
    """Write a recipe, of a vendor's disk unless another section is given; the recipes' folder."""
    own = folder / "recipes" / name
    own.mkdir(parents=True, exist_ok=True)
    keys = {"disk": "1GiB", "firmware": "bios", "first_boot": "cloud-init", "user": "root"} | more
    lines = "".join(f"{key}: {value}\n" for key, value in keys.items())
    section = section or f"cloud:\n  url: https://vendor.example/{name}.qcow2\n"
    (own / "image.yaml").write_text(f"name: {name}\nsummary: A disk of the tests\n{lines}{section}")
    return own.parent
