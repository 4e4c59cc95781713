"""Random single faults, each one change at one place of a lab."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab.facts.questions import ENTER_POD
from lab.lifecycle.session import OpenLab
from lab.remote.shell import Completed
from lab.topology.intent import MachineIntent, Pod
from lab.topology.routing import bare

RESTART = "restart what answers"
"""Undoes a change of a socket, for which there is no command."""


@dataclass(frozen=True)
class RandomFault:
    """One change at one place, its undo, and the names that identify it."""

    place: str
    machine: str
    names: tuple[str, ...]
    """Parts of the object's name as tools print it; the explanation must have one of them."""
    do: str
    undo: str
    later: bool = False
    """Whether packets continue, changed, and are lost elsewhere."""
    hook: str = ""
    """Where it acts: a netfilter hook, or ``"route"``; empty for a device."""
    way: str = ""
    """``"question"`` if it acts only on that direction."""

    def __str__(self) -> str:
        return f"{self.place}: {self.do}"


def run_at(opened: OpenLab, place: str, command: str) -> Completed:
    """Run a command line in a machine or pod; with its node's programs in one of a cluster."""
    words: tuple[str, ...] = ("sh", "-c", command)
    nodes = {pod.name: one.name for one in opened.intent.machines for pod in one.pods}
    if opened.intent.kubernetes and place in nodes:
        words, place = (ENTER_POD, place, *words), nodes[place]
    machine = opened.provider.machine(opened.handle, opened.intent, place)
    return machine.run(words, Deadline(30))


@dataclass(frozen=True)
class Site:
    """A random place of a lab; ``pod`` is None for the machine itself."""

    opened: OpenLab
    rng: random.Random
    machine: MachineIntent
    pod: Pod | None

    @property
    def place(self) -> str:
        return self.pod.name if self.pod else self.machine.name

    def fault(  # noqa: PLR0913  a fault is all of these
        self,
        names: str,
        do: str,
        undo: str,
        *,
        later: bool = False,
        hook: str = "",
        way: str = "",
    ) -> RandomFault:
        """``names``: alternatives, separated by |."""
        ends = self.place, self.machine.name
        return RandomFault(*ends, tuple(names.split("|")), do, undo, later, hook, way)

    def read(self, command: str) -> str:
        return run_at(self.opened, self.place, command).stdout

    @property
    def kubernetes(self) -> bool:
        return self.opened.intent.kubernetes is not None

    def other_pod(self) -> Pod:
        pods = [one for each in self.opened.intent.machines for one in each.pods]
        return self.rng.choice([one for one in pods if one != self.pod])


Make = Callable[[Site], RandomFault | None]


def _saved(site: Site, path: str) -> str:
    return f"/run/saved-{site.place}-{path.replace('/', '-')}"


def _table(site: Site) -> RandomFault:
    rng = site.rng
    name = f"{rng.choice(('site', 'audit', 'zone'))}{rng.randrange(100)}"
    family = rng.choice(("ip", "inet"))
    hooks = ("input", "output") if site.pod else ("prerouting", "input", "forward", "postrouting")
    hook, verdict = rng.choice(hooks), rng.choice(("drop", "reject"))
    if hook in {"prerouting", "postrouting"}:
        verdict = "drop"
    rules = (
        f"meta l4proto {rng.choice(('tcp', 'udp'))} {verdict}",
        f"{rng.choice(('tcp', 'udp'))} dport {{ 53, 8080, 4789 }} {verdict}",
        f"ip length > {rng.choice((100, 500))} drop",
        f"ip saddr @peers {verdict}",
        f"ip daddr {bare(site.other_pod().address)} {verdict}",
        "meta l4proto vmap { tcp : drop, udp : drop }",
        "ct state new drop",
        "ct state established drop",
        "@th,16,16 8080 drop",
        "fib daddr type local drop",
        "meta length 100-70000 drop",
        "tcp flags syn / syn,ack drop",
        "",  # the chain's policy drops everything
    )
    rule = rng.choice(rules)
    policy = "accept" if rule else "drop"
    script = (
        f"table {family} {name} {{ set peers {{ type ipv4_addr; flags interval; "
        f"elements = {{ 10.0.0.0/8, 192.168.0.0/16 }}; }}; chain c {{ type filter hook {hook} "
        f"priority {rng.choice((-310, -150, -5, 0, 50))}; policy {policy}; {rule}; }}; }}"
    )
    first = "tcp flags" in rule or (site.pod and re.search("dport|@th|state new", rule))
    return site.fault(
        f"{family} {name}", f"nft '{script}'", f"nft delete table {family} {name}",
        hook=hook, way="question" if first else "",
    )  # fmt: skip


