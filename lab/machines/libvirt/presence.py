"""Whether this machine has a libvirt of its own; nothing of libvirt is imported."""

from __future__ import annotations

import os
from importlib.util import find_spec

SOCKET = "/run/libvirt/libvirt-sock"
"""The local libvirtd's socket."""


def is_installed() -> bool:
    """True if libvirt and its Python binding are usable on this machine; does not connect."""
    return os.access(SOCKET, os.R_OK | os.W_OK) and find_spec("libvirt") is not None
