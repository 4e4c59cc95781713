"""Every provider: each plug-in of ``hybridlab.providers``, a function that makes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from lab._errors import StateError, UsageError
from lab._plugins import Plugin, plugins
from lab.providers.provider import (
    MACHINES,
    Diagnosis,
    Mark,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.state.capacity import check_room
from lab.state.directory import state_directory
from lab.state.failure import ELSEWHERE
from lab.state.store import FILE

if TYPE_CHECKING:
    from lab.inventory.inventory import Inventory
    from lab.providers.provider import RealMachines

DEFAULT = "netns"
_NOT_OFFERED = frozenset({"attached", "fake"})
"""Not suggested to users: 'lab attach' chooses the first; labs of the second, which is for tests,
end with the process that made them."""


class Providers(Mapping[str, Provider]):
    """Every provider by name; each is imported and created on first use.

    ``makers``: replace the shipped providers. ``windows_rules_off``: ids of Windows rules that
    emulated Windows nodes do not obey. ``inventory``: reads the inventory when a provider first
    needs it.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Provider]] | None = None,
        *,
        windows_rules_off: frozenset[str] = frozenset(),
        inventory: Callable[[], Inventory | None] = lambda: None,
    ) -> None:
        self._setup = ProviderSetup(inventory, windows_rules_off)
        self._makers = makers or _list_makers(self._setup)
        self._shipped = makers is None
        self._made: dict[str, Provider] = {}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def marks(self, name: str, *, all_users: bool) -> tuple[Mark, ...]:
        """The marks of the provider's labs; its module ``marks`` finds them without creating it."""
        if quick := self._quick(name):
            marks: tuple[Mark, ...] = quick.find(self._setup, all_users=all_users)
            return marks
        return self[name].marks(all_users=all_users)

    def banner(self, name: str) -> str:
        """The first line of output of a command that is about no particular lab."""
        banner = getattr(self._quick(name), "BANNER", None)
        return str(banner) if banner else choose(self, name).banner(None)

    def _quick(self, name: str) -> Any:
        plugin = _plugins().get(name) if self._shipped and name not in self._made else None
        if plugin is None:
            return None
        module = f"{plugin.module.rpartition('.')[0]}.marks"
        return import_module(module) if find_spec(module) else None

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _list_makers(setup: ProviderSetup) -> Mapping[str, Callable[[], Provider]]:
    def maker(plugin: Plugin) -> Callable[[], Provider]:
        return lambda: _check_made(plugin.load()(setup))

    return {name: maker(plugin) for name, plugin in _plugins().items()}


def _plugins() -> Mapping[str, Plugin]:
    return {plugin.name: plugin for plugin in plugins("providers")}


def _check_made(made: object) -> Provider:
    assert isinstance(made, Provider), "what 'make' of a provider returns"
    return made


def chosen(given: str | None, inventory: Inventory | None) -> str:
    """The name of the provider: ``given``, else libvirt if there are hypervisors, else netns."""
    if given:
        return given
    return "libvirt" if inventory is not None and inventory.hypervisors else DEFAULT


def choose(providers: Mapping[str, Provider], name: str = DEFAULT) -> Provider:
    """The provider of this name.

    Raises UsageError, listing the providers, if there is none.
    """
    if name not in providers:
        listed = ", ".join(f"'{known}'" for known in list_offered(providers))
        raise UsageError(
            f"choosing the provider '{name}'",
            "there is no provider of that name",
            f"the providers are {listed}",
        )
    return providers[name]


def list_offered(providers: Mapping[str, Provider]) -> list[str]:
    """The providers to suggest to users."""
    return [name for name in providers if name not in _NOT_OFFERED]


def real_machines(provider: Provider, action: str) -> RealMachines:
    """The provider as :class:`RealMachines`: its machines have a console, an address and memory.

    ``action``: the purpose, for the error: ``"suspending lab 'overlay'"``.

    Raises UsageError when its machines are not real.
    """
    if MACHINES not in provider.abilities:
        raise UsageError(
            action,
            f"the machines of provider '{provider.name}' are not real machines",
            "use 'lab shell' and 'lab exec', or bring the lab up with '--provider nspawn' or "
            "'--provider libvirt'",
        )
    return cast("RealMachines", provider)


_JOURNAL = "journal and reports"


def examine(
    given: str | None, inventory: Inventory | None, environment: Mapping[str, str]
) -> tuple[Diagnosis, ...]:
    """Examine one provider, or all if ``given`` is None.

    A failure of a provider other than the default one is only a warning.
    """
    diagnoses = [journal(environment)]
    default = chosen(given, inventory)
    try:
        state = state_directory(environment)
    except StateError:  # the journal's finding says why, and must be fixed first
        return tuple(diagnoses)
    providers = Providers(inventory=lambda: inventory)
    for name in (given,) if given else providers:
        examined = choose(providers, name).examine(state)
        diagnoses += weigh_diagnoses(examined, is_default=name == default)
    return tuple(diagnoses)


def weigh_diagnoses(diagnoses: Iterable[Diagnosis], *, is_default: bool) -> tuple[Diagnosis, ...]:
    """The findings; unless ``is_default``, failures become warnings."""
    if is_default:
        return tuple(diagnoses)
    return tuple(
        replace(diagnosis, level="warn") if diagnosis.level == "fail" else diagnosis
        for diagnosis in diagnoses
    )


def journal(environment: Mapping[str, str]) -> Diagnosis:
    """Check whether the state directory can be written. Nothing is created."""
    try:
        directory = state_directory(environment)
        existing = next(path for path in (directory, *directory.parents) if path.is_dir())
        check_room(directory)
    except StateError as error:
        return Diagnosis(_JOURNAL, "state", "fail", error.happened, error.hint)
    for path in (existing, directory / FILE):
        if path.exists() and not os.access(path, os.W_OK):
            happened = f"'{path}' cannot be written"
            return Diagnosis(
                _JOURNAL, "state", "fail", happened, f"make it writable for you, {ELSEWHERE}"
            )
    return Diagnosis(_JOURNAL, "state", "ok", f"kept in '{directory}'")