def _changing_table(site: Site) -> RandomFault:
    """A table that changes packets without dropping them."""
    rng, name = site.rng, f"nat{site.rng.randrange(100)}"
    inside = "output" if site.pod else "prerouting"
    hook, rule = rng.choice(
        (
            ("nat hook postrouting priority 90", "masquerade"),
            ("nat hook postrouting priority 90", f"snat to {bare(site.other_pod().address)}"),
            ("nat hook postrouting priority 90", "snat to 192.0.2.77"),
            (f"nat hook {inside} priority -110", "tcp dport 8080 dnat to 192.0.2.78"),
            (f"nat hook {inside} priority -110", "udp dport { 53, 8080 } redirect to :9"),
            (f"filter hook {inside} priority -300", "meta l4proto { tcp, udp } notrack"),
            ("filter hook postrouting priority 300", "ip ttl set 1"),
            ("filter hook postrouting priority 300", "tcp flags syn tcp option maxseg set 8"),
        )
    )
    script = f"table ip {name} {{ chain c {{ type {hook}; {rule}; }}; }}"
    return site.fault(f"ip {name}", f"nft '{script}'", f"nft delete table ip {name}", later=True)


_OF_IPTABLES = (" nat", " filter", " mangle")
"""Tables whose rules nft cannot load again."""


def _own_rule(site: Site) -> RandomFault | None:
    """A change of one of the lab's rules."""
    chains: list[tuple[str, str, str, str]] = []
    table = chain = ""
    for line in site.read("nft -a list ruleset").splitlines():
        if found := re.match(r"table (\S+ \S+) \{", line):
            table = found[1]
        elif found := re.match(r"\tchain (\S+) \{", line):
            chain = found[1]
        elif chain and (found := re.match(r"\t\t(.+) # handle (\d+)$", line)):
            if not table.endswith(_OF_IPTABLES):
                chains.append((table, chain, found[1], found[2]))
        elif line == "\t}":
            chain = ""
    if not chains:
        return None
    table, chain, rule, handle = site.rng.choice(chains)
    at = f"{table} {chain}"
    what = site.rng.choice(("delete", "drop", "change", "last"))
    quoted = rule.replace("'", "'\\''")
    changed = re.sub(r"(accept|return|masquerade.*|dnat .*|(?:goto|jump) \S+)$", "drop", quoted)
    do = {
        "delete": f"nft delete rule {at} handle {handle}",
        "drop": f"nft insert rule {at} meta l4proto {site.rng.choice(('tcp', 'udp'))} drop",
        "change": f"nft replace rule {at} handle {handle} '{changed}'",
        "last": f"nft add rule {at} '{quoted}' && nft delete rule {at} handle {handle}",
    }[what]
    saved = _saved(site, "nft")
    names = {chain, *re.findall(r"\d+\.\d+\.\d+\.\d+", rule)}
    names |= {*re.findall(r"(?:goto|jump) (\S+)", rule)}
    return site.fault(
        "|".join(names),
        f"nft list table {table} > {saved}; {do}",
        f"(echo delete table {table}; cat {saved}) | nft -f -",
        later=True,
    )


