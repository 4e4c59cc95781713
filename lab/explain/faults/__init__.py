"""Faults to inject on purpose: one per module, found by the registry."""
