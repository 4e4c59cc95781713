"""A machine's Service translation and drops as nftables text, in kube-proxy's structure. Pure.

Two tables: ``kube-proxy`` holds Services and masquerade, ``host-limits`` drops what the machine's
own packets cannot reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from ipaddress import IPv4Network, collapse_addresses

from lab._dataclass import dataclass
from lab.scenario.terms import Protocol, ServicePort
from lab.topology import proxying
from lab.topology.intent import Backend, Bridge, Drop, MachineIntent, ProxiedService, Translation

SERVICE_TABLE = "kube-proxy"
LIMIT_TABLE = "host-limits"
LEAVING = "nat-postrouting"
"""The chain that gives leaving packets the node's address."""
_MULTICAST = "224.0.0.0/4"
_BY_ADDRESS = "ipv4_addr . inet_proto . inet_service"
_BY_PORT = "inet_proto . inet_service"
_PORT = "meta l4proto . th dport"


def ruleset(machine: MachineIntent) -> str:
    """The nftables script of a machine; empty if it translates and drops nothing.

    Loading it again replaces all rules in one transaction. (``delete table`` would too, but
    takes the kernel 14 ms if the table does not exist.)
    """
    lines = [line for _, lines in _tables(machine) for line in lines]
    lines += [line for table in gateway_tables(machine) for line in table]
    return "".join(f"{line}\n" for line in ("flush ruleset", *lines)) if lines else ""


def ruleset_beside(machine: MachineIntent) -> str:
    """Like :func:`ruleset`, but keeps the namespace's other tables, which are not the lab's."""
    return "".join(
        replacing_table(name, "".join(f"{line}\n" for line in lines))
        for name, lines in _tables(machine)
    )


def replacing_table(name: str, table: str = "") -> str:
    """A script that replaces the table ``name`` with ``table``, whether it exists or not."""
    return f"table ip {name} {{}}\ndelete table ip {name}\n{table}"


def _tables(machine: MachineIntent) -> Iterator[tuple[str, list[str]]]:
    if machine.translation and machine.chassis is None:
        body = _services(machine.translation, machine.name)
        yield SERVICE_TABLE, _table(SERVICE_TABLE, body)
    if machine.drops:
        yield LIMIT_TABLE, _table(LIMIT_TABLE, _limits(machine.drops))


def _table(name: str, body: Iterable[str]) -> list[str]:
    return [f"table ip {name} {{", *(f"  {line}" for line in body), "}"]


def _services(translation: Translation, node: str) -> Iterator[str]:
    rules = service_rules(translation, node)
    yield from chain(MARK, f"meta mark set meta mark or {MASQUERADE_MARK:#x}")
    yield from chain(REJECT, "reject")
    yield from rules.chains
    yield from _collections(rules)
    yield from _dispatch(translation)
    yield from _hooks(translation)


def _collections(rules: Rules) -> Iterator[str]:
    hairpins = f"ipv4_addr . {_BY_ADDRESS}"
    yield from collection("set", "cluster-ips", "ipv4_addr", rules.addresses)
    yield from collection("set", "hairpin-connections", hairpins, rules.hairpins)
    for name, keys, elements in (
        ("service-ips", _BY_ADDRESS, rules.by_address),
        ("service-nodeports", _BY_PORT, rules.by_node_port),
        ("no-endpoint-services", _BY_ADDRESS, rules.without_by_address),
        ("no-endpoint-nodeports", _BY_PORT, rules.without_by_node_port),
    ):
        yield from collection("map", name, f"{keys} : verdict", elements)


def _dispatch(translation: Translation) -> Iterator[str]:
    """The chains between the hooks and the Services' chains, and those for unmatched packets."""
    by_address, by_port = f"ip daddr . {_PORT}", _PORT
    not_loopback = "ip daddr != 127.0.0.0/8"
    local = translation.local_cidr
    elsewhere = f"ip saddr != {local} " if local else ""
    yield from chain(
        "services",
        f"ip daddr @cluster-ips {elsewhere}jump {MARK}",
        f"{by_address} vmap @service-ips",
        f"fib daddr type local {not_loopback} {by_port} vmap @service-nodeports",
    )
    yield from chain("service-endpoints-check", f"{by_address} vmap @no-endpoint-services")
    yield from chain(
        "nodeport-endpoints-check", f"{not_loopback} {by_port} vmap @no-endpoint-nodeports"
    )
    yield from chain(
        "cluster-ips-check",
        f"ip daddr @cluster-ips {f'goto {REJECT}' if translation.refuses else 'drop'}",
    )
    yield from chain(
        "masquerading",
        f"meta mark and {MASQUERADE_MARK:#x} != 0 "
        f"meta mark set meta mark xor {MASQUERADE_MARK:#x} masquerade fully-random",
        "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections "
        "masquerade fully-random",
    )