def _policy_route(site: Site) -> RandomFault:
    table, rng = site.rng.randrange(70, 90), site.rng
    kind = rng.choice(("blackhole", "unreachable", "prohibit"))
    own = f"from {bare(site.pod.address)}" if site.pod else "from 10.0.0.0/8"
    select = rng.choice(
        ("from all", "from all ipproto udp", "from all ipproto tcp", own, "from all fwmark 0x77",
         "from all dport 8080", "from all sport 8080")
    )  # fmt: skip
    hook = "output" if site.pod else "prerouting"
    marks = (
        f" && nft 'table ip mark{table} {{ chain c {{ type filter hook {hook} priority -150; "
        "meta mark set 0x77; }; }'"
        if "fwmark" in select
        else ""
    )
    unmark = f"; nft delete table ip mark{table}" if marks else ""
    return site.fault(
        f"rule {table}|table {table}|mark{table}",
        f"ip route add {kind} default table {table} && ip rule add {select} priority {table} "
        f"lookup {table}{marks}",
        f"ip rule delete priority {table}; ip route flush table {table}{unmark}",
        hook="route",
    )


def _route(site: Site) -> RandomFault:
    target = bare(site.other_pod().address)
    what = site.rng.choice(("blackhole", "unreachable", "prohibit", "throw"))
    wide = f"{target}/32" if site.rng.random() < 0.5 else f"{target.rsplit('.', 1)[0]}.0/25"
    if what == "throw":
        return site.fault(
            wide.removesuffix("/32"), f"ip route add {wide} dev lo", f"ip route delete {wide}",
            hook="route",
        )  # fmt: skip
    return site.fault(
        wide.removesuffix("/32"), f"ip route add {what} {wide}", f"ip route delete {what} {wide}",
        hook="route",
    )  # fmt: skip


def _default_route(site: Site) -> RandomFault | None:
    line = site.read("ip route show default").strip().partition("\n")[0].strip()
    if not line or site.pod is None:
        return None
    return site.fault(
        "default|way out|route to", "ip route delete default", f"ip route add {line}", hook="route"
    )


def _xfrm(site: Site) -> RandomFault:
    way = site.rng.choice(("in", "out") if site.pod else ("in", "out", "fwd"))
    what = f"dir {way} src 0.0.0.0/0 dst 0.0.0.0/0 proto {site.rng.choice(('tcp', 'udp'))}"
    return site.fault(
        "xfrm policy", f"ip xfrm policy add {what} action block", f"ip xfrm policy delete {what}",
        hook={"in": "input", "out": "output", "fwd": "forward"}[way] if site.pod else "route",
    )  # fmt: skip


def _setting(site: Site) -> RandomFault:
    of_pod = (
        ("ip_default_ttl", "1"), ("ip_local_port_range", "8080 8080"),
        ("conf/all/arp_ignore", "8"), ("conf/eth0/arp_ignore", "8"),
        ("conf/eth0/disable_policy", "1"), ("conf/all/rp_filter", "1"),
        ("neigh/eth0/mcast_solicit", "0"), ("icmp_echo_ignore_all", "1"),
        ("tcp_rmem", "256 256 256"), ("conf/all/drop_unicast_in_l2_multicast", "1"),
        ("ipfrag_high_thresh", "0"),
    )  # fmt: skip
    of_node = (
        ("ip_default_ttl", "1"), ("conf/all/rp_filter", "1"), ("conf/all/forwarding", "0"),
        ("conf/all/route_localnet", "0"), ("icmp_echo_ignore_all", "1"),
        ("conf/all/arp_ignore", "8"), ("conf/eth0/arp_ignore", "8"), ("conf/eth0/forwarding", "0"),
        ("conf/all/arp_filter", "1"), ("ipfrag_high_thresh", "0"),
    )  # fmt: skip
    key, value = site.rng.choice(of_pod if site.pod else of_node)
    path = f"/proc/sys/net/ipv4/{key}"
    saved = _saved(site, key)
    return site.fault(
        f"{key.rpartition('/')[2].removesuffix('ing')}|ip_forward",
        f"cat {path} > {saved} && echo '{value}' > {path}", f"cat {saved} > {path}",
        later=key == "ip_default_ttl",
    )  # fmt: skip


