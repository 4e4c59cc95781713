"""Network cards and their addresses, set with busybox."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LEASE = """\
#!/bin/busybox sh
case "$1" in bound|renew)
    /bin/busybox ip address flush dev "$interface"
    /bin/busybox ip address add "$ip/$mask" dev "$interface"
    [ -z "$router" ] || /bin/busybox ip route replace default via "${router%% *}" dev "$interface"
;; esac
"""


def cards() -> list[tuple[str, str]]:
    """Name and MAC address of every card."""
    return [
        (path.name, (path / "address").read_text().strip())
        for path in sorted(Path("/sys/class/net").iterdir())
        if (path / "device").exists()
    ]


def set_up(name: str, wanted: Sequence[dict[str, Any]] | None) -> None:
    """Set the configured addresses of cards; without any, use DHCP for all."""
    socket.sethostname(name)
    _ip("link", "set", "lo", "up")
    script = Path("/tmp/lease.sh")
    script.write_text(_LEASE)
    script.chmod(0o755)
    by_mac = {card["mac"].lower(): card for card in wanted or ()}
    for device, mac in cards():
        card = by_mac.get(mac)
        if card is None and wanted is not None:
            continue  # Windows would use DHCP; an unconfigured card is not needed here
        if card is not None and device != card["name"]:
            _ip("link", "set", device, "down")
            _ip("link", "set", device, "name", card["name"])
        _one(device if card is None else card["name"], card or {}, name)


def _one(device: str, card: dict[str, Any], name: str) -> None:
    if card.get("mtu"):
        _ip("link", "set", device, "mtu", str(card["mtu"]))
    _ip("link", "set", device, "up")
    if card.get("address"):
        _ip("address", "flush", "dev", device)
        _ip("address", "add", card["address"], "dev", device)
        if card.get("gateway"):
            _ip("route", "replace", "default", "via", card["gateway"], "dev", device)
        return
    subprocess.Popen(
        [
            "/bin/busybox",
            "udhcpc",
            "-f",
            "-i",
            device,
            "-s",
            "/tmp/lease.sh",
            "-x",
            f"hostname:{name}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _ip(*arguments: str) -> None:
    subprocess.run(["/bin/busybox", "ip", *arguments], capture_output=True, check=False)
