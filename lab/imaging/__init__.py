"""Recipes to golden images."""
