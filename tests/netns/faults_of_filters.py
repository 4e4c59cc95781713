"""Random faults of what filters and changes packets: nftables, iptables, xfrm and queues."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fault_primitives import Make, RandomFault, Site, saved

from lab.topology.routing import bare

_SETS = """
set peers { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.0.0/16 }; };
set served { type ipv4_addr . inet_service; flags interval;
  elements = { 10.0.0.0/8 . 8080, 10.0.0.0/8 . 53 }; };
map verdicts { type ipv4_addr : verdict; flags interval;
  elements = { 10.0.0.0/8 : drop, 192.168.0.0/16 : drop }; };
quota spent { over 10 bytes; };
"""


def _verdict(site: Site, hook: str, protocol: str) -> str:
    if hook in {"prerouting", "postrouting", "ingress", "egress"}:
        return "drop"
    return site.rng.choice(
        ("drop", "drop", "counter drop", "reject", "reject with icmp type admin-prohibited",
         *(("reject with tcp reset",) if protocol == "tcp" else ()))
    )  # fmt: skip


def _match(site: Site, protocol: str, hook: str) -> str:
    rng, other = site.rng, bare(site.other_pod().address)
    return rng.choice(
        (
            f"meta l4proto {protocol}",
            f"{protocol} dport {{ 53, 8080, 4789 }}",
            f"{protocol} sport {{ 53, 8080 }}",
            f"ip length > {rng.choice((100, 500))}",
            "ip saddr @peers",
            f"ip daddr {other}",
            f"ip saddr {other}",
            "ip daddr . th dport @served",
            "ct state new",
            "ct state established",
            "ct direction reply",
            "ct direction original",
            "@th,16,16 8080",
            "fib daddr type local" if hook != "output" else "meta skuid 0",
            "meta length 100-70000",
            "tcp flags syn / syn,ack",
            "ip ttl 60-64",
            "ip frag-off & 0x4000 == 0x4000",
            "ip dscp 0 ip version 4",
            "jhash ip saddr . ip daddr mod 2 0",
            "meta pkttype host" if hook in {"input", "prerouting"} else "rt classid 0",
            "quota over 300 bytes",
            "quota name spent",
            "limit rate over 1/minute burst 2 packets",
            "ct count over 0",
        )
    )


def _first(site: Site, rule: str) -> str:
    """Whether the rule takes only requests."""
    there = "tcp flags" in rule or (site.pod and re.search(r"dport|@th|state new", rule))
    return "question" if there else ""


def table(site: Site) -> RandomFault:
    """A table that drops packets: in any hook, by a rule, another chain, a map or a policy."""
    rng = site.rng
    name = f"{rng.choice(('site', 'audit', 'zone'))}{rng.randrange(100)}"
    family, protocol = rng.choice(("ip", "inet")), rng.choice(("tcp", "udp"))
    hooks = ("input", "output") if site.pod else ("prerouting", "input", "forward", "postrouting")
    hook = rng.choice(hooks)
    rule = f"{_match(site, protocol, hook)} {_verdict(site, hook, protocol)}"
    policy, other = "accept", ""
    form = rng.randrange(8)
    if form == 0:
        rule, policy = "", "drop"
    elif form in {1, 2}:
        other = f"chain inner {{ {rule}; }};"
        rule = rng.choice(("jump inner", "ip version 4 goto inner"))
        rule = rng.choice((rule, "meta l4proto vmap { tcp : jump inner, udp : jump inner }"))
    elif form == 3:
        rule = rng.choice(
            ("meta l4proto vmap { tcp : drop, udp : drop }", "ip saddr vmap @verdicts",
             "ip daddr vmap @verdicts", "ct state vmap { new : drop, established : drop }")
        )  # fmt: skip
    script = (
        f"table {family} {name} {{ {_SETS} {other} chain c {{ type filter hook {hook} "
        f"priority {rng.choice((-310, -150, -5, 0, 50))}; policy {policy}; {rule}; }}; }}"
    ).replace("\n", " ")
    return site.fault(
        f"{family} {name}", f"nft '{script}'", f"nft delete table {family} {name}",
        hook=hook, way=_first(site, other + rule),
    )  # fmt: skip


def table_of_devices(site: Site) -> RandomFault | None:
    """A table of the family netdev, bridge or arp."""
    rng, name = site.rng, f"edge{site.rng.randrange(100)}"
    family = rng.choice(("netdev", "netdev", "bridge", "arp"))
    flush = ""
    if family == "netdev":
        device = rng.choice(site.devices())
        way = rng.choice(("ingress", "egress"))
        hook = f"{way} device {device}"
        rule = rng.choice(
            (
                f"{_match(site, rng.choice(('tcp', 'udp')), way)} drop",
                "meta protocol ip drop", "udp dport { 8080, 53, 4789 } drop", "fwd to lo",
                "meta l4proto { tcp, udp } fwd to lo", "ether type arp drop",
            )
        )  # fmt: skip
        if re.search(r"\bct |fib |rt |skuid", rule):
            return None  # not known yet at this hook
        flush = "; ip neighbour flush all" if "arp" in rule else ""
    elif family == "bridge":
        if site.pod or site.machine.bridge is None:
            return None
        hook = rng.choice(("prerouting", "input", "forward", "output", "postrouting"))
        rule = rng.choice(
            ("ip protocol tcp drop", "ip protocol udp drop", "ether type arp drop",
             f"ip daddr {bare(rng.choice(site.machine.pods).address)} drop",
             "meta protocol ip drop", "ip protocol vmap { udp : drop }", "ip length > 500 drop")
        )  # fmt: skip
        flush = "; ip neighbour flush all" if "arp" in rule else ""
    else:
        hook = rng.choice(("input", "output"))
        rule = rng.choice(("drop", "arp operation request drop", "arp operation reply drop"))
        flush = "; ip neighbour flush all"
    sets = _SETS if "@" in rule or "spent" in rule else ""
    script = (
        f"table {family} {name} {{ {sets} chain c {{ type filter hook {hook} "
        f"priority {rng.choice((-250, 0))}; {rule}; }}; }}"
    ).replace("\n", " ")
    return site.fault(
        f"{family} {name}", f"nft '{script}'{flush}", f"nft delete table {family} {name}"
    )


def older_of_bridges(site: Site) -> RandomFault | None:
    """A rule or policy by ebtables or arptables."""
    rng, tables = site.rng, site.read("nft list tables")
    if rng.random() < 0.5:
        do = f"arptables -A {rng.choice(('INPUT', 'OUTPUT'))} -j DROP; ip neighbour flush all"
        made = site.fault("arp filter", do, "nft delete table arp filter")
        return None if "arp filter" in tables else made
    if site.pod or site.machine.bridge is None or "bridge filter" in tables:
        return None
    chain = rng.choice(("FORWARD", "INPUT", "OUTPUT"))
    rule = f"-p IPv4 --ip-proto {rng.choice(('tcp', 'udp'))} -j DROP"
    do = rng.choice((f"ebtables -A {chain} {rule}", f"ebtables -P {chain} DROP"))
    return site.fault("bridge filter", do, "nft delete table bridge filter")


def iptables(site: Site) -> RandomFault | None:
    """A rule or policy by iptables, with nftables below it or not."""
    if site.kubernetes:
        return None  # its nodes have no iptables
    rng, tool = site.rng, site.rng.choice(("iptables-legacy", "iptables-nft"))
    chain = rng.choice(("INPUT", "OUTPUT") if site.pod else ("INPUT", "FORWARD"))
    protocol = rng.choice(("tcp", "udp"))
    match = rng.choice(
        (f"-p {protocol}", f"-p {protocol} --dport 8080", f"-p {protocol} -m length --length 200:",
         f"-s {bare(site.other_pod().address)}", "-m conntrack --ctstate ESTABLISHED",
         "-m set --match-set friends src")
    )  # fmt: skip
    target = rng.choice(("DROP", "REJECT"))
    flag = f"-I {chain} {match} -j {target}"
    make, unmake, way = "", "", _first(site, match.replace("--", " "))
    if "--match-set" in match:
        make = "ipset create friends hash:net && ipset add friends 10.0.0.0/8 && "
        # when its rule is gone; what explain advised may have destroyed it
        unmake = "; while ipset list -n friends && ! ipset destroy friends; do sleep 0.1; done"
    elif rng.random() < 0.2:
        flag, way = f"-P {chain} DROP", ""
    if tool == "iptables-legacy":
        is_policy = flag.startswith("-P")
        undo = flag.replace("DROP", "ACCEPT") if is_policy else flag.replace("-I", "-D", 1)
        return site.fault(
            f"iptables {chain}|iptables filter {chain}|iptables table filter",
            f"{make}{tool} {flag}",
            f"{tool} {undo}{unmake}", hook=chain.lower(), way=way,
        )  # fmt: skip
    if "ip filter" in site.read("nft list tables"):
        return None
    return site.fault(
        "ip filter|iptables table filter", f"{make}{tool} {flag}",
        f"nft delete table ip filter{unmake}",
        hook=chain.lower(), way=way,
    )  # fmt: skip


def changing_table(site: Site) -> RandomFault:
    """A table that changes packets without dropping them."""
    rng, name = site.rng, f"nat{site.rng.randrange(100)}"
    inside = "output" if site.pod else "prerouting"
    other = bare(site.other_pod().address)
    hook, rule = rng.choice(
        (
            ("nat hook postrouting priority 90", "masquerade"),
            ("nat hook postrouting priority 90", f"snat to {other}"),
            ("nat hook postrouting priority 90", "snat to 192.0.2.77"),
            (f"nat hook {inside} priority -110", "tcp dport 8080 dnat to 192.0.2.78"),
            (f"nat hook {inside} priority -110", f"tcp dport 8080 dnat to {other}:8081"),
            (f"nat hook {inside} priority -110", "udp dport { 53, 8080 } redirect to :9"),
            (f"filter hook {inside} priority -300", "meta l4proto { tcp, udp } notrack"),
            (f"filter hook {inside} priority -300", "meta l4proto { tcp, udp } ct zone set 7"),
            ("filter hook postrouting priority 300", "ip ttl set 1"),
            ("filter hook postrouting priority 300", "tcp flags syn tcp option maxseg set 8"),
            ("filter hook postrouting priority -50", "udp dport { 53, 8080 } udp dport set 9"),
            ("filter hook postrouting priority -50", "tcp dport 8080 ip daddr set 192.0.2.79"),
            ("filter hook postrouting priority 50", "ip protocol udp ip saddr set 192.0.2.80"),
        )
    )
    script = f"table ip {name} {{ chain c {{ type {hook}; {rule}; }}; }}"
    return site.fault(f"ip {name}", f"nft '{script}'", f"nft delete table ip {name}", later=True)


_OF_IPTABLES = (" nat", " filter", " mangle")
"""Tables whose rules nft cannot load again."""


def own_rule(site: Site) -> RandomFault | None:
    """A change of one of the lab's rules."""
    chains: list[tuple[str, str, str, str]] = []
    table = chain = ""
    for line in site.read("nft -a list ruleset").splitlines():
        if match := re.match(r"table (\S+ \S+) \{", line):
            table = match[1]
        elif match := re.match(r"\tchain (\S+) \{", line):
            chain = match[1]
        elif chain and (match := re.match(r"\t\t(.+) # handle (\d+)$", line)):
            if not table.endswith(_OF_IPTABLES):
                chains.append((table, chain, match[1], match[2]))
        elif line == "\t}":
            chain = ""
    if not chains:
        return None
    table, chain, rule, handle = site.rng.choice(chains)
    at = f"{table} {chain}"
    choice = site.rng.choice(("delete", "drop", "change", "last", "limit"))
    quoted = rule.replace("'", "'\\''")
    changed = re.sub(r"(accept|return|masquerade.*|dnat .*|(?:goto|jump) \S+)$", "drop", quoted)
    do = {
        "delete": f"nft delete rule {at} handle {handle}",
        "drop": f"nft insert rule {at} meta l4proto {site.rng.choice(('tcp', 'udp'))} drop",
        "change": f"nft replace rule {at} handle {handle} '{changed}'",
        "last": f"nft add rule {at} '{quoted}' && nft delete rule {at} handle {handle}",
        "limit": f"nft insert rule {at} limit rate over 1/minute burst 1 packets drop",
    }[choice]
    names = {chain, *re.findall(r"\d+\.\d+\.\d+\.\d+", rule)}
    names |= {*re.findall(r"(?:goto|jump) (\S+)", rule)}
    return _of_table(site, table, "|".join(names), do)


