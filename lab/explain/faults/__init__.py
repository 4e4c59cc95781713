"""Faults to inject on purpose, by what they break; the registry finds them."""
