"""Command lines that show and fix differences: where they run, and whether a text is one. Pure.

What shows or fixes a difference is a command line of one of these tools, or a sentence; in a pod it
has a prefix.
"""

from __future__ import annotations

import re
import shlex

from lab.facts.questions import ENTER_POD, WITH_PROXY, from_node

IN_POD = "in the pod: "
_TOOLS = (
    ENTER_POD,
    *("birdc", "bridge", "cat", "chroot", "crictl", "df", "if", "ip", "iptables", "iptables-save"),
    *("journalctl", "kubectl", "ls", "openssl", "ps", "sed"),
    *("ovn-nbctl", "ovn-sbctl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl"),
    *("ipset", "iptables-legacy", "kill", "modprobe", "nft", "pkill", "printf", "rm"),
    *("ss", "sysctl", "systemctl", "tc"),
)
_LACKING = re.compile(r"(^|[;|] *)(ip6?tables(?:-save)?(?: |$))")
"""Programs that a Kubernetes node need not have."""
_CHAIN = re.compile(r"[;|&'\"<>$]")


def of_cluster(place: str, text: str) -> str:
    """The command of a cluster, with programs that its nodes have; for a pod's place none."""
    line = _LACKING.sub(rf"\1{WITH_PROXY} \2", text.removeprefix(IN_POD))
    in_pod = text.startswith(IN_POD) and is_command(line)
    return from_node(place, line) if in_pod else line


def is_command(text: str) -> bool:
    """Whether it is a command line, not a sentence."""
    return text.partition(" ")[0] in _TOOLS


def lab_exec_line(lab: str, place: str, text: str) -> str:
    """The ``lab exec`` command line for a command; a sentence is returned unchanged."""
    line = text.removeprefix(IN_POD)
    if not is_command(line):
        return line
    command = f"sh -c {shlex.quote(line)}" if _CHAIN.search(line) else line
    return f"lab exec {lab} {place} -- {command}"


def on_node(text: str) -> bool:
    """Whether a command for a pod runs on the pod's node."""
    return text.startswith(ENTER_POD)
