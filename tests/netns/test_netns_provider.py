"""Namespaces do what every provider does."""

from __future__ import annotations

import pytest
from provider_contract import ProviderContract

from lab.providers.netns.provider import NetnsProvider


class TestNetnsProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return NetnsProvider()

    @pytest.fixture(autouse=True)
    def listed(self, lab, tokens):
        """Of what must leave nothing behind."""
        tokens.add(lab.token)
