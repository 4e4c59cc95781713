"""Find namespace labs without importing the provider."""

from __future__ import annotations

from lab.providers.netns.holders import list_marks
from lab.providers.provider import Mark
from lab.providers.setup import ProviderSetup

BANNER = "netns: network namespaces on this machine"


def find(setup: ProviderSetup, *, all_users: bool) -> tuple[Mark, ...]:
    """A mark for each of the caller's holders; for root with ``all_users``, everybody's."""
    del setup
    return list_marks(all_users=all_users)
