"""The operations of a lab as a shell script of ``ip``, ``bridge``, ``sysctl`` and ``nft``.

The very operations that the executor does, in the same order; whoever runs the script as
root, in a place where no namespace has one of the names, has the same network. Pure.

Whoever runs them as root, after the script of the network, has the same daemons. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from shlex import quote

from lab._errors import UsageError
from lab.providers.netns.compile import FABRIC, compile_intent
from lab.providers.netns.operations import (
    AddressAdd,
    AddressRemove,
    BridgeAdd,
    ChecksumOff,
    ForwardingSet,
    HairpinOn,
    LinkDown,
    LinkRemove,
    LinkRename,
    LinkUp,
    MasterSet,
    MtuSet,
    NamespaceOperations,
    NeighbourSet,
    Operation,
    ProxyDelaySet,
    ProxySet,
    RouteAdd,
    RouteRemove,
    RouteSet,
    RulesetLoad,
    SysctlSet,
    TapAdd,
    VethAdd,
    VxlanAdd,
)
from lab.providers.netns.windows import realise
from lab.topology.commands import way
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent, MachineIntent, Route

_FILE_END = "END_OF_FILE"
_PREAMBLE = """
# Daemons: every machine that has one has a /run of its own, below this directory.
runs=$(mktemp -d)
on() { # on MACHINE DAEMON COMMAND...: in the daemon's directory
    ip netns exec "$1" sh -c 'mount --bind "$0" /run && cd "/run/$2" && shift 2 && exec "$@"' \\
        "$runs/$1" "$@"
}"""


def daemon_lines(machines: Sequence[MachineIntent], *, whole: bool) -> Iterator[str]:
    """The lines, stage by stage; none at all where no machine has a daemon.

    Only where they are the ``whole`` lab's is each waited for: alone it may never be ready.
    """
    placed = [(one.name, daemon) for one in machines for daemon in one.daemons]
    if placed:
        yield from _PREAMBLE.splitlines()
    for stage in sorted({daemon.stage for _, daemon in placed}):
        here = [(name, daemon) for name, daemon in placed if daemon.stage == stage]
        for name, daemon in here:
            yield from _start(name, daemon)
        yield ""
        for name, daemon in here if whole else ():
            yield _wait(name, daemon)
        for name, daemon in here:
            yield from (_on(name, daemon, command) for command in daemon.after)


def _start(machine: str, daemon: Daemon) -> Iterator[str]:
    yield ""
    yield f"# {machine}: {daemon.name}, of the package {daemon.package}"
    home = f'"$runs"/{shlex.quote(machine)}/{shlex.quote(daemon.name)}'
    yield f"mkdir -p {home}"
    for file in daemon.files:
        path = f"{home}/{shlex.quote(file.name)}"
        if "/" in file.name:
            yield f"mkdir -p {home}/{shlex.quote(file.name.rpartition('/')[0])}"
        yield f"cat >{path} <<'{_FILE_END}'"
        yield from file.text.splitlines()
        yield _FILE_END
        yield f"chmod {file.mode:o} {path}"
    yield from (_on(machine, daemon, command) for command in daemon.before)
    yield f"{_on(machine, daemon, daemon.command)} >{home}/{LOG} 2>&1 &"


def _on(machine: str, daemon: Daemon, command: Sequence[str]) -> str:
    settings = [f"{name}={value}" for name, value in daemon.environment]
    words = ["env", *settings, *command] if settings else command
    return f"on {shlex.join([machine, daemon.name, *words])}"


def _wait(machine: str, daemon: Daemon) -> str:
    text = _on(machine, daemon, daemon.ready.command or ("cat", LOG))
    pattern = shlex.quote(f"(?m){daemon.ready.pattern}")
    return f"until {text} | grep -qzP {pattern}; do sleep 0.1; done"


_RULES_END = "END_OF_RULES"


def script(
    intent: Intent, only: str | None = None, windows_rules_off: frozenset[str] = frozenset()
) -> str:
    """The whole lab's script, or one machine's: itself, its pods, and its part of the fabric.

    Windows machines obey the Windows rules, but for those switched off.

    Raises
    ------
    UsageError
        If there is no machine of that name.

    """
    real = realise(intent, windows_rules_off)
    wanted = compile_intent(real)
    if only is not None:
        wanted = _of_machine(intent, wanted, only)
    lines = ["#!/bin/sh", f"# Scenario '{intent.scenario}': the network as commands; run as root."]
    names = " ".join(quote(one.namespace) for one in wanted)
    machines = [one for one in real.machines if only in {None, one.name}]
    daemons = list(daemon_lines(machines, whole=only is None))
    end = "ip netns pids $name | xargs -r kill; " if daemons else ""
    lines += [
        f"# Take it away: for name in {names}; do {end}ip netns delete $name; done",
        "set -eu",
        f"for name in {names}; do ip netns add $name; done",
    ]
    for one in wanted:
        lines += ["", f"# {one.namespace}"]
        for operation in one.operations:
            lines += command(operation, quote(one.namespace))
    lines += daemons
    return "".join(f"{line}\n" for line in lines)


def _of_machine(
    intent: Intent, wanted: tuple[NamespaceOperations, ...], name: str
) -> tuple[NamespaceOperations, ...]:
    try:
        machine = intent.machine(name)
    except KeyError:
        known = ", ".join(f"'{one.name}'" for one in intent.everything())
        raise UsageError(
            f"printing the commands of '{name}'", "there is no such machine", f"one of {known}"
        ) from None
    beneath = {FABRIC, *(card.host for card in machine.interfaces if card.host)}
    names = {name, *(pod.name for pod in machine.pods), *beneath}
    return tuple(
        replace(one, operations=tuple(_part(one.operations, names)))
        for one in wanted
        if one.namespace in names
    )


def _part(operations: tuple[Operation, ...], names: set[str]) -> Iterator[Operation]:
    """A namespace's operations without the links to others than these."""
    foreign: set[str] = set()
    for operation in operations:
        if isinstance(operation, VethAdd) and operation.peer_namespace not in names:
            foreign.add(operation.name)
        elif not (isinstance(operation, MasterSet) and operation.device in foreign):
            yield operation


