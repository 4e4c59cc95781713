"""Faults of the software and files of a cluster's nodes."""

from __future__ import annotations

from ipaddress import ip_network

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultCommand,
    change,
    kubelets,
    sites_on,
    until,
)
from lab.machines.addons.flannel import IMAGE, SUBNET, TOPOLOGIES, subnet_line
from lab.machines.cluster.linux.api import ADMIN
from lab.topology.intent import Intent

CONTAINERD_STOPPED = Fault(
    name="containerd-stopped",
    title="containerd of a node is stopped: running pods keep working, new ones cannot start",
    needs="containerd, which the nodes of clusters have",
    sites=sites_on(kubelets),
    change=lambda _, node, __: change(
        node, ["systemctl stop containerd"], ["systemctl start containerd"]
    ),
    also=("containerd-down", "runtime-down"),
)

_TELL = "pkill -{signal} -x kube-proxy"

KUBE_PROXY_STOPPED = Fault(
    name="kube-proxy-stopped",
    title="kube-proxy of a node is stopped (SIGSTOP): its rules are no longer updated",
    needs="kube-proxy, which clusters have",
    sites=sites_on(kubelets, lambda _, machine: machine.translation and machine.chassis is None),
    change=lambda _, node, __: change(
        node, [_TELL.format(signal="STOP")], [f"{_TELL.format(signal='CONT')} || true"]
    ),
    also=("kube-proxy-hangs", "proxy-stopped"),
)

_CNI = "/etc/cni/net.d"
_CNI_KEPT = "/etc/cni/kept-of-net.d"
"""In the same file system, but read by no program."""

CNI_CONFIG_MISSING = Fault(
    name="cni-config-missing",
    title="a node has no CNI configuration: running pods keep working, new ones get no network",
    needs="a CNI plugin, which the nodes of clusters have",
    sites=sites_on(kubelets),
    change=lambda _, node, __: change(
        node,
        [
            f"mkdir -p {_CNI_KEPT}",
            f'for one in {_CNI}/*; do [ ! -e "$one" ] || mv -f "$one" {_CNI_KEPT}/; done',
        ],
        # containerd reloads its directory after a write, not when a file is moved in
        [f"if [ -d {_CNI_KEPT} ]; then cp -a {_CNI_KEPT}/. {_CNI}/ && rm -r {_CNI_KEPT}; fi"],
    ),
    also=("cni-missing", "no-cni", "cni-config-gone"),
)

_LOGS = "/var/log/pods"
_SOURCE = "pods-log"
_MOUNTED = f"grep -q '^{_SOURCE} {_LOGS} ' /proc/mounts"
_BYTES = 65536


def _fill(_: Intent, node: str, __: str) -> FaultChange:
    """Mount a small file system over the directory and fill it.

    The node's own disk is not filled, because that may be the disk of the machine that the lab
    runs on.
    """
    mount = f"mount -t tmpfs -o size={_BYTES},mode=755 {_SOURCE} {_LOGS}"
    return change(
        node,
        [f"{_MOUNTED} || {mount}", f"head -c {_BYTES} /dev/zero > {_LOGS}/rotated"],
        [f"while {_MOUNTED}; do umount -l {_LOGS}; done"],
    )


DISK_FULL = Fault(
    name="disk-full",
    title="the file system of a node's pod logs is full: no container can be started there",
    needs="a kubelet, which the nodes of clusters have",
    sites=sites_on(kubelets),
    change=_fill,
    also=("no-space-left", "full-disk", "enospc"),
)

_CURRENT = "/var/lib/kubelet/pki/kubelet-client-current.pem"
"""The kubelet's symbolic link to its newest certificate (``certificate_store.go``)."""
_KEPT, _EXPIRED = "/var/lib/kubelet/pki/kept-current.pem", "/var/lib/kubelet/pki/expired.pem"
_AUTHORITY = "/etc/kubernetes/pki/ca"
_ANNOTATION = "hybridlab.io/expired"
_ASK = "--request-timeout=20s"