def _hooks(translation: Translation) -> Iterator[str]:
    for hook, checks in (
        ("input", ("nodeport-endpoints-check", "service-endpoints-check")),
        ("forward", ("service-endpoints-check", "cluster-ips-check")),
        ("output", ("service-endpoints-check", "cluster-ips-check")),
    ):
        yield from chain(
            f"filter-{hook}",
            f"type filter hook {hook} priority 0; policy accept;",
            *(f"ct state new jump {check}" for check in checks),
        )
    for hook in ("prerouting", "output"):
        yield from chain(
            f"nat-{hook}",
            f"type nat hook {hook} priority -100; policy accept;",
            "jump services",
        )
    yield from chain(
        LEAVING,
        "type nat hook postrouting priority 100; policy accept;",
        *leaving_rules(translation),
    )


def leaving_rules(translation: Translation) -> tuple[str, ...]:
    """The rules of the chain :data:`LEAVING`: first Services' packets, then all others leaving."""
    if translation.local_cidr is None:
        return ("jump masquerading",)
    inside = _prefixes((*translation.not_masqueraded, _MULTICAST))
    leaves = f"ip saddr {translation.local_cidr} ip daddr != {inside} masquerade fully-random"
    return ("jump masquerading", leaves)


def _limits(drops: tuple[Drop, ...]) -> Iterator[str]:
    """The drops: after connection tracking, so that replies pass, and before DNAT."""
    for hook in ("output", "input"):
        here = [_drop(drop) for drop in drops if drop.hook == hook]
        if here:
            yield from chain(
                hook,
                f"type filter hook {hook} priority -150; policy accept;",
                "ct direction reply accept",
                *here,
            )


def _drop(drop: Drop) -> str:
    spared = f"ip daddr != {_prefixes(drop.spared)} " if drop.spared else ""
    ports = f"th dport {drop.ports[0]}-{drop.ports[1]} " if drop.ports else ""
    transport = "meta l4proto { tcp, udp } " if drop.ports else ""
    where = f"ip daddr {_prefixes(drop.destinations)} {spared}"
    return f'{where}{transport}{ports}drop comment "{drop.rule}"'


def _prefixes(texts: Iterable[str]) -> str:
    """A set of prefixes; overlapping and adjacent ones are merged, as nftables requires."""
    joined = collapse_addresses(IPv4Network(text) for text in texts)
    return "{ " + ", ".join(str(prefix) for prefix in joined) + " }"


MASQUERADE_MARK = 0x4000
"""The bit of the packet mark that kube-proxy uses."""
MARK = "mark-for-masquerade"
REJECT = "reject-service"


@dataclass(slots=True)
class Rules:
    """Chains, and the elements of the sets and maps that dispatch to them."""

    chains: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    hairpins: dict[str, None] = field(default_factory=dict)
    """Without duplicates: several Services may share a backend."""
    by_address: list[str] = field(default_factory=list)
    by_node_port: list[str] = field(default_factory=list)
    without_by_address: list[str] = field(default_factory=list)
    """For ports without a backend for traffic to the Service's address."""
    without_by_node_port: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    service: ProxiedService
    port: ServicePort
    protocols: tuple[Protocol, ...]
    local: tuple[Backend, ...]

    @property
    def anywhere(self) -> tuple[Backend, ...]:
        return self.service.backends

    def targets(self, backend: Backend) -> str:
        return f"{backend.address}:{self.port.target_port}"


def service_rules(translation: Translation, node: str) -> Rules:
    """The rules for a node's Services."""
    rules = Rules()
    for service in translation.services:
        rules.addresses.append(service.address)
        for whole in _ports(service, node):
            for port in _by_affinity(whole):
                _add(rules, port, translation)
    return rules


def _ports(service: ProxiedService, node: str) -> Iterator[_Port]:
    several = len(service.ports) > 1
    local = proxying.local(service, node)
    for port in service.ports:
        name = f"{service.name}/{port.name}" if several else service.name
        yield _Port(name, service, port, port.protocols, local)


def _by_affinity(port: _Port) -> Iterator[_Port]:
    """The port itself, or with session affinity one for each protocol."""
    if port.service.affinity is None:
        yield port
        return
    for protocol in port.protocols:
        yield replace(port, name=f"{port.name}/{protocol}", protocols=(protocol,))


