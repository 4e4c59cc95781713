"""Random faults of routes, addresses, neighbours, links, settings, files and processes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from fault_primitives import RESTART, Make, RandomFault, Site, saved

from lab.topology.routing import bare


def policy_route(site: Site) -> RandomFault:
    """A rule that sends a flow to another table or ends it; or the rule of ``main`` is gone."""
    table, rng = site.rng.randrange(70, 90), site.rng
    kind = rng.choice(("blackhole", "unreachable", "prohibit"))
    if rng.random() < 0.1:
        return site.fault(
            "rule 32766", "ip rule delete priority 32766",
            "ip rule add from all priority 32766 lookup main", hook="route",
        )  # fmt: skip
    own = f"from {bare(site.pod.address)}" if site.pod else "from 10.0.0.0/8"
    select = rng.choice(
        ("from all", "from all ipproto udp", "from all ipproto tcp", own, "from all fwmark 0x77",
         "from all dport 8080", "from all sport 8080", "from all iif eth0", "from all uidrange 0-0",
         f"from all to {bare(site.other_pod().address)}", "not from 192.0.2.0/24",
         "from all oif eth0" if site.pod else "from all iif cni0")
    )  # fmt: skip
    hook = "output" if site.pod else "prerouting"
    marks = (
        f" && nft 'table ip mark{table} {{ chain c {{ type filter hook {hook} priority -150; "
        "meta mark set 0x77; }; }'"
        if "fwmark" in select
        else ""
    )
    unmark = f"; nft delete table ip mark{table}" if marks else ""
    names = f"rule {table}|table {table}|mark{table}"
    put = f"ip rule add {select} priority {table}"
    if rng.random() < 0.3:
        return site.fault(
            names, f"{put} {kind}{marks}", f"ip rule delete priority {table}{unmark}", hook="route"
        )
    route = rng.choice((f"{kind} default", f"{kind} default", "default dev lo"))
    return site.fault(
        names, f"ip route add {route} table {table} && {put} lookup {table}{marks}",
        f"ip rule delete priority {table}; ip route flush table {table}{unmark}",
        hook="route",
    )  # fmt: skip


def route(site: Site) -> RandomFault | None:
    """A route too many, to one address or some."""
    rng, target = site.rng, bare(site.other_pod().address)
    wide = target if rng.random() < 0.5 else f"{target.rsplit('.', 1)[0]}.0/25"
    shown = re.search(r"(via \S+ )?dev (\S+)", site.read(f"ip route get {target}"))
    if shown is None:
        return None
    via, device = shown[1] or "", shown[2]
    number = rng.randrange(700, 800)
    choice = rng.choice(
        (
            f"blackhole {wide}", f"unreachable {wide}", f"prohibit {wide}", f"{wide} dev lo",
            f"{target} {via}dev {device} mtu lock {rng.choice((100, 600))}",
            f"{target} {via}dev {device} src 127.0.0.1",
            f"{wide} via 192.0.2.77 dev {device} onlink",
            f"{wide} nexthop {via}dev {device} onlink nexthop via 192.0.2.78 dev {device} onlink",
            f"local {wide} dev lo table local",
            f"broadcast {target} dev {device} table local",
            f"{wide} nhid {number}",
        )
    )  # fmt: skip
    hop = f"ip nexthop add id {number} blackhole && " if "nhid" in choice else ""
    undo = f"ip route delete {choice}" + (f"; ip nexthop delete id {number}" if hop else "")
    later = any(word in choice for word in ("onlink", "src", "broadcast"))
    named = f"{wide}|{target}" + (f"|nexthop {number}" if hop else "")
    return site.fault(named, f"{hop}ip route add {choice}", undo, hook="route", later=later)


def own_route(site: Site) -> RandomFault | None:
    """One of the lab's routes that is gone or different."""
    lines = [
        line.strip()
        for line in site.read("ip route show").splitlines()
        if "proto kernel" not in line and "nexthop" not in line and "proto bird" not in line
    ]
    if not lines:
        return None
    line = site.rng.choice(lines)
    prefix = line.split()[0]
    change = site.rng.choice(("gone", "mtu", "via", "lo", "blackhole"))
    device = re.search(r"dev (\S+)", line)
    if device is None:
        return None
    do = {
        "gone": f"ip route delete {line}",
        "mtu": f"ip route replace {line} mtu lock 100",
        "via": f"ip route replace {prefix} via 192.0.2.79 dev {device[1]} onlink",
        "lo": f"ip route replace {prefix} dev lo",
        "blackhole": f"ip route delete {line} && ip route add blackhole {prefix}",
    }[change]
    undo = f"ip route delete {prefix}; ip route add {line}"
    return site.fault(
        f"{prefix}|way out" + ("|route to" if prefix == "default" else ""), do, undo,
        hook="route",
        later=change in {"via", "lo"} or (change == "gone" and prefix != "default"),
    )  # fmt: skip


