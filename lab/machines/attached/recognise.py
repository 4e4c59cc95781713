"""What kind of cluster it is, from the API's objects as they were read. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses, ip_address, ip_network
from operator import itemgetter
from typing import Any

from lab.machines.attached.record import ClusterFound, DnsFound, NodeFound, ProbeTerms
from lab.machines.cluster.obstacles import barring_taints, condition, taint_words
from lab.scenario.terms import Os
from lab.topology.observed import TUNNEL_ANNOTATION

Object = Mapping[str, Any]

READS: Mapping[str, str] = {
    "nodes": "/api/v1/nodes",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "kubeadm": "/api/v1/namespaces/kube-system/configmaps/kubeadm-config",
    "coredns": "/api/v1/namespaces/kube-system/configmaps/coredns",
    "kube-proxy": "/api/v1/namespaces/kube-system/configmaps/kube-proxy",
    "cilium": "/api/v1/namespaces/kube-system/configmaps/cilium-config",
    "services": "/api/v1/services",
    "endpoints": "/apis/discovery.k8s.io/v1/endpointslices",
    "service-cidrs": "/apis/networking.k8s.io/v1/servicecidrs",
    "calico-pools": "/apis/crd.projectcalico.org/v1/ippools",
}
"""What is read, and its path in the API."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the API server answered to one request."""

    objects: tuple[Object, ...] = ()
    refused: str = ""
    """Why it answered nothing; empty if it did, or if there is no such thing."""


Readings = Mapping[str, Reading]

_CNIS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AWS VPC", ("aws-node",)),
    ("OVN-Kubernetes", ("ovnkube-node",)),
    ("Antrea", ("antrea-agent",)),
    ("Cilium", ("cilium", "anetd")),
    ("Calico", ("calico-node", "canal", "rke2-canal")),
    ("flannel", ("kube-flannel-ds", "kube-flannel")),
    ("Azure", ("azure-cns", "azure-cns-win", "azure-ip-masq-agent-v2")),
    ("GKE", ("netd", "gke-metadata-server")),
    ("kindnet", ("kindnet",)),
)
"""Each CNI and its DaemonSets; the first one counts: AWS' and Azure's nodes run another one for
policies alone."""
SOURCES_KNOWN = frozenset({"flannel", "Calico", "kindnet"})
"""The CNIs whose nodes send with no other addresses than the API reports."""
_FLANNEL_TYPE = "flannel.alpha.coreos.com/backend-type"
_IPIP_ANNOTATION = "projectcalico.org/IPv4IPIPTunnelAddr"
_CILIUM_ANNOTATION = "network.cilium.io/ipv4-cilium-host"
_ADDRESS_ANNOTATIONS = (TUNNEL_ANNOTATION, _IPIP_ANNOTATION, _CILIUM_ANNOTATION)
_PLANES = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_WINDOWS, _WINE = "hybridlab/windows", "wine"
"""The label of a Wine node."""
_ZONE = "topology.kubernetes.io/zone"
_DNS_LABEL = ("k8s-app", "kube-dns")
_USUAL_DOMAIN = "cluster.local"
_ZONES = re.compile(r"^\s*kubernetes\s+([^{\n]*)", re.MULTILINE)
"""The zones that CoreDNS serves from the API, in its Corefile."""
_RANGE = re.compile(r"\d+\.\d+\.\d+\.\d+/\d+")