def _expire(intent: Intent, node: str, _: str) -> FaultChange:
    """Have the cluster's own authority sign an expired certificate.

    It is transferred as an annotation of the Node, because a node may read its own Node.
    """
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
            FaultCommand(
                plane, _sign_certificate(node, f"{ask} patch node {node} --patch-file patch")
            ),
            *(FaultCommand(node, line) for line in put),
            FaultCommand(plane, forget),
        ),
        (
            FaultCommand(node, f"if [ -L {_KEPT} ]; then {back}; fi"),
            FaultCommand(plane, f"{forget} || true"),
        ),
    )


def _sign_certificate(node: str, patch: str) -> str:
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
    return plane if any(kubelet.name == plane for kubelet in kubelets(intent)) else ""


KUBELET_CERTIFICATE_EXPIRED = Fault(
    name="kubelet-certificate-expired",
    title="the certificate of a node's kubelet has expired, and it cannot start with it",
    needs="a kubelet that joined with kubeadm",
    sites=sites_on(kubelets, lambda intent, _: _authority(intent)),
    change=_expire,
    also=("certificate-expired", "expired-certificate", "kubelet-down"),
    asks="command -v openssl",
)

_AWAY = "kept.invalid/"
_IMAGES = "ctr --namespace k8s.io images"
_SECONDS = 40
_on_flannel = sites_on(kubelets, lambda intent, _: intent.topology in TOPOLOGIES)


def _kill_flanneld(_: Intent, node: str, __: str) -> FaultChange:
    """Kill it and rename its image, so that it cannot restart.

    This happens if a full disk makes the kubelet remove images and none can be pulled.
    """
    each = "for one in $({images} ls -q 2> /dev/null | grep '^{of}'); do {does}; done"
    renamed = _IMAGES + " tag --force {old} {new} > /dev/null && " + _IMAGES + " rm {old}"
    away = renamed.format(old='"$one"', new=f'"{_AWAY}$one"')
    back = renamed.format(old='"$one"', new=f'"${{one#{_AWAY}}}"')
    runs = "pgrep -x flanneld > /dev/null"
    # makes the kubelet look for the image at once instead of in a minute or two
    started = f"systemctl restart kubelet; {until(runs, _SECONDS)}"
    return change(
        node,
        [each.format(images=_IMAGES, of=f"{IMAGE}:", does=away), "pkill -KILL -x flanneld || true"],
        [
            each.format(images=_IMAGES, of=f"{_AWAY}{IMAGE}:", does=back),
            f"{runs} || {{ {started}; }}",
        ],
    )


FLANNELD_KILLED = Fault(
    name="flanneld-killed",
    title="flanneld of a node was killed and its image is gone: it does not start again",
    needs="flannel as the cluster's network",
    sites=_on_flannel,
    change=_kill_flanneld,
    also=("flannel-down", "flanneld-down", "flannel-killed"),
)


def _wrong_pod_cidr(intent: Intent, node: str, _: str) -> FaultChange:
    """Give flannel's file another pod CIDR than the Node's, as after a new kubeadm init.

    Existing pods keep their addresses; new ones get unreachable addresses, or none.
    """
    kubelet = intent.machine(node).kubelet
    assert kubelet, "a site has one"
    assert kubelet.pod_cidr, "a site has one"
    right = f"[ ! -e {SUBNET} ] || {_set_subnet(kubelet.pod_cidr)}"
    return change(node, [_set_subnet(_nobodys(intent))], [right])


def _set_subnet(cidr: str) -> str:
    return f"sed -i 's#^FLANNEL_SUBNET=.*#{subnet_line(cidr)}#' {SUBNET}"


def _nobodys(intent: Intent) -> str:
    """The last part of the cluster's pod CIDR that no node has."""
    assert intent.kubernetes, "a site is in a cluster"
    taken = [
        ip_network(machine.kubelet.pod_cidr)
        for machine in intent.machines
        if machine.kubelet and machine.kubelet.pod_cidr
    ]
    whole = ip_network(intent.kubernetes.pod_cidr)
    parts = list(whole.subnets(new_prefix=taken[0].prefixlen))
    return str(next(part for part in reversed(parts) if part not in taken))


WRONG_POD_CIDR = Fault(
    name="wrong-pod-cidr",
    title="flannel on a node hands out addresses outside the Node's pod CIDR",
    needs="flannel as the cluster's network",
    sites=_on_flannel,
    change=_wrong_pod_cidr,
    also=("wrong-podcidr", "wrong-subnet", "pod-cidr-mismatch"),
)
