"""Which providers exist, by name; each is imported where it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from lab._errors import UsageError
from lab.providers.provider import Provider

DEFAULT = "netns"


def _netns() -> Provider:
    from importlib import import_module  # noqa: PLC0415  only for the line below

    made: Provider = import_module("lab.providers.netns.provider").NetnsProvider()
    return made


def _fake() -> Provider:
    from lab.providers.fake.provider import FakeProvider  # noqa: PLC0415  only if asked for

    return FakeProvider()


_MAKERS: Mapping[str, Callable[[], Provider]] = {"netns": _netns, "fake": _fake}


class Providers(Mapping[str, Provider]):
    """Every provider by its name, made once."""

    def __init__(self, makers: Mapping[str, Callable[[], Provider]] = _MAKERS) -> None:
        self._makers = makers
        self._made: dict[str, Provider] = {}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


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