def _of_table(site: Site, table: str, names: str, do: str) -> RandomFault:
    """A change in one of the lab's tables, which is loaded again afterwards."""
    kept = saved(site, "nft")
    return site.fault(
        names, f"nft list table {table} > {kept}; {do}",
        f"(echo delete table {table}; cat {kept}) | nft -f -", later=True,
    )  # fmt: skip


def own_element(site: Site) -> RandomFault | None:
    """An element of one of the lab's maps and sets that is gone or different, or a whole table."""
    rng = site.rng
    found: list[tuple[str, str, str, str]] = []
    for table, body in re.findall(
        r"(?ms)^table (\S+ \S+) \{\n(.*?)^\}", site.read("nft list ruleset")
    ):
        if table.endswith(_OF_IPTABLES):
            continue
        for kind, name, inner in re.findall(r"(?ms)^\t(map|set) (\S+) \{\n(.*?)^\t\}", body):
            listed = re.search(r"elements = \{(.*)\}", inner, re.DOTALL)
            words = listed[1].split(",") if listed else ()
            found += [(table, kind, name, " ".join(one.split())) for one in words]
    if not found:
        return None
    table, kind, name, element = rng.choice(found)
    key, _, value = element.partition(" : ")
    change = rng.choice(("gone", "other", "dormant"))
    do = f"nft delete element {table} {name} '{{ {element} }}'"
    names = {name, *re.findall(r"\d+\.\d+\.\d+\.\d+|\d{4,}", element)}
    if change == "dormant":
        return _of_table(
            site, table, f"table {table}", f"nft add table {table} '{{ flags dormant; }}'"
        )
    if change == "other" and kind == "map":
        values = {one[3].partition(" : ")[2] for one in found if one[2] == name} - {value}
        other = rng.choice(sorted(values | ({"drop"} if "goto" in value else set())) or [value])
        do += f" && nft add element {table} {name} '{{ {key} : {other} }}'"
    return _of_table(site, table, "|".join(names), do)