def _add(rules: Rules, port: _Port, translation: Translation) -> None:
    service = port.service
    inside_local, outside_local = service.inside == "local", service.outside == "local"
    has_node_port = port.port.node_port is not None
    if port.anywhere and (not inside_local or has_node_port):
        rules.chains += _balance(port, f"service-{port.name}", port.anywhere)
    if port.local and (inside_local or (outside_local and has_node_port)):
        rules.chains += _balance(port, f"local-{port.name}", port.local)
    if service.affinity is not None:
        rules.chains += _affinity(
            port, service.affinity, node_only=inside_local and not has_node_port
        )
    for backend in port.local:
        for protocol in port.protocols if backend.hairpin else ():
            end = f"{backend.address} . {protocol} . {port.port.target_port}"
            rules.hairpins[f"{backend.address} . {end}"] = None
    if has_node_port and port.anywhere:
        rules.chains += chain(f"external-{port.name}", *_external(port, translation))
    _add_elements(rules, port, refuses=translation.refuses)


def _add_elements(rules: Rules, port: _Port, *, refuses: bool) -> None:
    """Add the elements that send a port's packets to its chains, or reject or drop them."""
    service, number = port.service, port.port.node_port
    inside = port.local if service.inside == "local" else port.anywhere
    outside = port.local if service.outside == "local" else port.anywhere
    chosen = "local" if service.inside == "local" else "service"
    without = f"goto {REJECT}" if refuses and not port.anywhere else "drop"
    for protocol in port.protocols:
        key = f"{service.address} . {protocol} . {port.port.port}"
        if inside:
            rules.by_address.append(f"{key} : goto {chosen}-{port.name}")
        else:
            rules.without_by_address.append(f"{key} : {without}")
        if number is None:
            continue
        if port.anywhere:
            rules.by_node_port.append(f"{protocol} . {number} : goto external-{port.name}")
        if not outside:
            rules.without_by_node_port.append(f"{protocol} . {number} : {without}")


def _external(port: _Port, translation: Translation) -> Iterator[str]:
    """Rules for packets to the NodePort, by external traffic policy.

    With policy Local, packets from the node and its pods still go to any backend, as if they had
    gone out and come back in.
    """
    if port.service.outside == "cluster":
        yield f"jump {MARK}"
        yield f"goto service-{port.name}"
        return
    if translation.short_circuits:
        if translation.local_cidr:
            yield f"ip saddr {translation.local_cidr} goto service-{port.name}"
        yield f"fib saddr type local jump {MARK}"
        yield f"fib saddr type local goto service-{port.name}"
    if port.local:
        yield f"goto local-{port.name}"


def _balance(port: _Port, name: str, backends: Sequence[Backend]) -> Iterator[str]:
    if port.service.affinity is None:
        return chain(name, *_translations(port, backends))
    remembered = [
        f"ip saddr @{_memory(port, backend)} goto {_endpoint(port, backend)}"
        for backend in backends
    ]
    gotos = [
        f"{number} : goto {_endpoint(port, backend)}" for number, backend in enumerate(backends)
    ]
    choice = f"numgen random mod {len(gotos)} vmap {{ {', '.join(gotos)} }}"
    return chain(name, *remembered, choice)


def _translations(port: _Port, backends: Sequence[Backend]) -> Iterator[str]:
    """One rule per protocol; a single backend needs no random choice."""
    for protocol in port.protocols:
        if len(backends) == 1:
            yield f"meta l4proto {protocol} dnat to {port.targets(backends[0])}"
            continue
        ends = ", ".join(
            f"{number} : {backend.address} . {port.port.target_port}"
            for number, backend in enumerate(backends)
        )
        choice = f"numgen random mod {len(backends)} map {{ {ends} }}"
        yield f"meta l4proto {protocol} dnat ip addr . port to {choice}"


def _affinity(port: _Port, seconds: int, *, node_only: bool) -> Iterator[str]:
    """For each endpoint: the set of its sticky clients, and the chain that records them."""
    for backend in port.local if node_only else port.anywhere:
        yield f"set {_memory(port, backend)} {{"
        yield "  type ipv4_addr"
        yield "  flags dynamic, timeout"
        yield f"  timeout {seconds}s"
        yield "}"
        yield from chain(
            _endpoint(port, backend),
            f"update @{_memory(port, backend)} {{ ip saddr }}",
            *_translations(port, (backend,)),
        )


def _endpoint(port: _Port, backend: Backend) -> str:
    return f"endpoint-{port.name}/{backend.pod}"


