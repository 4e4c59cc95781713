"""The package mirror that this host uses, read from apt: none is named anywhere in the project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FORMAT = "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)|$(CREATED_BY)"
"""For ``apt-get indextargets --format``; the first two are empty before ``apt-get update``."""
_POCKETS = ("", "-updates", "-security")
_FIELDS = FORMAT.count("|") + 1


@dataclass(frozen=True, slots=True)
class Source:
    """One line of a sources.list."""

    uri: str
    suite: str
    components: tuple[str, ...]

    def line(self) -> str:
        """``deb URI SUITE COMPONENT...``."""
        return f"deb {self.uri} {self.suite} {' '.join(self.components)}"


def sources(targets: str, distribution: str, host: tuple[str, str], suite: str) -> list[Source]:
    """Where a release's packages are, on the mirror that the host's own come from.

    Parameters
    ----------
    targets
        What ``apt-get indextargets --format FORMAT`` printed.
    distribution
        ``"debian"``: whose packages are wanted.
    host
        The host's distribution and release, ``ID`` and ``VERSION_CODENAME`` of os-release.
    suite
        The release that is wanted; another one than the host's is looked for beside it.

    Returns
    -------
    list
        Empty where the host's mirror has no such distribution.

    """
    own, release = host
    if own != distribution or not release:
        return []
    found: dict[tuple[str, str], dict[str, None]] = {}
    for origin, pocket, uri, component in _targets(targets, release):
        if origin in {"", distribution}:
            found.setdefault((uri, suite + pocket), {})[component] = None
    wanted = [
        Source(uri, name, ("main",)) for (uri, name), parts in found.items() if "main" in parts
    ]
    return sorted(wanted, key=lambda source: _POCKETS.index(source.suite.removeprefix(suite)))


def at(uri: str, suite: str) -> list[Source]:
    """The release on a mirror that the inventory names."""
    return [Source(uri, suite, ("main",))]


def _targets(targets: str, release: str) -> Iterator[tuple[str, str, str, str]]:
    """Origin, pocket, address and component of every list of packages of the host's release."""
    for fields in _rows(targets.splitlines()):
        origin, codename, written, uri, component, made = fields
        name = codename or written
        pocket = name.removeprefix(release)
        if made == "Packages" and name.startswith(release) and pocket in _POCKETS:
            yield origin.lower(), pocket, uri.rstrip("/"), component


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        fields = line.split("|")
        if len(fields) == _FIELDS:
            yield fields
