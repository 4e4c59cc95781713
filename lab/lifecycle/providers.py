"""Every provider there is: each package of ``lab.providers`` with a module ``provider``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import lab.providers
from lab._errors import UsageError
from lab.inventory.inventory import Inventory
from lab.providers.provider import Provider
from lab.providers.setup import ProviderSetup

DEFAULT = "netns"


class Providers(Mapping[str, Provider]):
    """Every provider by its name; each is imported and made when it is first asked for.

    Parameters
    ----------
    makers
        Other providers than the product's own.
    windows_rules_off
        Ids of Windows rules that emulated Windows nodes are not to obey.
    inventory
        Reads the inventory, when a provider first needs it.

    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Provider]] | None = None,
        *,
        windows_rules_off: frozenset[str] = frozenset(),
        inventory: Callable[[], Inventory | None] = lambda: None,
    ) -> None:
        self._makers = makers or _makers(ProviderSetup(inventory, windows_rules_off))
        self._made: dict[str, Provider] = {}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _makers(setup: ProviderSetup) -> Mapping[str, Callable[[], Provider]]:
    def maker(name: str) -> Callable[[], Provider]:
        return lambda: _made(import_module(f"lab.providers.{name}.provider").make(setup))

    packages = (Path(root) for root in lab.providers.__path__)
    return {
        found.name: maker(found.name)
        for root in packages
        for found in iter_modules([str(root)])
        if (root / found.name / "provider.py").is_file()
    }


def _made(found: object) -> Provider:
    assert isinstance(found, Provider), "what 'make' of a provider returns"
    return found


def chosen(asked: str | None, inventory: Inventory | None) -> str:
    """The name of the provider: the one asked for, or libvirt where there are hypervisors."""
    if asked:
        return asked
    return "libvirt" if inventory is not None and inventory.hypervisors else DEFAULT


def choose(providers: Mapping[str, Provider], name: str = DEFAULT) -> Provider:
    """The provider of that name.

    Raises
    ------
    UsageError
        If there is none; lists those that exist.

    """
    if name not in providers:
        listed = ", ".join(f"'{known}'" for known in providers)
        raise UsageError(
            f"choosing the provider '{name}'",
            "there is no provider of that name",
            f"the providers are {listed}",
        )
    return providers[name]