def own_policy(site: Site) -> RandomFault | None:
    """The policy of one of the lab's chains."""
    chains = re.findall(
        r"(?ms)^table (\S+ \S+) \{|^\tchain (\S+) \{\n\t\ttype filter hook (\S+)",
        site.read("nft list ruleset"),
    )
    table, there = "", []
    for of_table, chain, hook in chains:
        table = of_table or table
        if chain and not table.endswith(_OF_IPTABLES):
            there.append((table, chain, hook))
    if not there:
        return None
    table, chain, hook = site.rng.choice(there)
    put = f"nft chain {table} {chain}"
    return site.fault(
        chain, f"{put} '{{ policy drop; }}'", f"{put} '{{ policy accept; }}'", hook=hook
    )


def xfrm(site: Site) -> RandomFault:
    """A policy of xfrm that blocks, or that wants what there is no state for."""
    rng = site.rng
    way = rng.choice(("in", "out") if site.pod else ("in", "out", "fwd"))
    ends = rng.choice(("src 0.0.0.0/0 dst 0.0.0.0/0", "src 10.0.0.0/8 dst 10.0.0.0/8"))
    text = f"dir {way} {ends} proto {rng.choice(('tcp', 'udp'))}"
    how = rng.choice(
        ("action block", "action block", "tmpl src 0.0.0.0 dst 0.0.0.0 proto esp mode transport")
    )
    return site.fault(
        "xfrm policy", f"ip xfrm policy add {text} {how}", f"ip xfrm policy delete {text}",
        hook={"in": "input", "out": "output", "fwd": "forward"}[way] if site.pod else "route",
    )  # fmt: skip


