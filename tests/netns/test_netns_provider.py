"""Namespaces do what every provider does."""

from __future__ import annotations

import pytest
from provider_contract import ProviderContract

from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle, Provider


class TestNetnsProvider(ProviderContract):
    @pytest.fixture
    def provider(self) -> Provider:
        return NetnsProvider()

    @pytest.fixture(autouse=True)
    def listed(self, lab: LabHandle, tokens: set[str]) -> None:
        """Of what must leave nothing behind."""
        tokens.add(lab.token)
