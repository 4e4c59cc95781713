"""Scenario files: read, checked and frozen, with the position of every key."""
