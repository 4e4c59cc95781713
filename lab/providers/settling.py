"""The Intent of a lab as it is now: virtual gateways stand where they are held."""

from __future__ import annotations

from lab.providers.provider import LabHandle, Provider
from lab.topology import gateways
from lab.topology.intent import Intent


def settled(provider: Provider, lab: LabHandle, intent: Intent) -> Intent:
    """The intent with each gateway on the one machine that holds it.

    One that nobody holds, or several do, stays where it was planned: that is a fault, for others
    to tell.

    Raises
    ------
    BrokenError
        When the lab's machines are not there.

    """
    ask = getattr(provider, "gateway_holders", None)
    if ask is None or not intent.gateways:
        return intent
    return gateways.settled(intent, ask(lab, intent))
