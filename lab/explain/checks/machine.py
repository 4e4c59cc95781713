"""The node's own cards, what bars or slows packets, and the programs that must run."""

from __future__ import annotations
