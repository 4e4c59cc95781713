"""HNS' access control lists as nftables rules of a pod's network namespace. Pure.

An endpoint's policies ``ACL`` (hcsshim, ``hcn.AclPolicySetting``) are met in the order of their
priority, the lowest first; the first that matches decides, and what none matches is allowed. Flows
are followed: an answer belongs to what it answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.windows.wine.hns import documents
from lab.windows.wine.hns.documents import Document

TABLE = "hybridlab-acl"
_HOOKS = {"In": ("input", "iifname"), "Out": ("output", "oifname")}
_VERDICTS = {"block": "drop", "allow": "accept", "pass": "accept"}
_LAST = 65_535
"""Priority of a policy that names none."""


def filter_rules(endpoint: Document) -> str:
    """The nftables script for an endpoint's pod; it replaces what an earlier one made.

    Empty if it has no ACL.
    """
    policies = sorted(
        documents.policies(endpoint, "ACL"), key=lambda policy: int(policy.get("Priority", _LAST))
    )
    if not policies:
        return ""
    lines = [REMOVAL.rstrip(), f"table inet {TABLE} {{"]
    for direction, (hook, device) in _HOOKS.items():
        lines += [
            f"  chain {hook} {{",
            f"    type filter hook {hook} priority 0; policy accept;",
            "    ct state established,related accept",
            f'    {device} "lo" accept',
            *(f"    {rule}" for rule in _rules(policies, direction)),
            "  }",
        ]
    return "\n".join([*lines, "}"]) + "\n"


REMOVAL = f"table inet {TABLE} {{\n}}\ndelete table inet {TABLE}\n"
"""The script that removes every rule, whether there are any or not."""


def _rules(policies: list[Document], direction: str) -> Iterator[str]:
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