def queue(site: Site) -> RandomFault | None:
    """A queue that keeps or drops packets."""
    device = site.rng.choice(site.devices())
    if f"dev {device} root" in site.read("tc qdisc show | grep -v noqueue"):
        return None
    add = f"tc qdisc add dev {device} root"
    choice = site.rng.choice(
        (
            f"{add} tbf rate 8bit burst 10 limit 10",
            f"{add} tbf rate 800bit burst 60 limit 100",
            f"{add} bfifo limit 1", f"{add} pfifo limit 0", f"{add} blackhole",
            (f"{add} handle 1: htb default 1 && tc class add dev {device} parent 1: "
            "classid 1:1 htb rate 8bit"),
            (f"{add} handle 1: htb && tc class add dev {device} parent 1: classid 1:2 htb "
            f"rate 8bit && tc filter add dev {device} parent 1: protocol ip "
            "u32 match ip protocol 17 0xff flowid 1:2"),
        )
    )  # fmt: skip
    return site.fault(f" of {device}|{device}", choice, f"tc qdisc delete dev {device} root")


FILTERS: Sequence[Make] = (
    *(table, table, table, table, table_of_devices, table_of_devices, iptables, iptables),
    *(
        changing_table,
        changing_table,
        own_rule,
        own_rule,
        own_element,
        own_policy,
        xfrm,
        older_of_bridges,
    ),
    *(queue, queue, older_of_bridges),
)
