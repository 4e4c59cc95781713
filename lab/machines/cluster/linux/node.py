"""Prepares a Linux machine for its cluster: kernel, network, containerd, kubelet, HAProxy. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_interface

from lab.machines.addons.addon import addons
from lab.machines.bundle.manifest import ContainerImage, Manifest
from lab.machines.bundle.medium import LABEL, image_path
from lab.machines.cluster import dns
from lab.machines.cluster.cluster import API_PORT, Cluster, ClusterNode, HostTraits, underlay
from lab.machines.cluster.documents import render_text
from lab.machines.cluster.kubeadm import RESOLVER, SOCKET, health_check_seconds
from lab.machines.cluster.linux.operations import (
    UNITS,
    Enabled,
    Operation,
    Operations,
    Run,
    Symlink,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    run_once,
    unit_file,
)
from lab.providers.netns.namespaces import resolver_text
from lab.topology.intent import NODE_SEGMENT, Intent, MachineIntent

_MODULES = {
    "overlay": ("grep", "-qw", "overlay", "/proc/filesystems"),
    "br_netfilter": ("test", "-d", "/proc/sys/net/bridge"),
}
"""Kernel modules, each with a command that checks whether it is loaded or built in."""
_SETTINGS = {
    "net.ipv4.ip_forward": 1,
    "net.bridge.bridge-nf-call-iptables": 1,
    "net.bridge.bridge-nf-call-ip6tables": 1,
}
"""Settings that each network namespace has for itself."""
_KERNEL_SETTINGS = {
    "fs.inotify.max_user_instances": 1024,  # the default of 128 is too little for a few dozen pods
}
"""Settings that a kernel has once."""
_NETWORK = "/usr/local/lib/hybridlab/network"
_NETWORK_UNIT = "hybridlab-network.service"


def prepare_machine(cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
    """Names of all machines, kernel modules and settings, swap off, network interfaces."""
    hosts = ["127.0.0.1 localhost\n", "::1 localhost ip6-localhost ip6-loopback\n"]
    hosts += [f"{o.address()} {o.name} {o.name}.{cluster.name}\n" for o in intent.machines]
    return (
        WriteFile("/etc/hosts", "".join(hosts)),
        *(_with_kernel_of_host() if cluster.host.shared_kernel else _with_own_kernel()),
        *_resolver(machine),
        *_network(intent, machine.name),
    )


def _with_own_kernel() -> Operations:
    modules = WriteFile("/etc/modules-load.d/hybridlab.conf", "".join(f"{m}\n" for m in _MODULES))
    settings, applied = _settings(_SETTINGS | _KERNEL_SETTINGS)
    loaded = " && ".join(shlex.join(module) for module in _MODULES.values())
    mask, masked = ("systemctl", "mask", "--now", "swap.target"), f"[ -L {UNITS}/swap.target ]"
    return (
        modules,
        settings,
        Run(("modprobe", "-a", *_MODULES), unless=loaded),
        applied,
        Run(mask, unless=masked),
        Run(("swapoff", "-a"), unless='[ "$(wc -l </proc/swaps)" -le 1 ]'),
    )


def _with_kernel_of_host() -> Operations:
    """Change nothing that another container or the host would notice."""
    required = (
        Run(test, unless=shlex.join(test), hint=f"run 'modprobe {name}' on the host of the lab")
        for name, test in _MODULES.items()
    )
    return (*required, *_settings(_SETTINGS))


def _settings(values: Mapping[str, int]) -> tuple[WriteFile, Run]:
    """The file that applies the settings at every start, and a command that applies them now."""
    lines = "".join(f"{key} = {value}\n" for key, value in values.items())
    file = WriteFile("/etc/sysctl.d/90-hybridlab.conf", lines)
    as_set = " && ".join(f'[ "$(sysctl -n {key})" = {value} ]' for key, value in values.items())
    return file, Run(("sysctl", "-q", "-p", file.path), unless=as_set)


def _resolver(machine: MachineIntent) -> Operations:
    """The machine's resolver file, if the scenario has a name server."""
    if machine.resolver is None:
        return ()
    return (WriteFile("/etc/resolv.conf", resolver_text(machine.resolver)),)


