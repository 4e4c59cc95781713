"""HNS' documents: version 2 as it is kept, and version 1 as HNSCall speaks it. Pure.

Version 2 is Microsoft's HCN schema (hcsshim's package ``hcn``); version 1 is what the PowerShell
module HNS and older plugins use (hcsshim's ``HNSNetwork`` and ``HNSEndpoint``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
SCHEMA: Document = {"Major": 2, "Minor": 0}
_OUTBOUND_NAT, _ROUTE = "OutBoundNAT", "ROUTE"


def policies(document: Document, kind: str) -> Iterator[Document]:
    """The settings of the policies of one kind, in order."""
    for policy in document.get("Policies") or ():
        if str(policy.get("Type", "")).lower() == kind.lower():
            yield policy.get("Settings") or {}


def subnet(network: Document) -> Document:
    """A network's first subnet; empty if it has none."""
    for ipam in network.get("Ipams") or ():
        for each in ipam.get("Subnets") or ():
            document: Document = each
            return document
    return {}


def gateway(document: Document) -> str:
    """The next hop of the default route of a subnet or an endpoint; empty if it has none."""
    for route in document.get("Routes") or ():
        if route.get("DestinationPrefix") in {"0.0.0.0/0", None}:
            return str(route.get("NextHop", ""))
    return ""


def isolation(network: Document) -> int | None:
    """The number (VSID) that separates an overlay from others; None if it has none."""
    for settings in policies(subnet(network), "VSID"):
        return int(settings["IsolationId"])
    return None


def address(endpoint: Document) -> str:
    """An endpoint's address; empty if it has none."""
    for configuration in endpoint.get("IpConfigurations") or ():
        return str(configuration.get("IpAddress", ""))
    return ""


def prefix_length(endpoint: Document) -> int:
    """The length of an endpoint's on-link prefix."""
    for configuration in endpoint.get("IpConfigurations") or ():
        return int(configuration.get("PrefixLength", USUAL_LENGTH))
    return USUAL_LENGTH


USUAL_LENGTH = 24
"""Prefix length of an endpoint that does not say it."""


def network_from_version_1(document: Document) -> dict[str, Any]:
    """A network as HNSCall's caller describes it, in version 2."""
    kept = {
        key: value
        for key, value in document.items()
        if key not in {"Subnets", "NetworkAdapterName", "Policies"}
    }
    given = [_settings_apart(policy) for policy in document.get("Policies") or ()]
    card = document.get("NetworkAdapterName")
    if card:
        given.append({"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": card}})
    subnets = [_subnet_from_version_1(each) for each in document.get("Subnets") or ()]
    return {
        **kept,
        "Policies": given,
        "Ipams": [{"Type": "Static", "Subnets": subnets}],
        "SchemaVersion": SCHEMA,
    }


def _subnet_from_version_1(document: Document) -> Document:
    route = {
        "NextHop": document.get("GatewayAddress", ""),
        "DestinationPrefix": "0.0.0.0/0",
    }
    given = [_settings_apart(policy) for policy in document.get("Policies") or ()]
    for policy in given:
        if policy["Type"] == "VSID" and "VSID" in policy["Settings"]:
            policy["Settings"] = {"IsolationId": policy["Settings"]["VSID"]}
    return {
        "IpAddressPrefix": document["AddressPrefix"],
        "Routes": [route],
        "Policies": given,
    }


def network_to_version_1(document: Document) -> dict[str, Any]:
    """A network as HNSCall answers it."""
    subnets = [
        _subnet_to_version_1(each)
        for ipam in document.get("Ipams") or ()
        for each in ipam.get("Subnets") or ()
    ]
    kept = {key: value for key, value in document.items() if key != "Ipams"}
    router = next(policies(document, "DrMacAddress"), {})
    if router:
        kept["DrMacAddress"] = router.get("Address", "")
    return {**kept, "Subnets": subnets, "Policies": _settings_together(document)}


def _subnet_to_version_1(document: Document) -> Document:
    given = _settings_together(document)
    for policy in given:
        if policy["Type"] == "VSID":
            policy["VSID"] = policy.pop("IsolationId")
    return {
        "AddressPrefix": document["IpAddressPrefix"],
        "GatewayAddress": gateway(document),
        **({"Policies": given} if given else {}),
    }


