"""The printed script and the executor: the same state, namespace by namespace."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from netns_intents import cluster

from lab._deadline import Deadline
from lab.providers.netns import namespaces, netlink, script
from lab.providers.netns.child_calls import call_isolated
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.operations import RulesetLoad
from lab.providers.netns.windows import realise

VOLATILE = {
    "cost",  # of a bridge port: the kernel works it out when it next looks at the carrier
    "qdisc",
    "txqlen",
    "group",
    "gso_max_size",
    "gso_max_segs",
    "link_netnsid",
    "used",
}
LOOKS = {
    "links": "ip -json -details link",
    "addresses": "ip -json address",
    "routes": "ip -json route show table all",
    "neighbours": "ip -json neigh show nud permanent",
    "proxies": "ip -json neigh show proxy",
    "forwarding": "bridge -json fdb",
    "rules": "nft --json list ruleset",
}
SETTINGS = (
    "net/ipv4/ip_forward net/ipv4/icmp_ratemask net/ipv4/conf/all/rp_filter "
    "net/ipv4/conf/default/rp_filter net/ipv4/conf/all/send_redirects "
    "net/ipv4/conf/all/accept_redirects net/ipv6/conf/all/disable_ipv6 "
    "net/bridge/bridge-nf-call-iptables"
)


def _run(command: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, input=text
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def _steady(value: object) -> object:
    """Without what differs from run to run: timers, counters, handles, statistics."""
    if isinstance(value, dict):
        drop = {key for key in value if "timer" in key or key in {"handle", "metainfo", *VOLATILE}}
        return {key: _steady(one) for key, one in sorted(value.items()) if key not in drop}
    if isinstance(value, list):
        return sorted((_steady(one) for one in value), key=json.dumps)
    return value


def _state(names: list[str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name in names:
        with namespaces.inside(name):
            looks: dict[str, object] = {
                what: _steady(json.loads(_run(command) or "[]")) for what, command in LOOKS.items()
            }
            looks["settings"] = _run(f"cd /proc/sys && grep -H . {SETTINGS}")
            looks["delay"] = re.findall(r"dev (\S+)|(proxy_delay \d+)", _run("ip ntable show"))
            found[name] = looks
    return found


@pytest.mark.parametrize("kind", ["overlay", "host-gateway"])
def test_running_the_script_gives_the_executors_state(kind):
    intent = cluster(kind)
    wanted = compile_intent(realise(intent))
    names = [operations.namespace for operations in wanted]

    def by_executor() -> str:
        namespaces.create(names)
        netlink.apply_operations(wanted)
        namespaces.load_rulesets(
            tuple(
                (operations.namespace, operation.text)
                for operations in wanted
                for operation in operations.operations
                if isinstance(operation, RulesetLoad)
            )
        )
        return json.dumps(_state(names))

    def by_script() -> str:
        _run("sh", script.script(intent))
        return json.dumps(_state(names))

    ours = json.loads(call_isolated("applying", by_executor, Deadline(600), str))
    theirs = json.loads(call_isolated("running the script", by_script, Deadline(600), str))
    for name in names:
        for what, value in ours[name].items():
            assert theirs[name][what] == value, f"{what} of {name}"


def test_one_nodes_script_runs_alone_and_its_last_line_takes_it_away():
    text = script.script(cluster("overlay"), "win1")
    (teardown,) = re.findall("# To remove it: (.*)", text)

    def life() -> tuple[list[str], list[str]]:
        _run("sh", text)
        names = sorted(path.name for path in Path("/run/netns").iterdir())
        _run(teardown)
        return names, sorted(path.name for path in Path("/run/netns").iterdir())

    there, left = call_isolated(
        "running one node's script", life, Deadline(30), tuple[list[str], list[str]]
    )
    assert there == ["fabric", "win1", "win1-p1", "win1-p2"]
    assert left == []
