"""The provider in memory does what every provider does."""

import pytest
from provider_contract import ProviderContract

from lab.providers.fake.provider import FakeProvider


class TestFakeProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return FakeProvider()