def _tunnel(machine: MachineIntent) -> Iterator[str]:
    """The commands for a tunnel that no network add-on creates, and its entries."""
    own = machine.tunnel
    if own is None:
        return
    yield f"ip link show dev {own.name} >/dev/null 2>&1 ||"
    yield (
        f"    ip link add {own.name} address {own.mac} mtu {own.mtu} type vxlan id {own.vni} "
        f"dstport {own.port} local {own.local} dev {own.device} nolearning"
    )
    yield f"ip link set {own.name} up"
    yield from (f"ip address replace {address} dev {own.name}" for address in own.addresses)
    for entry in machine.forwarding:
        yield f"bridge fdb replace {entry.mac} dev {entry.device} dst {entry.remote} self permanent"
    for neighbour in machine.neighbours:
        yield (
            f"ip neighbour replace {neighbour.address} lladdr {neighbour.mac} "
            f"dev {neighbour.device} nud permanent"
        )


def _network(intent: Intent, name: str) -> Operations:
    """Configure the machine's network at every start, before the kubelet looks for its address.

    'lab up' configures it too; this is for a machine that restarts by itself.
    """
    machine = underlay(intent).machine(name)
    lines = ["#!/bin/sh", "# The lab's network interfaces and their routes."]
    for card in machine.interfaces:
        lines.append(f"ip link set {card.name} mtu {card.mtu} up")
        lines += [f"ip address replace {address} dev {card.name}" for address in card.addresses]
    lines += _tunnel(machine)
    names = {card.name for card in machine.interfaces}
    for route in machine.routes:
        if route.by is None and route.device in names:
            via = f" via {route.via}" if route.via else ""
            lines.append(f"ip route replace {route.destination}{via} dev {route.device}")
    script = WriteFile(_NETWORK, "\n".join(lines) + "\n", 0o755)
    unit = unit_file(
        _NETWORK_UNIT,
        "The lab's network on this machine",
        (
            "Before=network-online.target kubelet.service haproxy.service",
            "After=network-pre.target systemd-udevd.service",
            "Wants=network-pre.target",
        ),
        run_once(_NETWORK),
    )
    return (script, unit, SystemdUnit(_NETWORK_UNIT, inputs_digest((script, unit))))


MEDIUM = "/run/hybridlab/bundle"
MEDIUM_UNIT = "run-hybridlab-bundle.mount"
"""systemd requires the name of a mount unit to match its mount point."""
BIN = "/usr/local/bin"
CNI_BIN = "/opt/cni/bin"
IMPORT_SECONDS = 180.0
"""Seconds for one image: the largest, kube-apiserver's, unpacks to some 100 MB."""


def mount_medium() -> Operations:
    """Mount the medium now and at every start."""
    about = "The lab's bundle: programs and images of Kubernetes"
    device = f"What=/dev/disk/by-label/{LABEL}"
    lines = (device, f"Where={MEDIUM}", "Type=iso9660", "Options=ro")
    unit = unit_file(MEDIUM_UNIT, about, (), lines, section="Mount")
    # never remounted, because programs run from it
    test = (
        f"systemctl is-active --quiet {MEDIUM_UNIT} && systemctl is-enabled --quiet {MEDIUM_UNIT}"
    )
    return (unit, Run(("systemctl", "enable", "--quiet", "--now", MEDIUM_UNIT), unless=test))


def link_programs(wanted: Iterable[str]) -> Iterator[Symlink]:
    """Link the medium's programs to where shells and systemd find them."""
    for name in wanted:
        yield Symlink(f"{BIN}/{name}", f"{MEDIUM}/bin/{name}")


def link_cni_programs(manifest: Manifest) -> Iterator[Symlink]:
    """Link every CNI plugin of the bundle to where containerd looks for them."""
    for program in manifest.programs:
        kind, _, name = program.name.rpartition("/")
        if program.os == "linux" and kind == "cni":
            yield Symlink(f"{CNI_BIN}/{name}", f"{MEDIUM}/cni/{name}")


IMPORT = ("ctr", "-n", "k8s.io", "images", "import", "--local")
"""Followed by the path of an archive, or ``-`` for standard input."""