def _port(site: Site) -> RandomFault | None:
    if site.pod or site.machine.bridge is None or not site.machine.pods:
        return None
    port = site.rng.choice(site.machine.pods).port
    flag, back = site.rng.choice(
        (
            ("isolated on", "isolated off"),
            ("state 4", "state 3"),
            ("state 0", "state 3"),
            ("learning off flood off", "learning on flood on"),
            ("bcast_flood off", "bcast_flood on"),
            ("neigh_suppress on", "neigh_suppress off"),
            ("locked on learning off", "locked off learning on"),
        )
    )
    put = f"ip link set dev {port} type bridge_slave"
    return site.fault(port, f"{put} {flag}", f"{put} {back}")


def _queue(site: Site) -> RandomFault | None:
    if site.pod is None and not site.machine.pods:
        return None
    device = "eth0" if site.pod else site.rng.choice(site.machine.pods).port
    what = site.rng.choice(
        ("tbf rate 8bit burst 10 limit 10", "tbf rate 800bit burst 60 limit 100", "bfifo limit 1",
         "pfifo limit 0")
    )  # fmt: skip
    return site.fault(
        f"queue root of {device}|{device}", f"tc qdisc add dev {device} root {what}",
        f"tc qdisc delete dev {device} root",
    )  # fmt: skip


def _link(site: Site) -> RandomFault | None:
    """An attribute of a link."""
    machine = site.machine
    devices = ["eth0"] if site.pod else [one.port for one in machine.pods]
    devices += [] if site.pod or machine.bridge is None else [machine.bridge.name]
    devices += [] if site.pod or machine.tunnel is None else [machine.tunnel.name]
    device = site.rng.choice(devices)
    shown = re.search(r"mtu (\d+) .*link/ether (\S+)", site.read(f"ip -o link show dev {device}"))
    if shown is None:
        return None
    mtu, mac = shown.groups()
    put = f"ip link set dev {device}"
    do, undo = site.rng.choice(
        (
            (f"{put} mtu {site.rng.choice((100, 500, 1000))}", f"{put} mtu {mtu}"),
            (f"{put} arp off", f"{put} arp on"),
            (f"{put} address 02:00:00:00:00:77", f"{put} address {mac}"),
            (f"{put} down", f"{put} up"),
        )
    )
    if do.endswith("down") and device not in {one.port for one in machine.pods}:
        return None  # this would remove its routes, too
    if site.kubernetes and "address" in do and machine.tunnel and device == machine.tunnel.name:
        return None  # and this its neighbours, which flannel does not put back
    # a device without ARP sends to its own MAC
    return site.fault(f"{device}|arp|mtu|MTU|MAC", do, undo, later=do.endswith("arp off"))


def _tunnel(site: Site) -> RandomFault | None:
    tunnel = site.machine.tunnel
    shown = site.read("ip -details link show type vxlan")
    if (
        site.pod
        or tunnel is None
        or not (found := re.search(r"vxlan id (\d+) .*?dev (\S+)", shown))
    ):
        return None
    put = f"ip link set dev {tunnel.name} type vxlan id {found[1]}"
    what, back = site.rng.choice((("dev lo", f"dev {found[2]}"), ("ttl 1", "ttl auto")))
    return site.fault(tunnel.name, f"{put} {what}", f"{put} {back}")


def _neighbour(site: Site) -> RandomFault | None:
    """A wrong permanent neighbour entry, for the gateway or for a pod of the machine."""
    if site.pod:
        found = re.search(r"via (\S+) dev (\S+)", site.read("ip route show default"))
        if not found:
            return None
        address, device = found[1], found[2]
    else:
        if site.machine.bridge is None or not site.machine.pods:
            return None
        device = site.machine.bridge.name
        address = bare(site.rng.choice(site.machine.pods).address)
    at = f"{address} dev {device}"
    return site.fault(
        f"neighbour {address}", f"ip neighbour replace {at} lladdr 02:00:00:00:00:99 nud permanent",
        f"ip neighbour delete {at}", later=True,
    )  # fmt: skip


