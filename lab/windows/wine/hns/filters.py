"""HNS' access control lists as nftables rules. Pure.

An endpoint's policies ``ACL`` (hcsshim, ``hcn.AclPolicySetting``) are met in the order of their
priority, the lowest first; the first that matches decides, and what none matches is allowed. Flows
are followed: an answer belongs to what it answers.

Windows drops at the port of the virtual switch, and the sender is not told. So what a pod receives
is filtered in its network namespace, and what it sends in the node's: in its own, Linux would
refuse the sender's call (EPERM).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.windows.wine.hns import documents
from lab.windows.wine.hns.documents import Document

TABLE = "hybridlab-acl"
_VERDICTS = {"block": "drop", "allow": "accept", "pass": "accept"}
_LAST = 65_535
"""Priority of a policy that names none."""
REMOVAL = f"table inet {TABLE} {{\n}}\ndelete table inet {TABLE}\n"
"""The script that removes every rule, whether there are any or not."""


def rules_of_pod(endpoint: Document) -> str:
    """The nftables script for an endpoint's pod: what it receives.

    As every script here, it replaces what an earlier one made, and is empty without an ACL.
    """
    rules = list(_rules(endpoint, "In"))
    if not rules:
        return ""
    return _script(_chain("in", "input", 0, ['iifname "lo" accept', *rules]))


def rules_of_node(endpoints: Mapping[str, Document]) -> str:
    """The nftables script for the node: what its pods send. ``endpoints``: by address."""
    sent = {address: list(_rules(endpoint, "Out")) for address, endpoint in endpoints.items()}
    jumps = [f"ip saddr {address} jump pod-{address}" for address, rules in sent.items() if rules]
    if not jumps:
        return ""
    lines = [
        line
        for address, rules in sent.items()
        if rules
        for line in (f"  chain pod-{address} {{", *(f"    {rule}" for rule in rules), "  }")
    ]
    # before Services are translated
    return _script([*lines, *_chain("out", "prerouting", -150, jumps)])


def _script(lines: list[str]) -> str:
    return "\n".join([f"{REMOVAL}table inet {TABLE} {{", *lines, "}"]) + "\n"


def _chain(name: str, hook: str, priority: int, rules: list[str]) -> list[str]:
    return [
        f"  chain {name} {{",
        f"    type filter hook {hook} priority {priority}; policy accept;",
        "    ct state established,related accept",
        *(f"    {rule}" for rule in rules),
        "  }",
    ]


def _rules(endpoint: Document, direction: str) -> Iterator[str]:
    policies = sorted(
        documents.policies(endpoint, "ACL"), key=lambda policy: int(policy.get("Priority", _LAST))
    )
    inward = direction == "In"
    remote, local = ("s", "d") if inward else ("d", "s")
    for policy in policies:
        verdict = _VERDICTS.get(str(policy.get("Action", "")).lower())
        if str(policy.get("Direction", "")).lower() != direction.lower() or verdict is None:
            continue
        words = []
        for key, side in (("RemoteAddresses", remote), ("LocalAddresses", local)):
            listed = _listed(policy.get(key))
            prefixes = [prefix for prefix in listed if ":" not in prefix]
            if listed and not prefixes:
                break
            if prefixes:
                words.append(f"ip {side}addr {{ {', '.join(prefixes)} }}")
        else:
            protocols = _listed(policy.get("Protocols"))
            if protocols:
                words.append(f"meta l4proto {{ {', '.join(protocols)} }}")
            for key, side in (("RemotePorts", remote), ("LocalPorts", local)):
                ports = _listed(policy.get(key))
                if ports:
                    words.append(f"th {side}port {{ {', '.join(ports)} }}")
            yield " ".join([*words, verdict])


def _listed(text: object) -> list[str]:
    return [word.strip() for word in str(text or "").split(",") if word.strip()]