def restoring(site: Site, device: str) -> tuple[str, str]:
    """Commands that save what the kernel drops with a device or its addresses, and restore it."""
    routes, neighbours, proxies = (
        saved(site, name) for name in ("routes", "neighbours", "proxies")
    )
    shown = f"ip -4 route show dev {device} | grep -v 'proto bird\\|proto kernel' | grep"
    save = (
        f"{{ {shown} -v via; {shown} via; }} > {routes}; "  # next hops after the routes to them
        f"ip -4 neighbour show dev {device} nud permanent > {neighbours}; "
        f"ip -4 neighbour show proxy dev {device} > {proxies}"
    )
    restore = (
        f"while read r; do ip route replace $r dev {device}; done < {routes}; "
        f"while read a l m s; do ip neighbour replace $a dev {device} $l $m nud permanent; "
        f"done < {neighbours}; "
        f"while read a s; do ip neighbour add proxy $a dev {device}; done < {proxies}"
    )
    return save, restore


def own_address(site: Site) -> RandomFault | None:
    """One of the lab's addresses that is gone, with the routes that the kernel drops with it."""
    device = site.rng.choice(site.devices())
    shown = re.search(r"inet (\S+)", site.read(f"ip -4 -o address show dev {device}"))
    if shown is None or site.kubernetes:
        return None
    save, restore = restoring(site, device)
    own = f"{shown[1]} dev {device}"
    return site.fault(
        f"{device}|pod {site.place}", f"{save}; ip address delete {own}",
        f"ip address add {own}; {restore}",
    )  # fmt: skip


def address(site: Site) -> RandomFault | None:
    """An address of another one, or a device with a network that is in use elsewhere."""
    rng, target = site.rng, bare(site.other_pod().address)
    if rng.random() < 0.5:
        device = rng.choice(("lo", "eth0"))
        return site.fault(
            f"{target}/32", f"ip address add {target}/32 dev {device}",
            f"ip address delete {target}/32 dev {device}",
        )  # fmt: skip
    network = f"{target.rsplit('.', 1)[0]}.250/25"
    name = f"stray{rng.randrange(10)}"
    return site.fault(
        name, f"ip link add {name} type bridge && ip address add {network} dev {name} && "
        f"ip link set dev {name} up", f"ip link delete {name}", hook="route",
    )  # fmt: skip


def netmask(site: Site) -> RandomFault | None:
    """A pod's address with another netmask."""
    shown = site.read("ip -4 -oneline address show dev eth0; ip route show default")
    match = re.search(r"inet (\d+\.\d+\.\d+\.\d+)/(\d+)", shown)
    way = re.search(r"default .*", shown)
    if site.pod is None or not match or not way or match[2] == "32":
        return None
    wrong = site.rng.choice((8, 12, 30))
    new, old = f"{match[1]}/{wrong}", f"{match[1]}/{match[2]}"
    again = f"ip route replace {way[0].strip()} onlink"
    plain = f"ip route replace {way[0].strip()}"
    change = "ip address add {} brd + dev eth0; ip address delete {} dev eth0; {}"
    return site.fault(
        f"{new}|{old}", change.format(new, old, again),
        change.format(old, new, plain).replace(" brd +", ""),
    )  # fmt: skip