def _netmask(site: Site) -> RandomFault | None:
    shown = site.read("ip -4 -oneline address show dev eth0; ip route show default")
    found = re.search(r"inet (\d+\.\d+\.\d+\.\d+)/(\d+)", shown)
    way = re.search(r"default .*", shown)
    if site.pod is None or not found or not way or found[2] == "32":
        return None
    wrong = site.rng.choice((8, 12, 30))
    new, old = f"{found[1]}/{wrong}", f"{found[1]}/{found[2]}"
    again = f"ip route replace {way[0].strip()} onlink"
    plain = f"ip route replace {way[0].strip()}"
    change = "ip address add {} brd + dev eth0; ip address delete {} dev eth0; {}"
    return site.fault(
        f"{new}|{old}", change.format(new, old, again),
        change.format(old, new, plain).replace(" brd +", ""),
    )  # fmt: skip


def _resolver(site: Site) -> RandomFault | None:
    if site.pod is None or not site.pod.resolver or (site.kubernetes and site.pod.role == "dns"):
        return None
    path = "/etc/resolv.conf"
    if site.kubernetes:
        carried = f"grep -lzsx HYBRIDLAB_POD={site.pod.name} /proc/[0-9]*/environ"
        path = f"$({carried} | tail -1 | sed s/environ/root/){path}"
    change = site.rng.choice(
        ("s/nameserver .*/nameserver 192.0.2.9/", "s/ndots:5/ndots:0/", "/search/d",
         "s/search .*/search example.org/", "/nameserver/d")
    )  # fmt: skip
    saved = _saved(site, "resolver")
    return site.fault(
        "resolv|DNS server",
        f"cat {path} > {saved}; sed '{change}' {saved} > {path}",
        f"cat {saved} > {path}",
    )


def _socket(site: Site) -> RandomFault | None:
    """A listener that its program has lost; on a cluster one of CoreDNS, which goes on without."""
    if site.kubernetes:
        if site.pod is None or site.pod.role != "dns":
            return None
        port, options = "53", site.rng.choice(("-t", "-u"))
        kill = f"ss -K {options} {'state listening' * (options == '-t')} sport = :53"
        return site.fault(
            ":53|socket", f"{kill} && ! ss -H -l -n {options} | grep -q ':53 '",
            f"kill {_PROCESSES}", hook="input",
        )  # fmt: skip
    port = site.rng.choice(re.findall(r":(\d+) ", site.read("ss -H -l -n -t")) or [""])
    if not port:
        return None
    kill = f"ss -K state listening sport = :{port}"
    return site.fault(
        f":{port}|socket", f"{kill} && ! ss -H -l -n -t | grep -q ':{port} '", RESTART, hook="input"
    )


_PROCESSES = "$(ss -H -l -n -t -u -p | grep -o 'pid=[0-9]*' | sort -u | cut -d= -f2)"
"""The processes that listen in a pod."""
_TOOLS = "nsenter --mount --target $(pgrep -o -x kube-proxy) -- "
"""Nodes have no iptables; kube-proxy's container does."""


