"""Documents as Kubernetes' Windows programs send them to HNS."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab.windows.wine.hns.service import Answer, Card, HnsState, Question, answer

CARDS = (
    Card("mgmt", "198.51.100.5/24", "0a:58:c6:33:64:05", 1500),
    Card("cluster", "192.0.2.2/24", "0a:58:c0:00:02:02", 1500),
)
STATE = HnsState(20348, CARDS)
NETWORK, POD, REMOTE = (
    "11111111-0000-0000-0000-000000000001",
    "22222222-0000-0000-0000-000000000002",
    "33333333-0000-0000-0000-000000000003",
)
NEW = "99999999-0000-0000-0000-000000000009"
SPACE = "5e2f1f52-6a7b-4c1e-9d1e-0c5a3b7d9e11"


def overlay_network(subnet: str, gateway: str, card: str = "cluster") -> dict[str, Any]:
    """flanneld's (pkg/backend/vxlan, vxlan_windows.go of 0.28)."""
    network: dict[str, Any] = {
        "Name": "flannel.4096",
        "Type": "Overlay",
        "Policies": [
            {"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": card}},
        ],
        "Ipams": [
            {
                "Type": "Static",
                "Subnets": [
                    {
                        "IpAddressPrefix": subnet,
                        "Policies": [{"Type": "VSID", "Settings": {"IsolationId": 4096}}],
                        "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
                    }
                ],
            }
        ],
        "Flags": 8,
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }
    return network


def remote_subnet(prefix: str, provider: str, mac: str) -> dict[str, Any]:
    """flanneld's, for another node's lease."""
    policy = {
        "Type": "RemoteSubnetRoute",
        "Settings": {
            "DestinationPrefix": prefix,
            "IsolationId": 4096,
            "ProviderAddress": provider,
            "DistributedRouterMacAddress": mac,
        },
    }
    return {"ResourceType": "Policy", "RequestType": "Add", "Settings": {"Policies": [policy]}}


def pod_endpoint(address: str, exceptions: Sequence[str], mac: str = "0E-2A-0a-f4-01-02") -> Any:
    """win-overlay's, with ``apiVersion: 2`` (containernetworking/plugins 1.9)."""
    return {
        "Name": "abc1_flannel.4096",
        "IpConfigurations": [{"IpAddress": address}],
        "MacAddress": mac,
        "Policies": [{"Type": "OutBoundNAT", "Settings": {"Exceptions": list(exceptions)}}],
        "Dns": {"Search": ["probe.svc.cluster.local"], "ServerList": ["10.96.0.10"]},
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }


def remote_endpoint(address: str, provider: str) -> dict[str, Any]:
    """kube-proxy's (pkg/proxy/winkernel, hns.go of 1.36)."""
    return {
        "IpConfigurations": [{"IpAddress": address}],
        "MacAddress": "02-11-22-33-44-55",
        "Flags": 1,
        "Policies": [{"Type": "ProviderAddress", "Settings": {"ProviderAddress": provider}}],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }


def add_endpoint(guid: str) -> dict[str, Any]:
    """hcsshim's AddNamespaceEndpoint."""
    return {
        "ResourceType": "Endpoint",
        "RequestType": "Add",
        "Settings": {"EndpointId": guid},
    }


def load_balancer(
    endpoints: Sequence[str], fronts: Sequence[str], outer: int, inner: int, distribution: int = 0
) -> dict[str, Any]:
    """kube-proxy's (pkg/proxy/winkernel, getLoadBalancer); a NodePort without a local policy."""
    mapping = {"Protocol": 6, "InternalPort": inner, "ExternalPort": outer}
    if distribution:
        mapping["DistributionType"] = distribution
    balancer: dict[str, Any] = {
        "HostComputeEndpoints": list(endpoints),
        "SourceVIP": "10.244.1.250",
        "PortMappings": [mapping],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }
    return {**balancer, "FrontendVIPs": list(fronts), "Flags": 1} if fronts else balancer


def asked(
    state: HnsState, operation: str, named: str, document: Mapping[str, Any] | None = None
) -> tuple[HnsState, Answer]:
    """One question to the pure service; objects get the GUID 9999..."""
    text = json.dumps(document) if document is not None else ""
    return answer(state, Question(operation, named, text), NEW)


def after(state: HnsState, *questions: tuple[str, str, Mapping[str, Any] | None]) -> HnsState:
    """The state after questions that all succeed."""
    for operation, named, document in questions:
        state, given = asked(state, operation, named, document)
        assert given.code == 0, given.document
    return state


def overlay_with_a_pod() -> HnsState:
    """The state after flanneld's network and one pod of win-overlay's."""
    return after(
        STATE,
        ("create", f"networks {NETWORK}", overlay_network("10.244.1.0/24", "10.244.1.1")),
        (
            "modify",
            f"networks {NETWORK}",
            remote_subnet("10.244.3.0/24", "192.0.2.3", "0E-00-00-00-00-03"),
        ),
        ("bind", f"namespaces {SPACE}", {"Netns": "cni-1"}),
        (
            "create",
            f"endpoints {POD} {NETWORK}",
            pod_endpoint("10.244.1.2", ["10.244.0.0/16", "10.96.0.0/12"]),
        ),
        ("modify", f"namespaces {SPACE}", add_endpoint(POD)),
    )