_OF_PODS = """
ip_default_ttl=1 ip_local_port_range=8080_8080 conf/all/arp_ignore=8 conf/eth0/arp_ignore=8
conf/eth0/disable_policy=1 conf/all/rp_filter=1 neigh/eth0/mcast_solicit=0 icmp_echo_ignore_all=1
tcp_rmem=256_256_256 tcp_wmem=1_1_1 ipfrag_high_thresh=0 tcp_syn_retries=1 tcp_min_snd_mss=65535
tcp_base_mss=8 ip_no_pmtu_disc=3 tcp_window_scaling=0 ip_unprivileged_port_start=9000
conf/all/drop_unicast_in_l2_multicast=1 neigh/eth0/unres_qlen_bytes=0 conf/eth0/arp_announce=2
ip_local_reserved_ports=8080 tcp_syncookies=2 tcp_max_syn_backlog=0 tcp_mtu_probing=2 tcp_ecn=1
conf/eth0/accept_local=1 ipfrag_time=0 tcp_notsent_lowat=0 conf/eth0/route_localnet=1
conf/lo/arp_ignore=8 tcp_fastopen=0 ip_nonlocal_bind=1 udp_rmem_min=1 tcp_abort_on_overflow=1
"""
_OF_NODES = """
ip_default_ttl=1 conf/all/rp_filter=1 conf/all/forwarding=0 conf/all/route_localnet=0 ip_forward=0
icmp_echo_ignore_all=1 conf/all/arp_ignore=8 conf/eth0/arp_ignore=8 conf/eth0/forwarding=0
conf/cni0/forwarding=0 conf/all/arp_filter=1 ipfrag_high_thresh=0 ipfrag_max_dist=0 ipfrag_time=0
conf/cni0/rp_filter=1 conf/eth0/rp_filter=2 conf/all/proxy_arp=1 conf/cni0/proxy_arp=1
conf/eth0/proxy_arp=1 neigh/cni0/mcast_solicit=0 neigh/eth0/mcast_solicit=0 conf/all/rp_filter=2
conf/cni0/arp_ignore=8 conf/eth0/disable_policy=1 conf/all/accept_local=0 conf/all/src_valid_mark=1
ip_forward_use_pmtu=1 conf/all/bc_forwarding=1 neigh/cni0/unres_qlen_bytes=0 ip_dynaddr=1
../netfilter/nf_conntrack_udp_timeout=0 ../netfilter/nf_conntrack_tcp_loose=0
../netfilter/nf_conntrack_tcp_timeout_syn_sent=0 ../netfilter/nf_conntrack_checksum=0
../bridge/bridge-nf-call-iptables=0 ../netfilter/nf_conntrack_max=1
"""


def setting(site: Site) -> RandomFault:
    """A sysctl of the network namespace."""
    words = (_OF_PODS if site.pod else _OF_NODES).split()
    key, _, value = site.rng.choice(words).partition("=")
    path = f"/proc/sys/net/ipv4/{key}"
    kept = saved(site, key.replace("..", ""))
    value = value.replace("_", " ")
    return site.fault(
        f"{key.rpartition('/')[2].removesuffix('ing')}|ip_forward",
        f"cat {path} > {kept} && echo '{value}' > {path}", f"cat {kept} > {path}",
        later=any(part in key for part in ("ip_default_ttl", "conntrack", "bridge-nf")),
    )  # fmt: skip


def port(site: Site) -> RandomFault | None:
    """A flag of a bridge's port, or its bridge."""
    if site.pod or site.machine.bridge is None or not site.machine.pods:
        return None
    device = site.rng.choice(site.machine.pods).port
    hairpin = " && bridge link set dev {} hairpin on" * (
        "hairpin on" in site.read(f"ip -details link show dev {device}")
    )
    flag, back = site.rng.choice(
        (
            ("type bridge_slave isolated on", "type bridge_slave isolated off"),
            ("type bridge_slave state 4", "type bridge_slave state 3"),
            ("type bridge_slave state 0", "type bridge_slave state 3"),
            (
                "type bridge_slave learning off flood off",
                "type bridge_slave learning on flood on",
            ),
            ("type bridge_slave bcast_flood off", "type bridge_slave bcast_flood on"),
            ("type bridge_slave neigh_suppress on", "type bridge_slave neigh_suppress off"),
            (
                "type bridge_slave locked on learning off",
                "type bridge_slave locked off learning on",
            ),
            ("nomaster", f"master {site.machine.bridge.name}{hairpin.format(device)}"),
            ("type bridge_slave hairpin off", f"type bridge_slave hairpin on{hairpin and ''}"),
        )
    )
    if "hairpin off" in flag and not hairpin:
        return None
    put = f"ip link set dev {device}"
    return site.fault(device, f"{put} {flag}", f"{put} {back}")