def _iptables(site: Site) -> RandomFault | None:
    """A rule of iptables, also one by an ipset, or a policy; or a rule of kube-proxy's removed."""
    if not site.kubernetes:
        return None
    rng, name = site.rng, f"list{site.rng.randrange(100)}"
    hooks = ("INPUT", "OUTPUT") if site.pod else ("INPUT", "FORWARD", "OUTPUT")
    hook = rng.choice(hooks)
    of_proxy = re.findall(
        r"^-A (KUBE-\S+) (.*-j \S+.*)$", site.read(f"{_TOOLS}iptables-save"), re.MULTILINE
    )
    if of_proxy and not site.pod and rng.random() < 0.5:
        chain, rule = rng.choice(of_proxy)
        table = "filter" if re.search(r"FIREWALL|FORWARD|PROXY", chain) else "nat"
        at = f"{_TOOLS}iptables --wait --table {table}"
        return site.fault(
            chain, f"{at} --delete {chain} {rule}", f"{at} --append {chain} {rule}", later=True
        )
    at = f"{_TOOLS}iptables --wait"
    end, target = rng.choice(("src", "dst")), bare(site.other_pod().address)
    do, undo = rng.choice(
        (
            (f"{at} --insert {hook} --protocol {rng.choice(('tcp', 'udp'))} --jump DROP", ""),
            (f"{at} --insert {hook} --destination {target} --jump REJECT", ""),
            (f"{at} --policy {hook} DROP", f"{at} --policy {hook} ACCEPT"),
            (f"{at} --table mangle --insert {hook} --source 10.0.0.0/8 --jump DROP", ""),
            (f"{at} --insert {hook} --match set --match-set {name} {end} --jump DROP", ""),
        )
    )  # fmt: skip
    if not undo:
        undo = do.replace("--insert", "--delete")
    if name in do:  # kube-proxy's image has no ipset, but Calico's
        do = f"ipset create {name} hash:net && ipset add {name} 10.0.0.0/8 && {do}"
        undo += f"; ipset destroy {name}"
        do, undo = (
            re.sub(r"ipset (?=create|add|destroy)", f"{_TOOLS}ipset ", text).replace(
                "kube-proxy", "calico-node"
            )
            for text in (do, undo)
        )
    return site.fault(f"{hook}|{name}", do, undo, hook=hook.lower())


def _stopped(site: Site) -> RandomFault | None:
    """A program that a signal has stopped: what answers in a pod, or a daemon of the machine."""
    if not site.kubernetes:
        return None
    if site.pod:
        return site.fault(
            "process|socket|listen", f"kill -STOP {_PROCESSES}", f"kill -CONT {_PROCESSES}",
            hook="input",
        )  # fmt: skip
    daemons = {*re.findall(r'"([^"]+)",pid=', site.read("ss -H -l -n -t -u -p"))}
    daemons |= {*site.read("ps -A -o comm=").split()} & {"flanneld", "bird", "calico-node"}
    daemon = site.rng.choice(sorted(daemons - {"systemd", "sshd"}))
    return site.fault(
        f"{daemon}|{daemon.removeprefix('kube-')}", f"pkill -STOP -x {daemon}",
        f"pkill -CONT -x {daemon}", hook="input",
    )  # fmt: skip


def _file(site: Site) -> RandomFault | None:
    """A file in a machine's /etc."""
    if not site.kubernetes or site.pod:
        return None
    path, change = site.rng.choice(
        (("resolv.conf", "s/nameserver .*/nameserver 192.0.2.9/"), ("hosts", "/127/d"),
         ("nsswitch.conf", "s/dns//"), ("cni/net.d/*list", "s/bridge/bridged/"))
    )  # fmt: skip
    path = site.read(f"readlink -f /etc/{path}").strip()
    saved = _saved(site, "etc")
    return site.fault(
        path.rpartition("/")[2], f"cat {path} > {saved}; sed '{change}' {saved} > {path}",
        f"cat {saved} > {path}",
    )  # fmt: skip


PRIMITIVES: Sequence[Make] = (
    *(_table, _table, _table, _changing_table, _changing_table, _own_rule, _own_rule),
    *(
        _policy_route,
        _policy_route,
        _route,
        _default_route,
        _xfrm,
        _setting,
        _setting,
        _port,
        _port,
    ),
    *(_queue, _link, _link, _tunnel, _neighbour, _netmask, _resolver, _socket),
    *(_iptables, _iptables, _stopped, _stopped, _file),
)


def compose(opened: OpenLab, rng: random.Random) -> RandomFault:
    """One fault at a random place of the lab."""
    there = [one for one in opened.intent.machines if one.pods]
    while True:
        machine = rng.choice(there)
        pod = rng.choice(machine.pods) if rng.random() < 0.5 else None
        found = rng.choice(PRIMITIVES)(Site(opened, rng, machine, pod))
        if found is not None:
            return found
