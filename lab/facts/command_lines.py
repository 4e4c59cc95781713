"""Command lines that show and fix differences: where they run, and whether a text is one. Pure.

What shows or fixes a difference is a command line of one of these tools, or a sentence; in a pod it
has a prefix. On Windows it is a command line of PowerShell.
"""

from __future__ import annotations

import base64
import re
import shlex

from lab.facts.questions import ENTER_POD, WITH_PROXY, from_node

IN_POD = "in the pod: "
_POWERSHELL = "powershell"
_PATH = "PATH=$PATH:/usr/sbin:/sbin; export PATH; "
_TOOLS = (
    ENTER_POD,
    *("birdc", "bridge", "cat", "chroot", "crictl", "df", "if", "ip", "iptables", "iptables-save"),
    *("env", "journalctl", "kubectl", "ls", "openssl", "ps", "sed"),
    *("ovn-nbctl", "ovn-sbctl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl"),
    *("ipset", "iptables-legacy", "kill", "modprobe", "nft", "pkill", "printf", "rm"),
    *("ss", "sysctl", "systemctl", "tc"),
    _POWERSHELL,
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


def in_powershell(script: str) -> str:
    """The command line that runs a script of one line on Windows."""
    return f"{_POWERSHELL} -Command {shlex.quote(script)}"


def is_powershell(line: str) -> bool:
    """Whether a command line is one of :func:`in_powershell`."""
    return line.partition(" ")[0] == _POWERSHELL


def to_run(line: str) -> tuple[str, ...]:
    """The words that run a command line: of a shell, or of PowerShell, which errors then end."""
    if not is_powershell(line):
        return ("sh", "-ec", _PATH + line)
    script = f"$ErrorActionPreference = 'Stop'; {shlex.split(line)[-1]}"
    encoded = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return (_POWERSHELL, "-NoProfile", "-NonInteractive", "-EncodedCommand", encoded)


def lab_exec_line(lab: str, place: str, text: str) -> str:
    """The ``lab exec`` command line for a command; a sentence is returned unchanged.

    So is a command without a place: it runs where the reader is.
    """
    line = text.removeprefix(IN_POD)
    if not is_command(line) or not place:
        return line
    chain = _CHAIN.search(line) and not is_powershell(line)
    command = f"sh -c {shlex.quote(line)}" if chain else line
    return f"lab exec {lab} {place} -- {command}"


def on_node(text: str) -> bool:
    """Whether a command for a pod runs on the pod's node."""
    return text.startswith(ENTER_POD)
