"""State of Kubernetes', Calico's and BIRD's programs on a node, parsed from answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from lab.facts.node import CalicoFacts, SeenSession, Software

_WATCHED = ("kube-proxy", "flanneld")
_CNI = (".conf", ".conflist", ".json")
"""Extensions that containerd reads (``libcni.ConfFiles``)."""
_WILL_EXPIRE = "Certificate will expire"
"""Output of openssl-x509(1) ``-checkend 0`` for an expired certificate."""
_DF_WORDS = 6
_NONE = "<none>"
_SESSION_WORDS = 4
"""Name, protocol, table, state; then since when, and further information."""


def read_software(said: Mapping[str, str]) -> Software | None:
    """Parse the answers, by query; None without Kubernetes."""
    if "cni" not in said:
        return None
    return Software(
        processes=_processes(said["processes"]) if "processes" in said else None,
        cni=tuple(name for name in said["cni"].split() if name.endswith(_CNI)),
        subnet=_line(said["subnet"], "FLANNEL_SUBNET=") if "subnet" in said else None,
        expired=_expired(said["expiry"]) if "expiry" in said else None,
        full=tuple(_full(said.get("disks", ""))),
        dns_replicas=int(said["dns"]) if said.get("dns", "").isdecimal() else None,
    )


def _processes(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [line.split() for line in text.splitlines()]
    return tuple((one[0], one[1]) for one in pairs if len(one) > 1 and one[0] in _WATCHED)


def _line(text: str, begins: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(begins)), "")


def _expired(text: str) -> str:
    there = _WILL_EXPIRE in text.splitlines()
    return _line(text, "notAfter=").removeprefix("notAfter=") if there else ""


def _full(text: str) -> Iterator[str]:
    """Columns of df -P: device, blocks, used, available, capacity, mount point."""
    for line in text.splitlines()[1:]:
        words = line.split(maxsplit=_DF_WORDS - 1)
        if len(words) == _DF_WORDS and words[4] == "100%":
            yield words[5]


def read_calico(said: Mapping[str, str]) -> CalicoFacts | None:
    """Parse the answers, by query; None without Calico."""
    if "felix" not in said:
        return None
    pools, systems = said.get("calico-pools"), said.get("calico-systems")
    return CalicoFacts(
        felix=tuple(line.split()[0] for line in said["felix"].splitlines() if line.strip()),
        pools={one["metadata"]["name"]: one["spec"] for one in json.loads(pools)["items"]}
        if pools
        else None,
        systems=dict(_system(line) for line in systems.splitlines() if line.strip())
        if systems
        else None,
    )


def _system(line: str) -> tuple[str, str]:
    name, _, number = line.strip().partition(" ")
    return name, number.strip().replace(_NONE, "")


def read_sessions(text: str) -> tuple[SeenSession, ...]:
    """BGP sessions in the output of ``birdc show protocols``."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= _SESSION_WORDS and words[1] == "BGP":
            found.append(SeenSession(words[0], words[3], " ".join(words[5:])))
    return tuple(found)
