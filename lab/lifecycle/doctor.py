"""Everything that labs need, examined: this machine, and every hypervisor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lab.inventory.inventory import Inventory
from lab.lifecycle.providers import chosen, usable
from lab.providers.diagnosis import Diagnosis


def examine(asked: str | None, inventory: Inventory | None) -> tuple[Diagnosis, ...]:
    """What was seen, of one provider, or of all if none is asked for.

    Where the provider that labs come up on by default lacks nothing, what another lacks is
    worth a warning alone.
    """
    found: list[Diagnosis] = []
    default = chosen(asked, inventory)
    if asked in {None, "netns"}:
        from lab.providers.netns import doctor as netns  # noqa: PLC0415  only if asked for

        found += weighed(netns.examine(), is_default=default == "netns")
    if asked in {None, "libvirt"}:
        from lab.providers.libvirt import doctor as libvirt  # noqa: PLC0415  only if asked for

        missing = libvirt.is_installed()
        seen = (missing,) if missing else libvirt.examine(usable(inventory))
        found += weighed(seen, is_default=default == "libvirt")
    return tuple(found)


def weighed(found: Iterable[Diagnosis], *, is_default: bool) -> tuple[Diagnosis, ...]:
    """The findings, failures made warnings where labs do without."""
    if is_default:
        return tuple(found)
    return tuple(replace(one, level="warn") if one.level == "fail" else one for one in found)
