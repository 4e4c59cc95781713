"""What a machine translates and loses, as nftables text in the shape of kube-proxy's. Pure.

Two tables: ``kube-proxy`` holds Services and masquerade, ``host-limits`` what the machine's own
packets do not reach. What becomes of each Service is in :mod:`lab.providers.netns.service_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, collapse_addresses

from lab.providers.netns import gateway_rules
from lab.providers.netns.service_rules import (
    MARK,
    MASQUERADE_MARK,
    REJECT,
    Rules,
    chain,
    collection,
    service_rules,
)
from lab.topology.intent import Drop, MachineIntent, Translation

SERVICE_TABLE = "kube-proxy"
LIMIT_TABLE = "host-limits"
LEAVING = "nat-postrouting"
"""The chain in which packets get the node's address when they leave."""
_MULTICAST = "224.0.0.0/4"
_BY_ADDRESS = "ipv4_addr . inet_proto . inet_service"
_BY_PORT = "inet_proto . inet_service"


def ruleset(machine: MachineIntent) -> str:
    """The nftables script of a machine; empty where nothing is translated or lost.

    Loading it again replaces all rules in one transaction. (``delete table`` would too, but
    makes the kernel wait 14 ms for a table that is not there.)
    """
    lines = [line for _, lines in _tables(machine) for line in lines]
    lines += [line for table in gateway_rules.tables(machine) for line in table]
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
    """From the hooks to the Services' chains, and what is done with packets that none takes."""
    by_address = "ip daddr . meta l4proto . th dport"
    by_port = "meta l4proto . th dport"
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
    """The rules of the chain :data:`LEAVING`: Services' packets first, then all that leave."""
    if translation.local_cidr is None:
        return ("jump masquerading",)
    inside = _prefixes((*translation.not_masqueraded, _MULTICAST))
    leaves = f"ip saddr {translation.local_cidr} ip daddr != {inside} masquerade fully-random"
    return ("jump masquerading", leaves)


def _limits(drops: tuple[Drop, ...]) -> Iterator[str]:
    """After connection tracking, so that replies pass; before DNAT, as the sender wrote it."""
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
    """A set of prefixes; overlapping and adjoining ones joined, which nftables demands."""
    joined = collapse_addresses(IPv4Network(text) for text in texts)
    return "{ " + ", ".join(str(prefix) for prefix in joined) + " }"
