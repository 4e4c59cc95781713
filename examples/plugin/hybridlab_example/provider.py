"""A provider: the one in memory, under another name."""

from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import Provider
from lab.providers.setup import ProviderSetup


def make(setup: ProviderSetup) -> Provider:
    """Make the provider; it needs nothing of the inventory."""
    del setup
    return FakeProvider(name="example")
