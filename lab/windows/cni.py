"""CNI configurations of Windows nodes: endpoint policies that a plugin drops without a word. Pure.

Version 2 of HNS takes a policy as a type and its settings (hcsshim, ``hcn.EndpointPolicy``). A
plugin that speaks it reads no other key of a policy, so one in the form of version 1,
``{"Type": "OutBoundNAT", "ExceptionList": [...]}``, reaches HNS as its type alone: pods are
translated to their node's address in their own cluster, too, and nothing says so. Version 2 is
what ``apiVersion: 2`` asks of win-bridge and win-overlay (containernetworking/plugins, pkg/hns),
and what sdnbridge and sdnoverlay always speak (Microsoft/windows-container-networking).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_ALWAYS_SECOND = frozenset({"sdnbridge", "sdnoverlay"})
_READ = frozenset({"type", "settings"})
"""Keys of a policy that version 2 reads; Go matches them in any case."""


def dropped_policies(configuration: object) -> tuple[str, ...]:
    """The policies of a configuration of which a plugin drops a part, as JSON.

    ``configuration``: the document of a file in the CNI's folder, with one plugin or several, each
    perhaps with a delegate. What is no such document has none.
    """
    return tuple(json.dumps(policy) for policy in _dropped(configuration))


def _dropped(configuration: object) -> Iterator[Mapping[str, Any]]:
    if not isinstance(configuration, Mapping):
        return
    own = {str(key).lower(): value for key, value in configuration.items()}
    for inner in (*_list(own.get("plugins")), own.get("delegate")):
        yield from _dropped(inner)
    if own.get("apiversion") != 2 and own.get("type") not in _ALWAYS_SECOND:  # noqa: PLR2004  HNS'
        return
    for entry in (*_list(own.get("policies")), *_list(own.get("additionalargs"))):
        values = entry.items() if isinstance(entry, Mapping) else ()
        for key, policy in values:
            lost = isinstance(policy, Mapping) and {str(name).lower() for name in policy} - _READ
            if str(key).lower() == "value" and lost:
                yield policy


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