def import_image(image: ContainerImage) -> Run:
    """Import the image into containerd's store, under its name and with the bundle's digest.

    ``--local``: the transfer service gets the archive in small pieces, which takes two thirds
    longer (26.7 s instead of 16.2 s for kube-scheduler's 49 MB in an emulated guest).
    """
    test = f"ctr -n k8s.io images ls name=={image.name} | grep -q sha256:{image.manifest.sha256}"
    command = (*IMPORT, f"{MEDIUM}/{image_path(image.name)}")
    hint = "check the bundle: 'lab bundle verify'"
    return Run(command, unless=test, seconds=IMPORT_SECONDS, hint=hint)


PAUSE = "registry.k8s.io/pause"
CONTAINERD_UNIT = "containerd.service"
RUNTIME_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
_CRICTL = "crictl"
"""For people; kubeadm and the kubelet no longer need it since 1.31."""


def copy_cni_programs() -> Run:
    """Copy every CNI plugin of the bundle to where containerd looks for them."""
    copy = f"mkdir -p {CNI_BIN} && cp {MEDIUM}/cni/* {CNI_BIN}/"
    return Run(("sh", "-c", copy), unless=f"[ -f {CNI_BIN}/loopback ]")


def run_containerd(manifest: Manifest, host: HostTraits, plugins: Operations) -> Operations:
    """The container runtime with its CNI plugins, and crictl, with their configurations."""
    sandbox = manifest.image(PAUSE).name
    config = WriteFile("/etc/containerd/config.toml", containerd_config(sandbox, host))
    unit = unit_file(
        CONTAINERD_UNIT,
        "containerd",
        ("After=network.target local-fs.target dbus.service", f"RequiresMountsFor={MEDIUM}"),
        (
            f"ExecStart={BIN}/containerd",
            "Type=notify",
            "Delegate=yes",
            "KillMode=process",
            "Restart=always",
            "RestartSec=5",
            "LimitNPROC=infinity",
            "LimitCORE=infinity",
            "TasksMax=infinity",
            "OOMScoreAdjust=-999",
        ),
    )  # as in containerd's own containerd.service
    programs = {program.name for program in manifest.programs if program.os == "linux"}
    links = tuple(link_programs((*RUNTIME_PROGRAMS, *({_CRICTL} & programs))))
    endpoints = {"runtime-endpoint": SOCKET, "image-endpoint": SOCKET, "timeout": 60}
    files: tuple[Operation, ...] = (
        *links,
        *plugins,
        WriteFile("/etc/crictl.yaml", json.dumps(endpoints) + "\n"),
        config,
        unit,
    )
    return (*files, SystemdUnit(CONTAINERD_UNIT, inputs_digest((*links, config, unit))))


def containerd_config(sandbox: str, host: HostTraits) -> str:
    """The configuration of containerd 2.x (version 3).

    The directories of CNI plugins and their configuration are containerd's defaults,
    ``/opt/cni/bin`` and ``/etc/cni/net.d``: their keys differ between 2.0 and 2.1. If processes may
    not lower their OOM score, runc starts pods only if containerd does not ask for it. Privileged
    containers get no devices if kernel and devices are the host's.
    """
    return render_text("cluster/linux/containerd.toml", sandbox=sandbox, host=host, bin=BIN)


KUBELET_UNIT = "kubelet.service"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"


def plain_kubelet(name: str, address: str) -> WriteFile:
    """The unit with all its arguments."""
    words = (
        f"{BIN}/kubelet",
        f"--config={KUBELET_CONFIG}",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        f"--hostname-override={name}",
        f"--node-ip={address}",
    )
    return _kubelet_unit(" \\\n    ".join(words))


def _kubelet_unit(command: str) -> WriteFile:
    return unit_file(
        KUBELET_UNIT,
        "kubelet: The Kubernetes Node Agent",
        (
            "Wants=network-online.target",
            "After=network-online.target containerd.service",
            f"RequiresMountsFor={MEDIUM}",
        ),
        (f"ExecStart={command}", "Restart=always", "StartLimitInterval=0", "RestartSec=10"),
    )