def recognise(server: str, version: str, readings: Readings, terms: ProbeTerms) -> ClusterFound:
    """Everything that the readings say about a cluster.

    ``server``, ``version``: the API server's address and version. ``readings``: by the names of
    :data:`READS`, and ``dry-run``: the refusal of a Service whose address is in no range.
    """
    cni, cni_object = _recognise_cni(readings)
    nodes = tuple(
        _read_node(node, cni)
        for node in sorted(readings["nodes"].objects, key=lambda node: node["metadata"]["name"])
    )
    chosen, others = choose_nodes(nodes, _labels(readings), terms)
    pods, pods_from = _first(_find_pod_cidrs(readings))
    services, services_from = _first(_find_service_cidrs(readings))
    mode = _find_proxy_mode(readings)
    dns = _find_dns(readings)
    missing = {
        "the network plug-in": (cni, ("daemonsets",)),
        "the pod range": (pods, ("nodes", "kubeadm", "calico-pools", "cilium")),
        "the Service range": (services, ("service-cidrs", "kubeadm", "dry-run")),
        "the DNS Service": (dns, ("services",)),
        f"the domain; '{_USUAL_DOMAIN}' is assumed": (
            dns is None or _find_domain(readings),
            ("coredns", "kubeadm"),
        ),
        "kube-proxy's mode": (mode, ("kube-proxy",)),
    }
    return ClusterFound(
        server=server,
        version=version,
        nodes=chosen,
        others=others,
        cni=cni,
        cni_seen=cni_object,
        pod_cidrs=pods,
        pod_cidrs_from=pods_from,
        service_cidrs=services,
        service_cidrs_from=services_from,
        dns=dns,
        proxy_mode=mode,
        unknown=tuple(
            (subject, _why_unknown(readings, names))
            for subject, (value, names) in missing.items()
            if not value
        ),
    )


def _why_unknown(readings: Readings, names: Iterable[str]) -> str:
    refused = [readings[name].refused for name in names if name in readings]
    return "; ".join(dict.fromkeys(filter(None, refused))) or "no object of the API says it"


def _first(
    candidates: Iterable[tuple[tuple[str, ...], str]],
) -> tuple[tuple[str, ...], str]:
    return next(((ranges, origin) for ranges, origin in candidates if ranges), ((), ""))


def _recognise_cni(readings: Readings) -> tuple[str, str]:
    """The CNI and the object by which it is recognised; both empty if it is unknown."""
    names = {
        item["metadata"]["name"]: item["metadata"].get("namespace", "")
        for item in readings["daemonsets"].objects
    }
    for cni, daemons in _CNIS:
        for daemon in daemons:
            if daemon in names:
                return cni, f"DaemonSet {names[daemon]}/{daemon}"
    for node in readings["nodes"].objects:
        if _FLANNEL_TYPE in (node["metadata"].get("annotations") or {}):
            return "flannel", f"an annotation of Node {node['metadata']['name']}"
    return "", ""


def is_network_daemon(name: str) -> bool:
    """Whether a DaemonSet of this name is kube-proxy or a network plug-in."""
    known = {daemon for _, daemons in _CNIS for daemon in daemons}
    return name in known or name.startswith(("kube-proxy", "kube-flannel", "calico-node"))


def _read_node(node: Object, cni: str) -> NodeFound:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    info = status.get("nodeInfo") or {}
    system: Os = "windows" if labels.get("kubernetes.io/os") == "windows" else "linux"
    cidr = next(iter(_ipv4_ranges([spec.get("podCIDR"), *(spec.get("podCIDRs") or ())])), "")
    ready = condition(node, "Ready")
    is_ready = ready.get("status") == "True"
    return NodeFound(
        name=metadata["name"],
        os=system,
        role="control-plane" if any(plane in labels for plane in _PLANES) else "worker",
        build=str(info.get("kernelVersion" if system == "windows" else "osImage") or ""),
        version=str(info.get("kubeletVersion") or ""),
        addresses=tuple(
            dict.fromkeys(
                (
                    *_addresses(status),
                    *_cni_addresses(annotations, cidr if cni == "flannel" else ""),
                )
            )
        ),
        pod_cidr=cidr,
        hostname=labels.get("kubernetes.io/hostname", metadata["name"]),
        zone=labels.get(_ZONE, ""),
        ready=is_ready,
        taints=tuple(taint_words(taint) for taint in barring_taints(node)),
        remarks=(
            *(() if is_ready else (f"NotReady: {ready.get('reason') or 'no condition'}",)),
            *(("cordoned",) if spec.get("unschedulable") else ()),
            *(("on Wine",) if labels.get(_WINDOWS) == _WINE else ()),
        ),
        wine=labels.get(_WINDOWS) == _WINE,
    )


