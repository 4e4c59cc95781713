"""What can be told of a lab of namespaces, up or half up: piece by piece, never an error."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError
from lab.providers.netns import daemons, holding, namespaces, responding
from lab.providers.netns.compile import namespaces as names_of
from lab.providers.netns.isolation import RESOLV_DIRECTORY
from lab.providers.netns.machine import NetnsMachine
from lab.providers.netns.processes import HolderProcess
from lab.providers.provider import EVIDENCE_SECONDS, Evidence, LabHandle
from lab.remote.shell import Completed
from lab.topology.intent import Intent

_SYSCTLS = """
cd /proc/sys/net && grep -s . ipv4/ip_forward ipv4/icmp_* ipv4/ip_no_pmtu_disc ipv4/ip_default_ttl \
ipv4/neigh/default/gc_thresh* ipv4/conf/*/forwarding ipv4/conf/*/rp_filter ipv4/conf/*/proxy_arp \
ipv4/conf/*/arp_ignore ipv4/conf/*/arp_announce ipv4/conf/*/send_redirects \
bridge/bridge-nf-call-iptables netfilter/nf_conntrack_count netfilter/nf_conntrack_max
"""
LOOKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("addresses.txt", ("ip", "-details", "-statistics", "address")),
    ("routes.txt", ("ip", "-details", "route", "show", "table", "all")),
    ("rules.txt", ("ip", "rule")),
    ("neighbours.txt", ("ip", "-statistics", "neighbour", "show", "nud", "all")),
    ("proxies.txt", ("ip", "neighbour", "show", "proxy")),
    ("forwarding.txt", ("bridge", "-details", "fdb", "show")),
    ("ports.txt", ("bridge", "-details", "link", "show")),
    ("nftables.txt", ("nft", "list", "ruleset")),
    ("sysctls.txt", ("sh", "-c", _SYSCTLS)),
    ("sockets.txt", ("ss", "-a", "-n", "-t", "-u", "-p")),
    ("counters.txt", ("cat", "/proc/net/snmp", "/proc/net/netstat")),
)
"""File and command: what is asked in every namespace."""


def evidence(lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
    """The holder, then every machine, then every pod, then the daemons' files.

    Of a large lab there is time for a part; a machine says more than a pod. A namespace takes at
    most ``EVIDENCE_SECONDS``. What cannot be had says why.
    """
    try:
        holder = holding.find(lab)
    except (LabError, OSError) as error:
        yield Evidence("holder.txt", f"looking for the holder: {error}\n".encode())
        return
    if holder is None:
        yield Evidence("holder.txt", b"no holder process carries the lab's token\n")
        return
    yield Evidence("holder.txt", _holder(holder, intent).encode())
    pods = {pod.name for machine in intent.machines for pod in machine.pods}
    there = namespaces.present(holder.pid)
    for name in sorted(names_of(intent), key=pods.__contains__):
        if name not in there:
            yield Evidence(f"{name}/missing.txt", b"there is no such namespace\n")
            continue
        yield from _namespace(lab, name, tuple(_asked(intent, name)), pod=name in pods)
    for path, content in daemons.files(holder.pid, intent):
        yield Evidence(path, content)


def logs(lab: LabHandle, intent: Intent, asked: Collection[str]) -> Iterator[Evidence]:
    """What the daemons of those machines have written. Never raises."""
    try:
        holder = holding.find(lab)
    except (LabError, OSError):
        return
    if holder is not None:
        for path, content in daemons.logs(holder.pid, intent, asked):
            yield Evidence(path, content)


def _holder(holder: HolderProcess, intent: Intent) -> str:
    there = namespaces.present(holder.pid)
    missing = [name for name in names_of(intent) if name not in there]
    lines = [
        f"process: {holder.pid}, for {holder.age():.1f} s",
        f"namespaces: {len(there)}; missing: {', '.join(missing) or 'none'}",
        f"responder: {'running' if responding.alive(holder.pid) else 'not running'}",
    ]
    for file in ("status", "mounts"):
        lines += ["", f"$ cat /proc/{holder.pid}/{file}", _text(Path(f"/proc/{holder.pid}/{file}"))]
    return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").rstrip()
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _asked(intent: Intent, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the machine's daemons are asked: file and command."""
    for machine in intent.machines:
        for daemon in machine.daemons if machine.name == name else ():
            for look in daemon.looks:
                words = (word for word in look if not word.startswith("--"))
                file = "-".join(words).replace("/", "-")
                yield f"{daemon.name}/{file}.txt", look


def _namespace(
    lab: LabHandle, name: str, asked: tuple[tuple[str, tuple[str, ...]], ...], *, pod: bool
) -> Iterator[Evidence]:
    resolver = (("resolv.conf", ("cat", f"{RESOLV_DIRECTORY}/{name}")),) if pod else ()
    looks = (*LOOKS, *resolver, *asked)
    found: list[Completed] = []
    trouble = ""
    try:
        machine = NetnsMachine(name, holding.entry(lab), pod=False)
        machine.run_each(
            [command for _, command in looks], Deadline(EVIDENCE_SECONDS), found.append
        )
    except (LabError, OSError) as error:
        trouble = str(error)
    for (file, command), done in zip(looks, found, strict=False):
        yield Evidence(f"{name}/{file}", transcript(command, done).encode())
    for file, command in looks[len(found) :]:
        yield Evidence(f"{name}/{file}", f"{_line(command)}\n{trouble}\n".encode())


def transcript(command: Sequence[str], done: Completed) -> str:
    """A command and what came of it, as one would have seen it in a terminal. Pure."""
    text = f"{_line(command)}\n{done.stdout}"
    if done.code or done.stderr:
        text += f"{done.stderr}# exit code {done.code}\n"
    return text


def _line(command: Sequence[str]) -> str:
    return f"$ {shlex.join(command)}"
