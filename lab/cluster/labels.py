"""The names by which what a lab makes in a cluster is known again."""

from __future__ import annotations

NAMESPACE = "hybridlab-probe"
"""Of the probe pods and their Services; one lab a cluster."""
LAB = "hybridlab.io/lab"
TOKEN = "hybridlab.io/token"  # noqa: S105  a mark, no secret
POD = "hybridlab.io/pod"
"""The pod's name, for selectors."""
SERVICE = "service.hybridlab.io"
"""``service.hybridlab.io/NAME`` on each pod behind the Service of that name."""
POD_VARIABLE = "HYBRIDLAB_POD"
TOKEN_VARIABLE = "HYBRIDLAB_TOKEN"  # noqa: S105  a mark, no secret
"""Both in the environment of every probe pod's processes: their node's agent finds them by it."""
DNS_NAMESPACE, DNS_SELECTOR = "kube-system", "k8s-app=kube-dns"
"""Where kubeadm and everybody after it has the cluster's DNS."""
