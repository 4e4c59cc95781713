"""What a machine translates and loses, as nftables text in the shape of kube-proxy's. Pure.

Two tables: ``kube-proxy`` holds Services and masquerade, ``host-limits`` what the machine's own
packets do not reach. Where kube-proxy makes one chain a protocol, one chain here serves TCP and
UDP, as the Intent's Services do; a Service with one backend goes to it without drawing lots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, collapse_addresses

from lab.topology.intent import Backend, Drop, MachineIntent, Service, Translation

SERVICE_TABLE = "kube-proxy"
LIMIT_TABLE = "host-limits"
MASQUERADE_MARK = 0x4000
"""The bit of the packet mark that kube-proxy uses."""
_MULTICAST = "224.0.0.0/4"
_PROTOCOLS = ("tcp", "udp")


def ruleset(machine: MachineIntent) -> str:
    """The nftables script of a machine; empty where nothing is translated or lost.

    Loading it again replaces all rules in one transaction. (``delete table`` would too, but
    makes the kernel wait 14 ms for a table that is not there.)
    """
    lines = [line for _, lines in _tables(machine) for line in lines]
    return "".join(f"{line}\n" for line in ("flush ruleset", *lines)) if lines else ""


def ruleset_beside(machine: MachineIntent) -> str:
    """As :func:`ruleset`, where other tables of the namespace are somebody else's and stay."""
    return "".join(
        replacing_table(name, "".join(f"{line}\n" for line in lines))
        for name, lines in _tables(machine)
    )


def replacing_table(name: str, table: str = "") -> str:
    """A script that puts ``table`` in the place of the table ``name``, there or not."""
    return f"table ip {name} {{}}\ndelete table ip {name}\n{table}"


def _tables(machine: MachineIntent) -> Iterator[tuple[str, list[str]]]:
    if machine.translation:
        yield SERVICE_TABLE, _table(SERVICE_TABLE, _services(machine.translation))
    if machine.drops:
        yield LIMIT_TABLE, _table(LIMIT_TABLE, _limits(machine.drops))


def _table(name: str, body: Iterable[str]) -> list[str]:
    return [f"table ip {name} {{", *(f"  {line}" for line in body), "}"]


def _services(translation: Translation) -> Iterator[str]:
    ready = [one for one in translation.services if one.backends]
    empty = [one for one in translation.services if not one.backends]
    yield from _chain("mark-for-masquerade", f"meta mark set meta mark or {MASQUERADE_MARK:#x}")
    yield from _chain("reject-service", "reject")
    for service in ready:
        yield from _service(service, translation.local_cidr)
    by_address = "ipv4_addr . inet_proto . inet_service"
    by_port = "inet_proto . inet_service"
    targets = {one.name: f"goto service-{one.name}" for one in ready}
    refusals = {one.name: "goto reject-service" for one in empty}
    yield from _map("service-ips", by_address, _addresses(ready, targets))
    yield from _map("service-nodeports", by_port, _node_ports(ready, targets))
    yield from _map("no-endpoint-services", by_address, _addresses(empty, refusals))
    yield from _map("no-endpoint-nodeports", by_port, _node_ports(empty, refusals))
    yield from _dispatch()
    yield from _hooks(translation)


def _service(service: Service, local: str | None) -> Iterator[str]:
    """The Service's own chain, and one for each of its endpoints."""
    for backend in service.backends:
        target = f"{backend.address}:{backend.port}"
        yield from _chain(
            _endpoint(service, backend),
            f"ip saddr {backend.address} jump mark-for-masquerade",
            *(f"meta l4proto {protocol} dnat to {target}" for protocol in _PROTOCOLS),
        )
    outside = f"ip saddr != {local} " if local else ""
    gotos = [f"goto {_endpoint(service, backend)}" for backend in service.backends]
    if len(gotos) == 1:
        choice = gotos[0]
    else:
        lots = ", ".join(f"{number} : {goto}" for number, goto in enumerate(gotos))
        choice = f"numgen random mod {len(gotos)} vmap {{ {lots} }}"
    yield from _chain(f"service-{service.name}", f"{outside}jump mark-for-masquerade", choice)