def _addresses(status: Object) -> Iterator[str]:
    """The node's IPv4 addresses, internal ones first."""
    listed = status.get("addresses") or ()
    for kind in ("InternalIP", "ExternalIP"):
        yield from (
            each["address"]
            for each in listed
            if each.get("type") == kind and _is_ipv4(str(each.get("address")))
        )


def _cni_addresses(annotations: Mapping[str, str], flannel_cidr: str) -> Iterator[str]:
    """Addresses of devices that the network plug-in makes on the node.

    flannel's tunnel has the first address of the node's range, and its bridge the next one.
    """
    for annotation in _ADDRESS_ANNOTATIONS:
        if _is_ipv4(annotations.get(annotation, "")):
            yield annotations[annotation]
    if flannel_cidr:
        network = IPv4Network(flannel_cidr)
        yield from (str(network[0]), str(network[1]))


def _is_ipv4(text: str) -> bool:
    try:
        return isinstance(ip_address(text), IPv4Address)
    except ValueError:
        return False


def _ipv4_ranges(texts: Iterable[object]) -> tuple[str, ...]:
    """The IPv4 ranges among texts that may each be several, separated by commas."""
    ranges: dict[str, None] = {}
    for text in texts:
        for part in str(text or "").replace(",", " ").split():
            try:
                network = ip_network(part, strict=False)
            except ValueError:
                continue
            if isinstance(network, IPv4Network):
                ranges[str(network)] = None
    return tuple(ranges)


def _labels(readings: Readings) -> Mapping[str, Mapping[str, str]]:
    return {
        node["metadata"]["name"]: node["metadata"].get("labels") or {}
        for node in readings["nodes"].objects
    }


def choose_nodes(
    nodes: Iterable[NodeFound], labels: Mapping[str, Mapping[str, str]], terms: ProbeTerms
) -> tuple[tuple[NodeFound, ...], tuple[tuple[str, str], ...]]:
    """The nodes to probe, and those that are left out, with the reason.

    Of more nodes than ``terms.most_nodes``, one is taken of every system first, and then of every
    system, build and zone in turn; of each, those first that are Ready and not cordoned.
    """
    candidates: list[NodeFound] = []
    others: dict[str, str] = {}
    for node in nodes:
        if labels[node.name].get("type") == "virtual-kubelet":
            others[node.name] = "it is a virtual node: its pods run elsewhere"
        elif not node.addresses:
            others[node.name] = "it has no IPv4 address"
        elif not _is_selected(node.name, labels[node.name], terms.nodes):
            others[node.name] = "'--nodes' does not select it"
        else:
            candidates.append(node)
    candidates.sort(key=lambda node: (bool(node.remarks), node.name))
    in_system, in_group = Counter[str](), Counter[tuple[str, str, str]]()
    ranked: list[tuple[bool, int, tuple[str, str, str], NodeFound]] = []
    for node in candidates:
        group = (node.os, node.build, node.zone)
        ranked.append((in_system[node.os] > 0, in_group[group], group, node))
        in_system[node.os] += 1
        in_group[group] += 1
    ranked.sort(key=itemgetter(0, 1, 2))
    chosen = [node for *_, node in ranked[: terms.most_nodes]]
    for *_, node in ranked[terms.most_nodes :]:
        others[node.name] = f"it is beyond the {terms.most_nodes} nodes of '--max-nodes'"
    chosen.sort(key=lambda node: (node.role != "control-plane", node.name))
    return tuple(chosen), tuple(sorted(others.items()))


def _is_selected(name: str, labels: Mapping[str, str], selectors: Iterable[str]) -> bool:
    wanted = tuple(selectors)
    if not wanted:
        return True
    for selector in wanted:
        key, equals, value = selector.partition("=")
        if name == selector or (key in labels and (not equals or labels[key] == value)):
            return True
    return False