def endpoint_from_version_1(document: Document) -> dict[str, Any]:
    """An endpoint as HNSCall's caller describes it, in version 2."""
    moved = {"IPAddress", "GatewayAddress", "VirtualNetwork", "Policies", "PrefixLength"}
    moved |= {"DNSSuffix", "DNSServerList"}
    kept = {key: value for key, value in document.items() if key not in moved}
    configuration = {
        "IpAddress": document.get("IPAddress", ""),
        "PrefixLength": document.get("PrefixLength", USUAL_LENGTH),
    }
    route = {"NextHop": document.get("GatewayAddress", ""), "DestinationPrefix": "0.0.0.0/0"}
    return {
        **kept,
        "HostComputeNetwork": document.get("VirtualNetwork", ""),
        "IpConfigurations": [configuration] if configuration["IpAddress"] else [],
        "Routes": [route] if route["NextHop"] else [],
        "Dns": {
            "Search": _listed(document.get("DNSSuffix")),
            "ServerList": _listed(document.get("DNSServerList")),
        },
        "Policies": [_endpoint_policy(policy) for policy in document.get("Policies") or ()],
        "SchemaVersion": SCHEMA,
    }


def _listed(text: object) -> list[str]:
    return [word for word in str(text or "").split(",") if word]


def _endpoint_policy(document: Document) -> Document:
    """The two kinds whose settings version 2 names differently, and all others."""
    apart = _settings_apart(document)
    settings = dict(apart["Settings"])
    if apart["Type"] == _OUTBOUND_NAT and "ExceptionList" in settings:
        settings["Exceptions"] = settings.pop("ExceptionList")
    kind = "SDNRoute" if apart["Type"] == _ROUTE else apart["Type"]
    return {"Type": kind, "Settings": settings}


def endpoint_to_version_1(document: Document, network: Document) -> dict[str, Any]:
    """An endpoint as HNSCall answers it."""
    moved = {"IpConfigurations", "Routes", "HostComputeNetwork", "Dns"}
    kept = {key: value for key, value in document.items() if key not in moved}
    names = document.get("Dns") or {}
    return {
        **kept,
        "IPAddress": address(document),
        "PrefixLength": prefix_length(document),
        "GatewayAddress": gateway(document),
        "VirtualNetwork": document.get("HostComputeNetwork", ""),
        "VirtualNetworkName": network.get("Name", ""),
        "DNSSuffix": ",".join(names.get("Search") or ()),
        "DNSServerList": ",".join(names.get("ServerList") or ()),
        "State": _ATTACHED if document.get("HostComputeNamespace") else _CREATED,
        "IsRemoteEndpoint": bool(int(document.get("Flags") or 0) & REMOTE),
        "Policies": _settings_together(document),
    }


_CREATED, _ATTACHED = 1, 3
"""States of an endpoint (hcsshim, internal/hns, EndpointState)."""


def policy_list(guid: str, document: Document) -> dict[str, Any]:
    """A load balancer as HNSCall answers it."""
    fronts = [str(address) for address in document.get("FrontendVIPs") or ()]
    return {
        "ID": guid,
        "References": [
            f"/endpoints/{endpoint}" for endpoint in document.get("HostComputeEndpoints") or ()
        ],
        "Policies": [
            {
                "Type": "ELB",
                "Protocol": mapping.get("Protocol", 6),
                "InternalPort": mapping["InternalPort"],
                "ExternalPort": mapping["ExternalPort"],
                "VIPs": fronts,
                "SourceVIP": document.get("SourceVIP", ""),
                "IsDSR": bool(int(document.get("Flags") or 0) & DSR),
            }
            for mapping in document.get("PortMappings") or ()
        ],
    }


REMOTE = 1
"""Flag of an endpoint that lies behind another node (hcn.EndpointFlagsRemoteEndpoint)."""
DSR = 1
"""Flag of a load balancer with Direct Server Return (hcn.LoadBalancerFlagsDSR)."""
NON_PERSISTENT = 8
"""Flag of a network that a restart of the machine removes (hcn.EnableNonPersistent)."""


def _settings_apart(policy: Document) -> dict[str, Any]:
    """Version 1 has a policy's settings beside its type."""
    if "Settings" in policy:
        return dict(policy)
    settings = {key: value for key, value in policy.items() if key != "Type"}
    return {"Type": policy.get("Type", ""), "Settings": settings}


def _settings_together(document: Document) -> list[dict[str, Any]]:
    return [
        {"Type": policy.get("Type", ""), **(policy.get("Settings") or {})}
        for policy in document.get("Policies") or ()
    ]
