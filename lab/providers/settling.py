"""The Intent of a lab as it is now."""

from __future__ import annotations

from typing import cast

from lab.providers.failing import Failing
from lab.providers.provider import FAILOVER, LabHandle, Provider
from lab.topology import gateways
from lab.topology.intent import Intent


def settled(provider: Provider, lab: LabHandle, intent: Intent) -> Intent:
    """The intent with each gateway on the one machine that holds it.

    One that nobody holds, or several do, stays where it was planned: that is a fault, for others
    to tell.

    Raises BrokenError when the lab's machines are not there.
    """
    if FAILOVER not in provider.abilities or not intent.gateways:
        return intent
    return gateways.settled(intent, cast(Failing, provider).gateway_holders(lab, intent))
