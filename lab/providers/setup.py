"""The settings that a provider is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lab._dataclass import dataclass

if TYPE_CHECKING:
    from lab.inventory.inventory import Inventory


@dataclass(frozen=True, slots=True)
class ProviderSetup:
    """Settings for a provider: each provider module has a ``make(setup) -> Provider``."""

    inventory: Callable[[], Inventory | None] = lambda: None
    """Reads the user's inventory when first needed; None if there is none."""
    windows_rules_off: frozenset[str] = frozenset()
    """Ids of Windows rules that emulated Windows nodes do not obey."""

    def machines(self) -> Inventory:
        """The inventory for real machines; defaults to the local libvirt."""
        from lab.inventory.inventory import STOCK  # noqa: PLC0415  namespaces need no inventory

        inventory = self.inventory()
        if inventory is None or inventory.hypervisors:
            return inventory or STOCK
        return inventory.replace(hypervisors=STOCK.hypervisors)