@singledispatch
def command(operation: Operation, namespace: str) -> list[str]:
    """One operation as the lines of a shell script; ``namespace`` is quoted already."""
    raise TypeError(f"no command for {operation!r} in {namespace}")


@command.register
def _(operation: SysctlSet, namespace: str) -> list[str]:
    line = f"ip netns exec {namespace} sysctl -qw {operation.key}={operation.value}"
    return [f"[ ! -e /proc/sys/{operation.key} ] || {line}" if operation.optional else line]


@command.register
def _(operation: LinkUp, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link set dev {operation.device} up"]


@command.register
def _(operation: LinkDown, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link set dev {operation.device} down"]


@command.register
def _(operation: LinkRename, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link set dev {operation.device} name {operation.name}"]


@command.register
def _(operation: LinkRemove, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link delete dev {operation.device}"]


@command.register
def _(operation: MtuSet, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link set dev {operation.device} mtu {operation.mtu}"]


@command.register
def _(operation: VethAdd, namespace: str) -> list[str]:
    return [
        (
            f"ip -n {namespace} link add dev {operation.name} index {operation.index} "
            f"address {operation.mac} mtu {operation.mtu} up type veth "
            f"peer name {operation.peer_name} index {operation.peer_index} "
            f"address {operation.peer_mac} mtu {operation.mtu} "
            f"netns {quote(operation.peer_namespace)}"
        )
    ]


@command.register
def _(operation: BridgeAdd, namespace: str) -> list[str]:
    return [
        (
            f"ip -n {namespace} link add dev {operation.name} index {operation.index} "
            f"address {operation.mac} mtu {operation.mtu} up type bridge"
        )
    ]


@command.register
def _(operation: VxlanAdd, namespace: str) -> list[str]:
    return [
        (
            f"ip -n {namespace} link add dev {operation.name} index {operation.index} "
            f"address {operation.mac} mtu {operation.mtu} up type vxlan id {operation.vni} "
            f"dev {operation.device} local {operation.local} dstport {operation.port} nolearning"
        )
    ]


@command.register
def _(operation: TapAdd, namespace: str) -> list[str]:
    return [
        f"ip -n {namespace} tuntap add dev {operation.name} mode tap",
        f"ip -n {namespace} link set dev {operation.name} address {operation.mac}",
    ]


@command.register
def _(operation: ChecksumOff, namespace: str) -> list[str]:
    return [f"ip netns exec {namespace} ethtool -K {operation.device} tx off"]


@command.register
def _(operation: MasterSet, namespace: str) -> list[str]:
    return [f"ip -n {namespace} link set dev {operation.device} master {operation.master}"]


@command.register
def _(operation: HairpinOn, namespace: str) -> list[str]:
    return [f"bridge -n {namespace} link set dev {operation.device} hairpin on"]


@command.register
def _(operation: AddressAdd, namespace: str) -> list[str]:
    return [f"ip -n {namespace} address add {operation.address} dev {operation.device}"]


@command.register
def _(operation: AddressRemove, namespace: str) -> list[str]:
    return [f"ip -n {namespace} address delete {operation.address} dev {operation.device}"]


@command.register
def _(operation: RouteSet, namespace: str) -> list[str]:
    return [_route("replace", operation, namespace, operation.source)]


@command.register
def _(operation: RouteAdd, namespace: str) -> list[str]:
    added = _route("prepend", operation, namespace, operation.source)
    return [f"{added} metric {operation.metric}"]


@command.register
def _(operation: RouteRemove, namespace: str) -> list[str]:
    return [f"{_route('delete', operation, namespace)} metric {operation.metric}"]


def _route(
    verb: str,
    operation: RouteSet | RouteAdd | RouteRemove,
    namespace: str,
    source: str | None = None,
) -> str:
    where, device = operation.destination, operation.device
    route = Route(where, device, operation.via, operation.onlink, source=source)
    return f"ip -n {namespace} route {verb} {way(route)}"


@command.register
def _(operation: NeighbourSet, namespace: str) -> list[str]:
    return [
        (
            f"ip -n {namespace} neighbour replace {operation.address} lladdr {operation.mac} "
            f"dev {operation.device} nud permanent"
        )
    ]


@command.register
def _(operation: ForwardingSet, namespace: str) -> list[str]:
    verb = "replace" if operation.mac.strip("0:") else "append"
    return [
        (
            f"bridge -n {namespace} fdb {verb} {operation.mac} dev {operation.device} "
            f"dst {operation.remote} self permanent"
        )
    ]


@command.register
def _(operation: ProxySet, namespace: str) -> list[str]:
    return [f"ip -n {namespace} neighbour replace proxy {operation.address} dev {operation.device}"]


@command.register
def _(operation: ProxyDelaySet, namespace: str) -> list[str]:
    return [
        (
            f"ip -n {namespace} ntable change name arp_cache dev {operation.device} "
            f"proxy_delay {operation.milliseconds}"
        )
    ]


@command.register
def _(operation: RulesetLoad, namespace: str) -> list[str]:
    head = f"ip netns exec {namespace} nft -f - <<'{_RULES_END}'"
    return [head, *operation.text.splitlines(), _RULES_END]
