"""One difference from the Intent on a cell's path, and the fault that it corresponds to. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

IN_POD = "in the pod: "
DEVIATION = "not-as-made"
"""The kind of any other difference from the state that the lab creates."""
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
    """A kind of the checks in :mod:`lab.explain.checks`, or one of the explainer:
    ``"lost-between"``, ``"lost-here"``, ``"machine-silent"``, ``"intent-ends"``,
    ``"not-as-made"``."""
    fault: str
    """Its name in the fault catalogue; empty if it has none."""
    node: str
    object: str
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the machine or in the pod ``place``; or a sentence."""
    mends: str
    """The command that fixes it there; or a sentence."""
    place: str
    """Pod or machine where the commands are run."""
    hop: int = -1
    """Index of its hop on the path, from 0; -1 if it is not on the path."""

    @property
    def sentence(self) -> str:
        """``on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096``."""
        return f"on {self.node}, {self.object}: {self.observed}; it should be: {self.intended}"

    @property
    def line(self) -> str:
        """The sentence with the fault's name."""
        return f"{self.sentence} ({self.fault})" if self.fault else self.sentence

    def shown_by(self, lab: str) -> str:
        """The command line or sentence to see it."""
        return by_hand(lab, self.place, self.shows)

    def fixed_by(self, lab: str) -> str:
        """The command line or sentence to fix it."""
        return by_hand(lab, self.place, self.mends)


def by_hand(lab: str, place: str, text: str) -> str:
    """The ``lab exec`` command line for a command; a sentence is returned unchanged."""
    line = text.removeprefix(IN_POD)
    words = line.split()
    if not words or words[0] not in _TOOLS:
        return line
    command = f"sh -c {shlex.quote(line)}" if _CHAIN.search(line) else line
    return f"lab exec {lab} {place} -- {command}"
