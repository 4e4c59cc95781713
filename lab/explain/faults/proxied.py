"""The rules of a real cluster's node, broken and put back: kube-proxy and the lab's unit made them.

Nobody plans the names of kube-proxy's chains, so what a fault changes is kept on the node first. It
is put back from there; where that no longer fits, kube-proxy is ended, and does its work anew when
the kubelet has started it again. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from lab.cluster.linux.pod_network import RULES, TABLE
from lab.cluster.observed import NAMESPACE
from lab.explain.faults.fault import FaultChange, change
from lab.topology.intent import Intent

_PROXY = "ip kube-proxy"
_MAPS = ("service-ips", "service-nodeports")


def translates(intent: Intent) -> bool:
    """Whether the rules of Services are known here: the lab's own, or those of nftables mode."""
    return intent.kubernetes is None or intent.kubernetes.proxy_mode == "nftables"


def without_services(node: str, fault: str) -> FaultChange:
    """No address and no port of a Service is translated."""
    emptied = "; ".join(f"flush map {_PROXY} {name}" for name in _MAPS)
    return _kept(node, fault, "map", " ".join(_MAPS), f"nft {shlex.quote(emptied)}")


def stale_backend(node: str, fault: str, service: str, address: str, nobody: str) -> FaultChange:
    """What a Service leads to the one address is led to the other."""
    own = rf"s#^\tchain \([^ ]*-{NAMESPACE}/{service}/[^ ]*\) {{$#\1#p"
    chains = f"$(nft list table {_PROXY} | sed -n {shlex.quote(own)})"
    wrong = f"/dnat/s/\\b{address.replace('.', '[.]')}\\b/{nobody}/g"
    written = f"sed {shlex.quote(wrong)} {_file(fault, service)} | nft -f -"
    return _kept(node, fault, "chain", chains, written, service)


def without_masquerading(node: str) -> FaultChange:
    """What pods send to the outside leaves as it is."""
    return change(
        node,
        [f"nft flush chain ip {TABLE} postrouting"],
        [f"[ ! -e {RULES} ] || nft -f {RULES}"],
    )


def _kept(  # noqa: PLR0913, PLR0917  what is kept, and where, is all of these
    node: str, fault: str, kind: str, names: str, breaks: str, service: str = ""
) -> FaultChange:
    file = _file(fault, service)
    listed = f'echo "flush {kind} {_PROXY} $one"; nft list {kind} {_PROXY} "$one"'
    nothing = "{ echo 'kube-proxy has nothing of it here' >&2; exit 1; }"
    keep: Iterable[str] = (
        f"for one in {names}; do {listed}; done > {file}.new",
        f"[ -s {file}.new ] || {nothing}",
        f"mv {file}.new {file}",
    )
    back = f"nft -f {file} || pkill -x kube-proxy || true"
    return change(
        node,
        [f"[ -s {file} ] || {{ {'; '.join(keep)}; }}", breaks],
        [f"[ ! -e {file} ] || {{ {back}; }}", f"rm -f {file} {file}.new"],
    )


def _file(fault: str, service: str) -> str:
    return f"/run/hybridlab-{'-'.join(filter(None, (fault, service)))}.nft"
