"""One thing on a cell's path that is not as intended, and which fault it amounts to. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

IN_POD = "in the pod: "
DEVIATION = "not-as-made"
"""The kind of what differs from how the lab makes it, whatever it is."""
_TOOLS = (
    *("birdc", "bridge", "cat", "crictl", "df", "if", "ip", "iptables", "iptables-save"),
    *("journalctl", "kubectl", "ls", "openssl", "ps", "sed"),
    *("ovn-nbctl", "ovn-sbctl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl"),
    *("ipset", "iptables-legacy", "kill", "modprobe", "nft", "pkill", "printf"),
    *("ss", "sysctl", "systemctl", "tc"),
)
_CHAIN = re.compile(r"[;|&'\"<>$]")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, how to see it, and how to fix it."""

    kind: str
    """A kind of one of the checks in :mod:`lab.explain.checks`, or one of the explainer's own:
    ``"lost-between"``, ``"lost-here"``, ``"machine-silent"``, ``"intent-ends"``,
    ``"not-as-made"``."""
    fault: str
    """The catalogue's name for it; empty where it has none."""
    node: str
    object: str
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the machine or in the pod ``place``; or words."""
    mends: str
    """The command that fixes it there; or words."""
    place: str
    """Pod or machine where the commands are run."""
    hop: int = -1
    """Its place on the path, counted from 0; -1 where it is not on the path."""

    @property
    def sentence(self) -> str:
        """``on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096``."""
        return f"on {self.node}, {self.object}: {self.observed}; it should be: {self.intended}"

    @property
    def line(self) -> str:
        """The sentence with the fault's name."""
        return f"{self.sentence} ({self.fault})" if self.fault else self.sentence

    def shown_by(self, lab: str) -> str:
        """What to type to see it."""
        return by_hand(lab, self.place, self.shows)

    def fixed_by(self, lab: str) -> str:
        """What to type to fix it."""
        return by_hand(lab, self.place, self.mends)


def by_hand(lab: str, place: str, text: str) -> str:
    """A command as it is typed where ``lab`` is; words stay words."""
    line = text.removeprefix(IN_POD)
    words = line.split()
    if not words or words[0] not in _TOOLS:
        return line
    command = f"sh -c {shlex.quote(line)}" if _CHAIN.search(line) else line
    return f"lab exec {lab} {place} -- {command}"
