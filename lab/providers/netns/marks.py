"""Labs of namespaces, found without importing what makes them."""

from __future__ import annotations

from lab.providers.netns.holders import list_marks
from lab.providers.provider import Mark
from lab.providers.setup import ProviderSetup

BANNER = "netns: network namespaces on this machine"


def find(setup: ProviderSetup, *, all_users: bool) -> tuple[Mark, ...]:
    """Every holder of the caller's; with ``all_users``, as root, everybody's."""
    del setup
    return list_marks(all_users=all_users)
