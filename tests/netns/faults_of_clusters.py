"""Random faults that only a cluster can have: of containers, their iptables, and files in /etc."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fault_primitives import Make, RandomFault, Site, saved

from lab.topology.routing import bare

_PROCESSES = "$(ss -H -l -n -t -u -p | grep -o 'pid=[0-9]*' | sort -u | cut -d= -f2)"
"""The processes that listen in a pod."""
_TOOLS = "nsenter --mount --target $(pgrep -o -x kube-proxy) -- "
"""Nodes have no iptables; kube-proxy's container does."""


def socket(site: Site) -> RandomFault | None:
    """A listener that CoreDNS has lost: it goes on without."""
    if site.pod is None or site.pod.role != "dns":
        return None
    options = site.rng.choice(("-t", "-u"))
    kill = f"ss -K {options} {'state listening' * (options == '-t')} sport = :53"
    return site.fault(
        ":53|socket", f"{kill} && ! ss -H -l -n {options} | grep -q ':53 '",
        f"kill {_PROCESSES}", hook="input",
    )  # fmt: skip


def iptables(site: Site) -> RandomFault | None:
    """A rule of iptables, also one by an ipset, or a policy; or a rule of kube-proxy's removed."""
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


def process(site: Site) -> RandomFault | None:
    """A program that a signal has stopped: what answers in a pod, or a daemon of the machine."""
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


def file(site: Site) -> RandomFault | None:
    """A file in a machine's /etc."""
    if site.pod:
        return None
    path, change = site.rng.choice(
        (("resolv.conf", "s/nameserver .*/nameserver 192.0.2.9/"), ("hosts", "/127/d"),
         ("nsswitch.conf", "s/dns//"), ("cni/net.d/*list", "s/bridge/bridged/"))
    )  # fmt: skip
    path = site.read(f"readlink -f /etc/{path}").strip()
    kept = saved(site, "etc")
    return site.fault(
        path.rpartition("/")[2], f"cat {path} > {kept}; sed '{change}' {kept} > {path}",
        f"cat {kept} > {path}",
    )  # fmt: skip


CLUSTERS: Sequence[Make] = (socket, iptables, iptables, process, process, file)