def bridge(site: Site) -> RandomFault | None:
    """An attribute of the bridge itself, or the VLAN of one of its ports."""
    if site.pod or site.machine.bridge is None or not site.machine.pods:
        return None
    name, device = site.machine.bridge.name, site.rng.choice(site.machine.pods).port
    put = f"ip link set dev {name} type bridge"
    do, undo = site.rng.choice(
        (
            ("stp_state 1 forward_delay 3000", "stp_state 0 forward_delay 1500"),
            ("vlan_filtering 1 vlan_default_pvid 0", "vlan_filtering 0 vlan_default_pvid 1"),
            (
                f"vlan_filtering 1 && bridge vlan delete dev {device} vid 1",
                f"vlan_filtering 0 && bridge vlan add dev {device} vid 1 pvid untagged",
            ),
            ("fdb_max_learned 1", "fdb_max_learned 0"),
        )
    )
    flush = f"; bridge fdb flush dev {name} dynamic" if "learned" in do else ""
    return site.fault(f"{name}|{device}", f"{put} {do}{flush}", f"{put} {undo}")


def link(site: Site) -> RandomFault | None:
    """An attribute of a link."""
    machine = site.machine
    device = site.rng.choice(site.devices())
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
            (f"{put} multicast off", f"{put} multicast on"),
        )
    )
    if device == "eth0" and not site.pod and "address" in do:
        return None  # the fabric's own entries would not come back
    if (
        site.kubernetes
        and do.endswith(" down")
        and device not in {pod.port for pod in machine.pods}
    ):
        return None  # this removes its routes, too
    if site.kubernetes and "address" in do and machine.tunnel and device == machine.tunnel.name:
        return None  # and this its neighbours, which flannel does not put back
    save, restore = restoring(site, device)
    do, undo = f"{save}; {do}", f"{undo}; {restore}"
    # a device without ARP sends to its own MAC
    return site.fault(f"{device}|arp|mtu|MTU|MAC", do, undo, later=do.endswith("arp off"))


def tunnel(site: Site) -> RandomFault | None:
    """A parameter of a VXLAN device."""
    made = site.machine.tunnel
    shown = site.read("ip -details link show type vxlan")
    if site.pod or made is None or not (match := re.search(r"vxlan id (\d+) .*?dev (\S+)", shown)):
        return None
    own = re.search(r" local (\S+)", shown)
    put = f"ip link set dev {made.name} type vxlan id {match[1]}"
    what, back = site.rng.choice(
        (
            ("dev lo", f"dev {match[2]}"), ("ttl 1", "ttl auto"), ("df set", "df unset"),
            ("local 192.0.2.9", f"local {own[1]}" if own else "ttl auto"),
            ("tos 0x10", "tos 0"), ("udpcsum", "noudpcsum"),
        )
    )  # fmt: skip
    return site.fault(made.name, f"{put} {what}", f"{put} {back}")


def neighbour(site: Site) -> RandomFault | None:
    """A wrong permanent neighbour entry, for the gateway or for a pod of the machine."""
    if site.pod:
        match = re.search(r"via (\S+) dev (\S+)", site.read("ip route show default"))
        if not match:
            return None
        address, device = match[1], match[2]
    else:
        if site.machine.bridge is None or not site.machine.pods:
            return None
        device = site.machine.bridge.name
        address = bare(site.rng.choice(site.machine.pods).address)
    at = f"{address} dev {device}"
    if site.read(f"ip neighbour show nud permanent {at}"):
        return None
    return site.fault(
        f"neighbour {address}", f"ip neighbour replace {at} lladdr 02:00:00:00:00:99 nud permanent",
        f"ip neighbour delete {at}", later=True,
    )  # fmt: skip


def own_neighbour(site: Site) -> RandomFault | None:
    """One of the lab's own entries, which is gone or has another MAC."""
    lines = [
        line
        for line in site.read("ip -4 neighbour show nud permanent").splitlines()
        if "lladdr" in line
    ]
    if not lines or site.kubernetes:
        return None
    words = site.rng.choice(lines).split()
    at = f"{words[0]} dev {words[2]}"
    undo = f"ip neighbour replace {at} lladdr {words[4]} nud permanent"
    do = site.rng.choice(
        (
            f"ip neighbour delete {at}",
            f"ip neighbour replace {at} lladdr 02:00:00:00:00:98 nud permanent",
        )
    )
    return site.fault(f"neighbour {words[0]}", do, undo, later=True)


