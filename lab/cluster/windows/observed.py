"""The Windows that a node turns out to run, and what it is too old for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.imaging.windows.settings import RELEASES, Release, Year

DSR_2019 = 1554
"""Revision of 17763 from which Direct Server Return works: KB4580390, October 2020."""
CALICO = {17763: 1432, 20348: 169}
"""Least revision by build, as Calico's requirements have it."""


@dataclass(frozen=True, slots=True)
class WindowsObserved:
    """What a node says of itself."""

    build: int
    """``20348``."""
    revision: int
    """Of the build (UBR): what updates count up."""

    @property
    def release(self) -> Release | None:
        """None for a build that is of no known release."""
        return next((one for one in RELEASES.values() if one.build == self.build), None)

    @property
    def dsr(self) -> bool:
        """Whether kube-proxy may use Direct Server Return."""
        return self.build != RELEASES["2019"].build or self.revision >= DSR_2019

    def __str__(self) -> str:
        return f"{self.build}.{self.revision}"


def too_old(observed: WindowsObserved, topology: str) -> str | None:
    """What keeps this Windows out of a topology; None if nothing does.

    Sources: KB4489899 for overlay networks on 2019, Calico's requirements for Calico.
    """
    release = observed.release
    if release is None:
        known = ", ".join(f"{one.name} ({one.build})" for one in RELEASES.values())
        return f"build {observed} is of no Windows that is known here: {known}"
    least, why = 0, ""
    if topology in {"overlay", "kubeinit"}:
        least, why = release.least_revision, release.why
    elif topology.startswith("calico"):
        least, why = CALICO.get(observed.build, 0), "Calico asks for it"
    if observed.revision < least:
        return f"{release.name} {observed} is older than {release.build}.{least}: {why}"
    return None


def year_of(image: str) -> Year | None:
    """The release that an image's name speaks of (``windows-server-2022``); None if it does not."""
    found: list[Year] = [year for year in RELEASES if year in image]
    return found[0] if len(found) == 1 else None
