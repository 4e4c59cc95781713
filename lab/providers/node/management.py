"""The management network and the lab kept apart, as nftables text. Pure.

A machine's management card may have a default route of its own (DHCP gives one). The Intent's
routes go before it, but where the Intent has none for an address, as on the router for
what is outside of the lab, packets of the lab would leave by that card. They are refused as a
machine without a route refuses them, so that a real machine says what an emulated one says.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv4Network

from lab._errors import BrokenError
from lab.providers.node.work import MANAGEMENT

TABLE = "hybridlab-management"


def containment(ranges: Sequence[str]) -> str:
    """The table; nothing but packets from or to the lab's ranges is touched.

    Established connections are let out, so that no mistake here can cut the connection
    that the machine is reached by.
    """
    prefixes = f"{{ {', '.join(ranges)} }}"
    card = f'"{MANAGEMENT}"'
    refused = "reject with icmp type net-unreachable"
    return f"""table ip {TABLE} {{
  chain forward {{
    type filter hook forward priority -120; policy accept;
    oifname {card} ip saddr {prefixes} {refused}
    oifname {card} ip daddr {prefixes} {refused}
    iifname {card} ip daddr {prefixes} drop
  }}
  chain output {{
    type filter hook output priority -120; policy accept;
    oifname {card} ct state new ip daddr {prefixes} {refused}
  }}
}}
"""


def check_apart(addresses: Sequence[str], ranges: Sequence[str]) -> None:
    """Refuse a management address (with prefix length) that is the lab's too.

    Raises
    ------
    BrokenError
        Naming both.

    """
    for text in addresses:
        own = IPv4Interface(text).network
        for prefix in ranges:
            if own.overlaps(IPv4Network(prefix)):
                raise BrokenError(
                    "keeping the management network and the lab apart",
                    f"'{MANAGEMENT}' has the address {text}, and the lab has {prefix}",
                    "give the management network another range in the inventory",
                )
