"""Which providers have real machines, and the others refused in words."""

from __future__ import annotations

from typing import cast

from lab._errors import UsageError
from lab.providers.provider import MACHINES, Provider
from lab.providers.real import RealMachines


def real_machines(provider: Provider, doing: str) -> RealMachines:
    """The provider, as one whose machines have a console, an address and memory of their own.

    Parameters
    ----------
    doing
        What for, to stand in a refusal: ``"suspending lab 'overlay'"``.

    Raises
    ------
    UsageError
        When its machines are none.

    """
    if MACHINES not in provider.abilities:
        raise UsageError(
            doing,
            f"the machines of provider '{provider.name}' are not real machines",
            "use 'lab shell' and 'lab exec', or bring the lab up on '--provider libvirt'",
        )
    return cast(RealMachines, provider)
