"""A fault, and the check by which explain finds it: a node's card carries hardly any packet."""

from collections.abc import Iterator

from lab.explain.check import Check, Kind, Look, on_machine
from lab.explain.faults.registry import Fault, change, nodes, sites_on
from lab.facts.difference import Difference
from lab.topology.intent import Intent
from lab.topology.subject import DeviceSubject

LEAST = 576
"""Bytes that every host must be able to receive (RFC 791)."""


def _set_mtu(intent: Intent, node: str, mtu: int) -> list[str]:
    return [f"ip link set {intent.machine(node).card.name} mtu {mtu}"]


FAULT = Fault(
    name="example-tiny-mtu",
    title="a node's card has an MTU that no host may have",
    needs="to be a node",
    sites=sites_on(nodes),
    change=lambda intent, node, _: change(
        node,
        _set_mtu(intent, node, 300),
        _set_mtu(intent, node, intent.machine(node).card.mtu),
    ),
)


class TinyMtuCheck(Check):
    """Devices with an MTU that no host may have."""

    order = 1
    kinds = (Kind("example-tiny-mtu", fault="example-tiny-mtu", meets=on_machine),)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        """Compare the MTU of each of the machine's devices."""
        for link in look.observed.links:
            if link.mtu < LEAST:
                yield look.differs(
                    "example-tiny-mtu",
                    DeviceSubject(link.name),
                    f"an MTU of at least {LEAST}",
                    f"an MTU of {link.mtu}",
                    f"ip link show {link.name}",
                    f"ip link set {link.name} mtu {look.intended.card.mtu}",
                )
