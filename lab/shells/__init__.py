"""Shells: the protocol, programs on this machine, and parallel runs."""