def forwarding(site: Site) -> RandomFault | None:
    """An entry of a bridge or of a tunnel that leads elsewhere."""
    machine, rng = site.machine, site.rng
    if site.pod:
        return None
    if machine.tunnel and rng.random() < 0.5:
        name = machine.tunnel.name
        lines = [
            line
            for line in site.read(f"bridge fdb show dev {name}").splitlines()
            if " dst " in line
        ]
        if not lines or site.kubernetes:
            return None
        mac, to = re.search(r"^(\S+) .*dst (\S+)", rng.choice(lines)).groups()  # type: ignore[union-attr]
        put = f"bridge fdb replace {mac} dev {name} self permanent dst"
        do = rng.choice((f"{put} 192.0.2.66", f"bridge fdb delete {mac} dev {name} dst {to}"))
        return site.fault(mac, do, f"{put} {to}", later=True)
    if machine.bridge is None or len(machine.pods) < 2:
        return None
    one, other = rng.sample(machine.pods, 2)
    entry = f"{one.mac} dev {other.port} master"
    # the kernel moves it to where its packets come from
    back = [f"bridge fdb delete {one.mac} dev {each.port} master" for each in machine.pods]
    return site.fault(
        f"forwarding entry {one.mac}", f"bridge fdb replace {entry} static", "; ".join(back),
        later=True,
    )  # fmt: skip


def resolver(site: Site) -> RandomFault | None:
    """Another resolver file in a pod."""
    if site.pod is None or not site.pod.resolver or (site.kubernetes and site.pod.role == "dns"):
        return None
    path = "/etc/resolv.conf"
    if site.kubernetes:
        carried = f"grep -lzsx HYBRIDLAB_POD={site.pod.name} /proc/[0-9]*/environ"
        path = f"$({carried} | tail -1 | sed s/environ/root/){path}"
    change = site.rng.choice(
        ("s/nameserver .*/nameserver 192.0.2.9/", "s/ndots:5/ndots:0/", "/search/d",
         "s/search .*/search example.org/", "/nameserver/d",
         "s/nameserver .*/nameserver 127.0.0.1/", "s/cluster.local/cluster.lan/g",
         "1i nameserver 192.0.2.8")
    )  # fmt: skip
    kept = saved(site, "resolver")
    return site.fault(
        "resolv|DNS server",
        f"cat {path} > {kept}; sed '{change}' {kept} > {path}",
        f"cat {kept} > {path}",
    )


def socket(site: Site) -> RandomFault | None:
    """A socket that is closed, with nobody or another program at its port afterwards."""
    if site.kubernetes:
        return None  # the kubelet starts the container again
    rng = site.rng
    number = rng.choice(re.findall(r":(\d+) ", site.read("ss -H -l -n -t")) or [""])
    if not number:
        return None
    gone = f"ss -K state listening sport = :{number} && ! ss -H -l -n -t | grep -q ':{number} '"
    if site.pod is None or rng.random() < 0.5:
        return site.fault(f":{number}|socket", gone, RESTART, hook="input")
    kept = saved(site, "pid")
    other = f"({sys.executable} -m http.server {number} > /dev/null 2>&1 & echo $! > {kept})"
    text = f"i=0; until ss -H -l -n -t | grep -q ':{number} ' || [ $i = 50 ]; do "
    text += "sleep 0.1; i=$((i+1)); done"
    return site.fault(
        f":{number}|socket", f"{gone} && {other} && {text}",
        f"kill $(cat {kept}); {RESTART}", hook="input",
    )  # fmt: skip


_OWN = """own=$(readlink /proc/self/ns/net)
for one in /proc/[0-9]*; do
    [ "$(readlink $one/ns/net)" = "$own" ] && echo "${one#/proc/} $(cat $one/comm)"
done"""


def process(site: Site) -> RandomFault | None:
    """A daemon that stands still."""
    matches = re.findall(r"(?m)^(\d+) (bird|keepalived|dnsmasq|haproxy|ov\S+)$", site.read(_OWN))
    if not matches or site.kubernetes or site.pod:
        return None
    number, name = site.rng.choice(matches)
    return site.fault(name, f"kill -STOP {number}", f"kill -CONT {number}", later=True)


NETWORKS: Sequence[Make] = (
    *(policy_route, policy_route, route, route, own_route, own_route, address, own_address),
    netmask,
    *(setting, setting, setting, setting, port, port, bridge, link, link, tunnel, neighbour),
    *(own_neighbour, forwarding, resolver, resolver, socket, process),
)
