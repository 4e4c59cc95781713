"""The switch of a hypervisor: its bridge, and what is plugged into it."""

from __future__ import annotations