def _memory(port: _Port, backend: Backend) -> str:
    return f"affinity-{port.name}/{backend.pod}"


def chain(name: str, *rules: str) -> Iterator[str]:
    """A chain's lines."""
    yield f"chain {name} {{"
    yield from (f"  {rule}" for rule in rules)
    yield "}"


def collection(kind: str, name: str, keys: str, elements: Iterable[str]) -> Iterator[str]:
    """A set's or a map's lines."""
    listed = ", ".join(elements)
    yield f"{kind} {name} {{"
    yield f"  type {keys}"
    if listed:
        yield f"  elements = {{ {listed} }}"
    yield "}"


GATEWAY_TABLE = "ovn-kubernetes"
SWITCH_TABLE = "open-vswitch"
_OWN = "fib daddr type local ip daddr != 127.0.0.0/8"


def gateway_tables(machine: MachineIntent) -> Iterator[list[str]]:
    """Each table's lines; none if the machine is not a chassis."""
    if machine.chassis is None:
        return
    if machine.translation and machine.bridge:
        body = _gateway(machine.translation, machine.bridge, machine.name)
        yield [f"table ip {GATEWAY_TABLE} {{", *(f"  {line}" for line in body), "}"]
    ports = [interface.card for interface in machine.interfaces if interface.card]
    ports += [pod.port for pod in machine.pods]
    devices = ", ".join(f'"{port}"' for port in ports)
    body = chain(
        "ports", f"type filter hook ingress devices = {{ {devices} }} priority 0; policy drop;"
    )
    yield [f"table netdev {SWITCH_TABLE} {{", *(f"  {line}" for line in body), "}"]


def _gateway(translation: Translation, bridge: Bridge, node: str) -> Iterator[str]:
    every = (port for service in translation.services for port in _ports(service, node))
    ports = [port for port in every if port.port.node_port is not None]
    for port in ports:
        yield from chain(f"external-{port.name}", *_gateway_rules_external(port, translation))
    keys = [
        (port, f"{protocol} . {port.port.node_port}")
        for port in ports
        for protocol in port.protocols
    ]
    leading = [f"{key} : goto external-{port.name}" for port, key in keys]
    lost = [key for port, key in keys if port.service.outside == "local" and not port.local]
    yield from collection("map", "node-ports", f"{_BY_PORT} : verdict", leading)
    yield from collection("set", "no-local-backends", _BY_PORT, lost)
    for hook in ("prerouting", "output"):
        yield from chain(
            f"nat-{hook}",
            f"type nat hook {hook} priority -100; policy accept;",
            f"{_OWN} {_PORT} vmap @node-ports",
        )
    yield from chain(
        "filter-input",
        "type filter hook input priority 0; policy accept;",
        f"ct state new {_PORT} @no-local-backends drop",
    )
    yield from chain(
        "nat-postrouting",
        "type nat hook postrouting priority 100; policy accept;",
        *gateway_leaving_rules(translation, bridge.name),
    )


def gateway_leaving_rules(translation: Translation, port: str) -> tuple[str, str]:
    """Masquerade marked packets that enter by ``port``, and pods' packets to the world."""
    kept = ", ".join(translation.not_masqueraded)
    return (
        f'oifname "{port}" meta mark and {MASQUERADE_MARK:#x} != 0 masquerade fully-random',
        f"ip saddr {{ {kept} }} ip daddr != {{ {kept} }} masquerade fully-random",
    )


def _gateway_rules_external(port: _Port, translation: Translation) -> Iterator[str]:
    """DNAT to the Service's address, masqueraded; with policy Local, straight to local backends.

    As with kube-proxy, the policy does not apply to the node and its own pods.
    """
    if port.service.outside == "local":
        own = f"ip saddr != {translation.local_cidr} fib saddr type != local"
        for protocol in port.protocols if port.local else ():
            yield f"{own} meta l4proto {protocol} {_random_dnat(port)}"
        if not port.local:
            yield f"{own} return"
    yield f"meta mark set meta mark or {MASQUERADE_MARK:#x}"
    for protocol in port.protocols:
        yield f"meta l4proto {protocol} dnat to {port.service.address}:{port.port.port}"


def _random_dnat(port: _Port) -> str:
    if len(port.local) == 1:
        return f"dnat to {port.targets(port.local[0])}"
    choice = ", ".join(
        f"{number} : {backend.address} . {port.port.target_port}"
        for number, backend in enumerate(port.local)
    )
    return f"dnat ip to numgen random mod {len(port.local)} map {{ {choice} }}"