def _endpoint(service: Service, backend: Backend) -> str:
    return f"endpoint-{service.name}/{backend.pod}"


def _addresses(services: list[Service], verdicts: dict[str, str]) -> list[str]:
    return [
        f"{one.address} . {protocol} . {one.port} : {verdicts[one.name]}"
        for one in services
        for protocol in _PROTOCOLS
    ]


def _node_ports(services: list[Service], verdicts: dict[str, str]) -> list[str]:
    return [
        f"{protocol} . {one.node_port} : {verdicts[one.name]}"
        for one in services
        if one.node_port
        for protocol in _PROTOCOLS
    ]


def _dispatch() -> Iterator[str]:
    """From the hooks to the Services' chains; a NodePort's packet is marked on the way."""
    by_address = "ip daddr . meta l4proto . th dport"
    by_port = "meta l4proto . th dport"
    own = "fib daddr type local ip daddr != 127.0.0.0/8"
    yield from _chain("services", f"{by_address} vmap @service-ips", f"{own} jump nodeports")
    yield from _chain(
        "nodeports",
        "jump mark-for-masquerade",
        f"{by_port} vmap @service-nodeports",
        f"meta mark set meta mark xor {MASQUERADE_MARK:#x}",
    )
    yield from _chain(
        "service-endpoints-check",
        f"{by_address} vmap @no-endpoint-services",
        f"{own} {by_port} vmap @no-endpoint-nodeports",
    )
    yield from _chain(
        "masquerading",
        f"meta mark and {MASQUERADE_MARK:#x} == 0 return",
        f"meta mark set meta mark xor {MASQUERADE_MARK:#x}",
        "masquerade fully-random",
    )


def _hooks(translation: Translation) -> Iterator[str]:
    for hook in ("input", "forward", "output"):
        yield from _chain(
            f"filter-{hook}",
            f"type filter hook {hook} priority -110; policy accept;",
            "ct state new jump service-endpoints-check",
        )
    for hook in ("prerouting", "output"):
        yield from _chain(
            f"nat-{hook}",
            f"type nat hook {hook} priority -100; policy accept;",
            "jump services",
        )
    leaving = []
    if translation.local_cidr:
        inside = _prefixes((*translation.not_masqueraded, _MULTICAST))
        leaving = [
            f"ip saddr {translation.local_cidr} ip daddr != {inside} masquerade fully-random"
        ]
    yield from _chain(
        "nat-postrouting",
        "type nat hook postrouting priority 100; policy accept;",
        "jump masquerading",
        *leaving,
    )


def _limits(drops: tuple[Drop, ...]) -> Iterator[str]:
    """After connection tracking, so that replies pass; before DNAT, as the sender wrote it."""
    yield from _chain(
        "output",
        "type filter hook output priority -150; policy accept;",
        "ct direction reply accept",
        *(_drop(drop) for drop in drops),
    )


def _drop(drop: Drop) -> str:
    spared = f"ip daddr != {_prefixes(drop.spared)} " if drop.spared else ""
    ports = f"th dport {drop.ports[0]}-{drop.ports[1]} " if drop.ports else ""
    transport = "meta l4proto { tcp, udp } " if drop.ports else ""
    where = f"ip daddr {_prefixes(drop.destinations)} {spared}"
    return f'{where}{transport}{ports}drop comment "{drop.rule}"'


def _prefixes(texts: Iterable[str]) -> str:
    """A set of prefixes; overlapping and adjoining ones joined, which nftables demands."""
    joined = collapse_addresses(IPv4Network(text) for text in texts)
    return "{ " + ", ".join(str(prefix) for prefix in joined) + " }"


def _chain(name: str, *rules: str) -> Iterator[str]:
    yield f"chain {name} {{"
    yield from (f"  {rule}" for rule in rules)
    yield "}"


def _map(name: str, keys: str, elements: list[str]) -> Iterator[str]:
    yield f"map {name} {{"
    yield f"  type {keys} : verdict"
    if elements:
        yield f"  elements = {{ {', '.join(elements)} }}"
    yield "}"
