"""The client certificate of a node's kubelet has expired, and the kubelet cannot start.

The cluster's own authority signs it. It is transferred as an annotation of the Node, because a node
may read its own Node.
"""

from __future__ import annotations

from lab.cluster.linux.api import ADMIN
from lab.explain.faults.fault import Fault, FaultChange, FaultCommand, FaultSite
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

_CURRENT = "/var/lib/kubelet/pki/kubelet-client-current.pem"
"""The kubelet's symbolic link to its newest certificate (``certificate_store.go``)."""
_KEPT, _EXPIRED = "/var/lib/kubelet/pki/kept-current.pem", "/var/lib/kubelet/pki/expired.pem"
_AUTHORITY = "/etc/kubernetes/pki/ca"
_ANNOTATION = "hybridlab.io/expired"
_ASK = "--request-timeout=20s"


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    plane = _authority(intent)
    ask = f"kubectl --kubeconfig={ADMIN} {_ASK}"
    forget = f"{ask} annotate node {node} {_ANNOTATION}-"
    own = _ANNOTATION.replace(".", r"\.")
    read = (
        f"kubectl --kubeconfig=/etc/kubernetes/kubelet.conf {_ASK} get node {node} "
        f"-o 'jsonpath={{.metadata.annotations.{own}}}' | base64 -d > {_EXPIRED}"
    )
    put = (
        f"[ -L {_KEPT} ] || cp -P {_CURRENT} {_KEPT}",
        read,
        f"[ -s {_EXPIRED} ]",
        f"ln -sfn {_EXPIRED} {_CURRENT}",
        "systemctl restart kubelet",
    )
    back = f"mv -fT {_KEPT} {_CURRENT}; rm -f {_EXPIRED}; systemctl restart kubelet"
    return FaultChange(
        (
            FaultCommand(plane, _signed(node, f"{ask} patch node {node} --patch-file patch")),
            *(FaultCommand(node, line) for line in put),
            FaultCommand(plane, forget),
        ),
        (
            FaultCommand(node, f"if [ -L {_KEPT} ]; then {back}; fi"),
            FaultCommand(plane, f"{forget} || true"),
        ),
    )


def _signed(node: str, patch: str) -> str:
    """Put yesterday's certificate and its key into the Node's annotation, through a file."""
    issued = (
        f"openssl x509 -req -in request -CA {_AUTHORITY}.crt -CAkey {_AUTHORITY}.key "
        "-set_serial 1 -days -1 -out certificate 2> /dev/null"
    )
    made = (
        "cd $(mktemp -d)",
        "openssl ecparam -name prime256v1 -genkey -noout -out key",
        f"openssl req -new -key key -subj /O=system:nodes/CN=system:node:{node} -out request",
        issued,
        'both="$(cat certificate key | base64 -w 0)"',
        f'echo \'{{"metadata": {{"annotations": {{"{_ANNOTATION}": "\'"$both"\'"}}}}}}\' > patch',
        patch,
        'rm -r "$PWD"',
    )
    return "; ".join(made)


def _authority(intent: Intent) -> str:
    """The machine with the key of kubeadm's authority; empty if there is none."""
    plane = intent.control_plane()
    return plane if any(one.name == plane for one in kubelets(intent)) else ""


FAULT = Fault(
    name="kubelet-certificate-expired",
    title="the certificate of a node's kubelet has expired, and it cannot start with it",
    needs="a kubelet that has joined by kubeadm",
    sites=lambda intent: (FaultSite(one.name) for one in kubelets(intent) if _authority(intent)),
    change=_change,
    also=("certificate-expired", "expired-certificate", "kubelet-down"),
    asks="command -v openssl",
)
