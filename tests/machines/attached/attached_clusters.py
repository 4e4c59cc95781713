"""Objects of the API as clusters have them, and records made from them."""

from typing import Any

from lab.machines.attached.recognise import READS, Reading, recognise
from lab.machines.attached.record import AttachedRecord, ClusterAddress, ProbeTerms

KUBEADM = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {dnsDomain: cluster.local, podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12}
"""
PROXY = (
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
)


def node(name: str, number: int, **others: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": labels | others.pop("labels", {})} | others,
        "spec": {"podCIDR": f"10.244.{number}.0/24"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": f"10.9.0.{10 + number}"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"osImage": "Debian 12", "kubeletVersion": "v1.36.3"},
        },
    }


def daemon(name: str, namespace: str = "kube-system") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}}


def service(name: str, namespace: str, address: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"metadata": metadata, "spec": {"clusterIP": address}}


def kubeadm_cluster(**changed: Reading) -> dict[str, Reading]:
    """A control plane and a worker, by kubeadm with flannel."""
    plane = node("plane", 0, labels={"node-role.kubernetes.io/control-plane": ""})
    dns = service("kube-dns", "kube-system", "10.96.0.10", **{"k8s-app": "kube-dns"})
    ends = {
        "metadata": {
            "name": "kube-dns-x",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "endpoints": [
            {"addresses": ["10.244.0.2"], "nodeName": "plane", "targetRef": {"name": "coredns-1"}}
        ],
    }
    readings = dict.fromkeys(READS, Reading()) | {
        "nodes": Reading((node("worker", 1), plane)),
        "daemonsets": Reading((daemon("kube-flannel-ds", "kube-flannel"), daemon("kube-proxy"))),
        "kubeadm": Reading(({"data": {"ClusterConfiguration": KUBEADM}},)),
        "kube-proxy": Reading(({"data": {"config.conf": PROXY}},)),
        "services": Reading((dns,)),
        "endpoints": Reading((ends,)),
        "service-cidrs": Reading(
            ({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}},)
        ),
    }
    return readings | changed


def record(terms: ProbeTerms = ProbeTerms(), **changed: Reading) -> AttachedRecord:  # noqa: B008  frozen
    cluster = recognise("https://10.9.0.10:6443", "v1.36.3", kubeadm_cluster(**changed), terms)
    address = ClusterAddress("/home/me/.kube/config", "prod")
    return AttachedRecord("prod", address, terms, cluster, terms.namespace or "hybridlab-prod-abc")
