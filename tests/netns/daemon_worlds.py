"""A small cluster whose machines run one daemon of each kind that topologies use."""

from __future__ import annotations

from dataclasses import replace

from netns_intents import cluster

from lab.topology.daemon import Daemon, File, Ready
from lab.topology.intent import Intent

ADDRESSES = {"worker1": "10.9.176.1", "worker2": "10.9.176.2"}
VIRTUAL = "10.9.176.200"


def bird(own: str, peer: str) -> Daemon:
    """BGP with one neighbour."""
    text = f"""router id {own};
log stderr all;
protocol device {{ }}
protocol static {{ ipv4; route 198.51.100.{own[-1]}/32 blackhole; }}
protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}
protocol bgp peer {{ local {own} as 64512; neighbor {peer} as 64512;
  connect delay time 1; ipv4 {{ import all; export all; next hop self; }}; }}
"""
    return Daemon(
        "bird",
        "bird2",
        ("bird", "-f", "-c", "bird.conf", "-s", "/run/bird/bird.ctl"),
        Ready(r"^peer\s.*Established", ("birdc", "show", "protocols")),
        (File("bird.conf", text),),
    )


def keepalived(own: str, peer: str, priority: int) -> Daemon:
    """One virtual address between two machines."""
    text = f"""global_defs {{ vrrp_garp_master_repeat 1 }}
vrrp_instance gateway {{
  state BACKUP
  interface eth0
  virtual_router_id 188
  priority {priority}
  advert_int 0.1
  unicast_src_ip {own}
  unicast_peer {{ {peer} }}
  virtual_ipaddress {{ {VIRTUAL}/32 }}
}}
"""
    command = ("keepalived", "-n", "-l", "-D", "-P", "-f", "keepalived.conf")
    pids = ("-p", "/run/keepalived/keepalived.pid", "-r", "/run/keepalived/vrrp.pid")
    return Daemon(
        "keepalived",
        "keepalived",
        (*command, *pids),
        Ready("Entering (MASTER|BACKUP) STATE"),
        (File("keepalived.conf", text),),
    )


def dnsmasq() -> Daemon:
    """One name."""
    options = ("--keep-in-foreground", "--conf-file=/dev/null", "--user=", "--group=")
    return Daemon(
        "dnsmasq",
        "dnsmasq-base",
        (
            "dnsmasq",
            *options,
            "--no-resolv",
            "--log-facility=-",
            "--pid-file",
            "--address=/a.test/192.0.2.77",
        ),
        Ready("started, version"),
    )


def haproxy() -> Daemon:
    """A listener in front of one server."""
    text = """global
  log stderr format raw local0
defaults
  mode tcp
  timeout connect 2s
  timeout client 2s
  timeout server 2s
listen front
  bind :6443
  server one 10.9.176.1:8080
"""
    return Daemon(
        "haproxy",
        "haproxy",
        ("haproxy", "-db", "-f", "haproxy.cfg"),
        Ready(":6443", ("ss", "-Hltn")),
        (File("haproxy.cfg", text),),
        stage=1,
    )


def world() -> Intent:
    """Two workers with BIRD and keepalived, and a router with dnsmasq and HAProxy."""
    worker1, two = ADDRESSES["worker1"], ADDRESSES["worker2"]
    return having(
        worker1=(bird(worker1, two), keepalived(worker1, two, 150)),
        worker2=(bird(two, worker1), keepalived(two, worker1, 100)),
        router=(haproxy(), dnsmasq()),
    )


def having(**daemons: tuple[Daemon, ...]) -> Intent:
    """The cluster with these daemons on these machines."""
    intent = cluster("host-gateway", linux=2, windows=0, pods=1, services=False)
    machines = tuple(
        replace(machine, daemons=daemons.get(machine.name, ())) for machine in intent.machines
    )
    return replace(intent, machines=machines)
