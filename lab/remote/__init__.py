"""Shells on machines: over SSH, over WinRM, and on this machine."""