def _find_pod_cidrs(readings: Readings) -> Iterator[tuple[tuple[str, ...], str]]:
    pools = [
        pool.get("spec", {}).get("cidr")
        for pool in readings["calico-pools"].objects
        if not pool.get("spec", {}).get("disabled")
    ]
    yield _ipv4_ranges(pools), "Calico's IPPools"
    networking = _kubeadm(readings)
    yield _ipv4_ranges([networking.get("podSubnet")]), "kubeadm's ConfigMap"
    for config in readings["cilium"].objects:
        data = config.get("data") or {}
        yield _ipv4_ranges([data.get("cluster-pool-ipv4-cidr")]), "Cilium's ConfigMap"
    nodes = (node.get("spec") or {} for node in readings["nodes"].objects)
    of_nodes = map(IPv4Network, _ipv4_ranges(node.get("podCIDR") for node in nodes))
    yield tuple(map(str, collapse_addresses(of_nodes))), "the nodes' podCIDRs"


def _find_service_cidrs(readings: Readings) -> Iterator[tuple[tuple[str, ...], str]]:
    ranges = [
        text
        for item in readings["service-cidrs"].objects
        for text in (item.get("spec") or {}).get("cidrs") or ()
    ]
    yield _ipv4_ranges(ranges), "ServiceCIDR objects"
    yield _ipv4_ranges([_kubeadm(readings).get("serviceSubnet")]), "kubeadm's ConfigMap"
    answer = readings["dry-run"].refused if "dry-run" in readings else ""
    yield _ipv4_ranges(_RANGE.findall(answer)), "the refusal of a Service that was not made"


def _kubeadm(readings: Readings) -> Mapping[str, Any]:
    for config in readings["kubeadm"].objects:
        document = _parse((config.get("data") or {}).get("ClusterConfiguration", ""))
        return document.get("networking") or {}
    return {}


def _parse(text: str) -> Mapping[str, Any]:
    """A YAML document; empty if it is none."""
    from ruamel.yaml import YAML  # noqa: PLC0415  slow
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415  the same

    try:
        document = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return {}
    return document if isinstance(document, dict) else {}


def _find_proxy_mode(readings: Readings) -> str:
    """kube-proxy's mode; its default on Linux is iptables."""
    for config in readings["kube-proxy"].objects:
        texts = (config.get("data") or {}).values()
        for text in texts:
            document = _parse(text)
            if document.get("kind") == "KubeProxyConfiguration":
                return str(document.get("mode") or "iptables")
    for config in readings["cilium"].objects:
        if (config.get("data") or {}).get("kube-proxy-replacement") in {"true", "strict"}:
            return "none: Cilium replaces kube-proxy"
    return ""


def _find_dns(readings: Readings) -> DnsFound | None:
    key, value = _DNS_LABEL
    for service in readings["services"].objects:
        metadata, spec = service["metadata"], service.get("spec") or {}
        labelled = (metadata.get("labels") or {}).get(key) == value
        openshift = (metadata.get("namespace"), metadata["name"]) == (
            "openshift-dns",
            "dns-default",
        )
        address = str(spec.get("clusterIP") or "")
        if (labelled or openshift) and _is_ipv4(address):
            space, name = metadata["namespace"], metadata["name"]
            domain = _find_domain(readings) or _USUAL_DOMAIN
            return DnsFound(space, name, address, domain, tuple(_ends(readings, space, name)))
    return None


def _find_domain(readings: Readings) -> str:
    """The cluster's domain; empty if no object says it."""
    for config in readings["coredns"].objects:
        for zones in _ZONES.findall((config.get("data") or {}).get("Corefile", "")):
            for zone in zones.split():
                if not zone.rstrip(".").endswith(".arpa"):
                    return str(zone.rstrip("."))
    return str(_kubeadm(readings).get("dnsDomain") or "")


def _ends(readings: Readings, space: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Name, node and address of the ready IPv4 endpoints of a Service."""
    for item in readings["endpoints"].objects:
        labels = item["metadata"].get("labels") or {}
        own = (item["metadata"].get("namespace"), labels.get("kubernetes.io/service-name"))
        if own != (space, name) or item.get("addressType", "IPv4") != "IPv4":
            continue
        for end in item.get("endpoints") or ():
            target = (end.get("targetRef") or {}).get("name")
            ready = (end.get("conditions") or {}).get("ready") is not False
            if target and ready and end.get("nodeName") and end.get("addresses"):
                yield target, end["nodeName"], end["addresses"][0]