_KUBEADM_DROP_IN = f"""[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config={KUBELET_CONFIG}"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={BIN}/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""  # noqa: E501  systemd's lines are as long as they are


_HAPROXY_CONFIG = "/etc/haproxy/haproxy.cfg"


def balancer_machine(cluster: Cluster, intent: Intent) -> MachineIntent | None:
    """The machine that balances: it has the endpoint's address but is not a control plane."""
    planes = {node.name for node in cluster.control_planes()}
    for machine in intent.machines:
        addresses = [
            str(ip_interface(text).ip) for card in machine.interfaces for text in card.addresses
        ]
        if cluster.endpoint in addresses and machine.name not in planes:
            return machine
    return None


def haproxy_config(cluster: Cluster, intent: Intent, patience: int = 1) -> str:
    """Forward TCP to the API servers that report that they are ready.

    Health checks use the network that the balancer is on, which may be the nodes' second one.
    Servers are picked at random, so that a client that asks often enough meets each of them: with
    round robin, two clients that alternate could each meet only every other server.
    """
    front = balancer_machine(cluster, intent)
    assert front is not None, "only called if there is a balancer"
    segments = [card.segment for card in front.interfaces]
    segment = NODE_SEGMENT if NODE_SEGMENT in segments else segments[0]
    return render_text(
        "cluster/linux/haproxy.cfg",
        port=API_PORT,
        seconds=health_check_seconds(patience),
        servers=[
            (o.name, intent.machine(o.name).address(segment)) for o in cluster.control_planes()
        ],
    )


MARK = "/var/lib/hybridlab/member"
"""What the machine is a member of; exists only while it is a member."""
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
KUBEADM_PROGRAMS = ("kubeadm", "kubectl", "kubelet")
_PLANE_IMAGES = tuple(
    f"registry.k8s.io/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
)
_PROXY_IMAGE = "registry.k8s.io/kube-proxy"


def node_images(
    cluster: Cluster, node: ClusterNode, manifest: Manifest
) -> tuple[ContainerImage, ...]:
    """The images that the node may need."""
    if node.pod_cidr is None:
        return ()
    images = [PAUSE, dns.IMAGE, AGNHOST, *addons()[cluster.topology].images(cluster)]
    if cluster.how == "kubeadm":
        images.append(_PROXY_IMAGE)
        images += _PLANE_IMAGES if node.role == "control-plane" else ()
    return tuple(manifest.image(name) for name in sorted(images))


def prepare_node(
    cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
) -> Operations:
    """Prepare medium, programs, container runtime, images and CNI configuration."""
    own = intent.machine(node.name)
    head = (*prepare_machine(cluster, intent, own), *mount_medium())
    if node.pod_cidr is None:
        return head
    addon = addons()[cluster.topology]
    links = tuple(link_cni_programs(manifest))
    plugins = (copy_cni_programs(),) if addon.writes_plugins else links
    resolver = WriteFile(RESOLVER, f"nameserver {cluster.dns_address}\n")
    kubelet: Operations = ()
    started: Operations = ()
    if cluster.how == "kubeadm":
        # unit and drop-in as in Kubernetes' own packages; kubeadm starts the unit
        kubelet = (
            *link_programs(KUBEADM_PROGRAMS),
            _kubelet_unit(f"{BIN}/kubelet"),
            WriteFile(f"{UNITS}/{KUBELET_UNIT}.d/10-kubeadm.conf", _KUBEADM_DROP_IN),
            Enabled(KUBELET_UNIT),
        )
        # restarts the kubelet of a node that has joined; on others kubeadm starts it
        runs = f"systemctl is-active --quiet {KUBELET_UNIT}"
        start = ("systemctl", "start", KUBELET_UNIT)
        started = (Run(start, unless=f"[ ! -e {MARK} ] || {runs}"),)
    return (
        *head,
        resolver,
        *kubelet,
        *addon.prepare_node(cluster, intent, own),
        *run_containerd(manifest, cluster.host, plugins),
        *(import_image(image) for image in node_images(cluster, node, manifest)),
        *started,
    )


def prepare_balancer(
    cluster: Cluster, intent: Intent, patience: int
) -> tuple[str, Operations] | None:
    """The machine that balances and its operations, or None.

    HAProxy comes with the machine's image.
    """
    balancer = balancer_machine(cluster, intent)
    if balancer is None:
        return None
    config = WriteFile(_HAPROXY_CONFIG, haproxy_config(cluster, intent, patience))
    return balancer.name, (config, SystemdUnit("haproxy.service", inputs_digest((config,))))
