"""Which providers exist, by name; each is imported where it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from lab._errors import UsageError
from lab.inventory.inventory import STOCK, Inventory
from lab.providers.provider import Provider

DEFAULT = "netns"


def _netns(windows_rules_off: frozenset[str]) -> Provider:
    from lab.providers.netns.provider import NetnsProvider  # noqa: PLC0415  only if asked for

    return NetnsProvider(windows_rules_off)


def _libvirt(inventory: Inventory | None) -> Provider:
    from lab.providers.libvirt.provider import LibvirtProvider  # noqa: PLC0415  only if asked for

    return LibvirtProvider(usable(inventory))


def _nspawn(inventory: Inventory | None) -> Provider:
    from lab.providers.nspawn.provider import NspawnProvider  # noqa: PLC0415  only if asked for

    return NspawnProvider(usable(inventory))


def _fake() -> Provider:
    from lab.providers.fake.provider import FakeProvider  # noqa: PLC0415  only if asked for

    return FakeProvider()


class Providers(Mapping[str, Provider]):
    """Every provider by its name, made once, when it is first asked for.

    Parameters
    ----------
    makers
        Other providers than the product's own.
    windows_rules_off
        Ids of Windows rules that emulated Windows nodes are not to obey.
    inventory
        Says where real machines may be, when they are first asked for; None is this machine's
        own libvirt. What is wrong with an inventory is no matter of a lab on namespaces.

    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Provider]] | None = None,
        *,
        windows_rules_off: frozenset[str] = frozenset(),
        inventory: Callable[[], Inventory | None] = lambda: None,
    ) -> None:
        self._makers = makers or {
            "netns": lambda: _netns(windows_rules_off),
            "libvirt": lambda: _libvirt(inventory()),
            "nspawn": lambda: _nspawn(inventory()),
            "fake": _fake,
        }
        self._made: dict[str, Provider] = {}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def chosen(asked: str | None, inventory: Inventory | None) -> str:
    """The name of the provider: the one asked for, or libvirt where there are hypervisors."""
    if asked:
        return asked
    return "libvirt" if inventory is not None and inventory.hypervisors else DEFAULT


def usable(inventory: Inventory | None) -> Inventory:
    """The inventory for real machines: without any hypervisor, this machine's own libvirt."""
    if inventory is None:
        return STOCK
    return inventory if inventory.hypervisors else replace(inventory, hypervisors=STOCK.hypervisors)


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
