"""Image recipes: a folder of folders."""

from pathlib import Path

RECIPES = Path(__file__).with_name("recipes")
