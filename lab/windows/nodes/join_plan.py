"""The steps of a Windows node with their settings, from plan, bundle and observations. Pure.

Formats: flannel's overlay from sig-windows-tools (flannel-overlay.yml), win-bridge's from its own
``sample-v2.conf``, wincni's from the guide "Using Windows Server Containers in Kubernetes". All use
version 2 of HNS' endpoint policies, which containerd's pods need.

HNS networks are built like ``New-HnsNetwork`` of microsoft/SDN builds them. They do not name the
adapter: the step on the node finds it by the node's address, because its name has spaces and
changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from lab._errors import UsageError
from lab.machines.addons.flannel import network_config
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Manifest, Program
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.system import NodeCredentials
from lab.topology.intent import Intent
from lab.windows.cni import dropped_policies
from lab.windows.images import image_steps
from lab.windows.images.image_steps import FirewallRule
from lab.windows.nodes import join_steps, paths
from lab.windows.nodes.join_checks import WindowsObserved, images_for_build, pause_image, takes_flag
from lab.windows.nodes.kubelet import (
    KUBELET_PORT,
    KUBELET_SERVICE,
    config_patch,
    join_document,
    kubelet_command,
    kubelet_config,
    logged_command,
)
from lab.windows.nodes.network import (
    ENDPOINT_OFFSET,
    FLANNELD_PROGRAMS,
    FLANNELD_TASK,
    PAUSE_SECONDS,
    WindowsPodNetwork,
    flanneld_program,
    node_network,
)

Document = dict[str, object]
_CAPABILITIES = {"portMappings": True}
"""What the container runtime gives the plugin for each pod. With ``dns`` it is the pod's own
suffixes, in place of the configuration's: flannel's configuration for Windows has it
(sig-windows-tools), those of the static bridges' documents have not."""


def plugin_config(
    cluster: Cluster, network: WindowsPodNetwork, *, dsr: bool
) -> tuple[str, str] | None:
    """Path and text of the CNI plugin's configuration; None if the add-on writes it.

    ``dsr``: whether kube-proxy uses Direct Server Return, with which a pod reaches itself through a
    Service only if its endpoint has a policy for that (``loopbackDSR``).

    Raises UsageError when the plugin would drop a part of a policy without saying so.
    """
    if network.plugin is None:
        return None
    if network.plugin.startswith("flannel+"):
        name, document = "flannel", _flannel(cluster, network, dsr=dsr)
    else:
        made = _sdnbridge if network.plugin == "sdnbridge" else _win_bridge
        name, document = network.name, made(cluster, network, dsr=dsr)
    for policy in dropped_policies(document):
        raise UsageError(
            f"writing the CNI configuration '{network.name}' of a Windows node",
            f"plugin '{network.plugin}' would drop a part of {policy} without saying so",
            'write the policy as {"Type": ..., "Settings": {...}}',
        )
    return f"{paths.CNI_CONF}\\10-{name}.conf", json_text(document)


def json_text(document: Document) -> str:
    """A document as the text of a file."""
    return json.dumps(document, indent=2) + "\n"


def _flannel(cluster: Cluster, network: WindowsPodNetwork, *, dsr: bool) -> Document:
    assert network.plugin is not None, "only called with a plugin"
    delegate = network.plugin.removeprefix("flannel+")
    delegated: Document = {"type": delegate}
    if delegate == "sdnoverlay":
        delegated["AdditionalArgs"] = list(_policies(network, "SDNROUTE", provider=True))
        delegated["optionalFlags"] = {"loopbackDSR": dsr}
    elif delegate == "sdnbridge":
        delegated["AdditionalArgs"] = list(_policies(network, "SDNRoute"))
        delegated["optionalFlags"] = {"forceBridgeGateway": True, "loopbackDSR": dsr}
    else:
        delegated["apiVersion"] = 2
        delegated["policies"] = list(_policies(network, "SDNRoute", lower=True))
        delegated["dns"] = _dns(cluster)
        delegated["loopbackDSR"] = dsr
    return {
        "name": network.name,
        "cniVersion": "0.2.0",
        "type": "flannel",
        "capabilities": {**_CAPABILITIES, "dns": True},
        "delegate": delegated,
    }


def _win_bridge(cluster: Cluster, network: WindowsPodNetwork, *, dsr: bool) -> Document:
    document: Document = {
        "name": network.name,
        "cniVersion": "0.3.1",
        "type": "win-bridge",
        "apiVersion": 2,
        "capabilities": _CAPABILITIES,
        "dns": _dns(cluster),
        "policies": list(_policies(network, "SDNRoute", lower=True)),
        "loopbackDSR": dsr,
    }
    if not _hns_allocates(cluster):
        # Not for pods: the first two addresses, HNS' gateway and the node's own.
        first = str(IPv4Network(network.pod_cidr)[ENDPOINT_OFFSET + 1])
        document["ipam"] = _host_local({"subnet": network.pod_cidr, "rangeStart": first})
    return document


def _hns_allocates(cluster: Cluster) -> bool:
    """Whether pods get their addresses from HNS, not from an IPAM plugin."""
    return cluster.topology in {"upstream-vrrp", "hard-way"}


def _sdnbridge(cluster: Cluster, network: WindowsPodNetwork, *, dsr: bool) -> Document:
    return {
        "name": network.name,
        "cniVersion": "0.2.0",
        "type": "sdnbridge",
        "capabilities": _CAPABILITIES,
        "ipam": {
            "environment": "azure",
            "subnet": network.pod_cidr,
            "routes": [{"GW": network.endpoint_address}],
        },
        "dns": {"Nameservers": [cluster.dns_address], "Search": [f"svc.{cluster.domain}"]},
        "AdditionalArgs": list(_policies(network, "SDNRoute")),
        "optionalFlags": {"loopbackDSR": dsr},
    }


def _dns(cluster: Cluster) -> Document:
    return {"nameservers": [cluster.dns_address], "search": [f"svc.{cluster.domain}"]}


def _policies(
    network: WindowsPodNetwork, route: str, *, provider: bool = False, lower: bool = False
) -> Iterable[Document]:
    """Endpoint policies; ``lower`` for win-bridge, whose keys are lower case."""
    values: list[Document] = [
        {"Type": "OutBoundNAT", "Settings": {"Exceptions": list(network.exceptions)}}
    ]
    values += [
        {"Type": route, "Settings": {"DestinationPrefix": prefix, "NeedEncap": True}}
        for prefix in network.encapsulated
    ]
    if provider:
        settings = {"ProviderAddress": network.provider_address}
        values.append({"Type": "ProviderAddress", "Settings": settings})
    name, value = ("name", "value") if lower else ("Name", "Value")
    return ({name: "EndpointPolicy", value: policy} for policy in values)


SERVICE = "kube-proxy"


def proxy_command(
    cluster: Cluster,
    node: ClusterNode,
    network: WindowsPodNetwork,
    source_vip: str | None,
    *,
    dsr: bool,
) -> str:
    """The command line of the kube-proxy service.

    ``source_vip``: the source address of Service traffic; an overlay needs one, a bridge must not
    have one. ``dsr``: whether to use Direct Server Return.
    """
    assert (network.kind == "Overlay") == (source_vip is not None), "only an overlay has one"
    given = [
        "--windows-service",
        "--v=2",
        "--proxy-mode=kernelspace",
        f"--hostname-override={node.name}",
        f"--kubeconfig={paths.PROXY_CONF}",
        f"--cluster-cidr={cluster.pod_cidr}",
        f"--bind-address={node.address}",
        f"--enable-dsr={str(dsr).lower()}",
    ]
    if source_vip is not None:
        given.append(f"--source-vip={source_vip}")
    elif network.endpoint != "cbr0":
        given.append(f"--root-hnsendpoint-name={network.endpoint}")
    if takes_flag("kube-proxy", node.version, "--feature-gates"):
        gates = ["WinDSR=true"] if dsr else []
        gates += ["WinOverlay=true"] if network.kind == "Overlay" else []
        given += [f"--feature-gates={','.join(gates)}"] if gates else []
    return logged_command(SERVICE, "kube-proxy.exe", given)


def address_request(network: WindowsPodNetwork) -> str:
    """host-local's request for one of the node's pod addresses, so that no pod gets it.

    For flannel's bridge it is exactly its endpoint's (network + 2): flannel's plugin gives
    host-local the whole pod CIDR, of which that is the first free address.
    """
    wanted: Document = {"subnet": network.pod_cidr}
    if network.kind != "Overlay":
        address = network.endpoint_address
        wanted |= {"rangeStart": address, "rangeEnd": address}
    document = {"cniVersion": "0.2.0", "name": network.name, "ipam": _host_local(wanted)}
    return json.dumps(document)


def _host_local(wanted: Document) -> Document:
    return {"type": "host-local", "ranges": [[wanted]], "dataDir": "/var/lib/cni/networks"}


SERVICES = ("containerd", KUBELET_SERVICE, SERVICE)
"""Services in the order in which they start; each depends on the one before."""
_OF_CONTAINERD = frozenset(
    {"containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe", "crictl.exe"}
)
_MARKS = (paths.KUBELET_CONF, paths.SOURCE_VIP, paths.CNI_STATE)


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The plan for one Windows node."""

    cluster: Cluster
    intent: Intent
    node: ClusterNode
    manifest: Manifest
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its Node, beside Kubernetes' own."""
    pause: int = PAUSE_SECONDS
    """Seconds before each start of what makes HNS networks, which on Windows cuts the node off its
    network for seconds: by then the caller has its answer."""

    @property
    def network(self) -> WindowsPodNetwork:
        """Its pod network; UsageError if the topology has none on Windows."""
        return node_network(self.cluster, self.intent, self.node)

    @property
    def by_hand(self) -> bool:
        """Whether it joins without kubeadm."""
        return self.cluster.how == "by-hand"

    def survey(self) -> join_steps.NodeSurvey:
        """The first step, which only reads."""
        return join_steps.NodeSurvey(self.node.address, medium.LABEL, _MARKS)

    def leave(self) -> join_steps.NodeLeave:
        """Remove what an earlier membership left."""
        return join_steps.NodeLeave(
            stop=tuple(reversed(SERVICES)),
            services=(SERVICE, KUBELET_SERVICE),
            tasks=(FLANNELD_TASK, "hns-make"),
            paths=(
                paths.KUBELET_CONF,
                paths.BOOTSTRAP_CONF,
                paths.KUBELET_CONFIG,
                paths.KUBEADM_FLAGS,
                paths.PATCHES,
                f"{paths.PKI}\\ca.crt",
                f"{paths.KUBELET}\\pki",
                paths.SOURCE_VIP,
                paths.SOURCE_VIP_REQUEST,
                paths.CNI_STATE,
                paths.CNI_CONF,
                paths.PROXY_CONF,
                paths.FLANNEL_CONF,
                paths.FLANNEL_PROGRAM,
                paths.SUBNET_ENV,
            ),
            programs=FLANNELD_PROGRAMS,
        )

    def bundle_programs(self) -> tuple[Program, ...]:
        """The bundle's programs for Windows, as they are on the medium."""
        return tuple(
            program
            for program in self.manifest.programs
            if program.os == "windows" and not program.is_archive
        )

    def bundle(self, in_place: Collection[str] = ()) -> join_steps.NodeBundle:
        """Copy programs from the medium. ``in_place``: the names of those that need no copy."""
        files = tuple(
            join_steps.BundleFile(medium.program_path(o.name), program_path(o.name), o.blob.sha256)
            for o in self.bundle_programs()
            if o.name not in in_place
        )
        return join_steps.NodeBundle(medium.LABEL, files, tuple(reversed(SERVICES)))

    def containerd(self, observed: WindowsObserved) -> image_steps.Containerd:
        """The container runtime, whose programs the bundle step has copied."""
        return image_steps.Containerd(pause_image(self.manifest, observed.build))

    def images(self, observed: WindowsObserved) -> join_steps.NodeImages:
        """Import its container images."""
        wanted = images_for_build(self.manifest, observed.build)
        return join_steps.NodeImages(
            medium.LABEL,
            tuple(
                join_steps.ImageFile(medium.image_path(image.name), image.name) for image in wanted
            ),
        )

    def files(self, join: NodeCredentials) -> join_steps.NodeFiles:
        """Folders, links, and the files from the control plane. Secret."""
        files = [_secret_file(paths.PROXY_CONF, join.proxy_kubeconfig)]
        if join.by_hand is not None:
            files += [
                _secret_file(paths.KUBELET_CONF, join.by_hand.kubelet_kubeconfig),
                join_steps.NodeFile(f"{paths.PKI}\\ca.crt", join.by_hand.ca.decode("ascii")),
                join_steps.NodeFile(f"{paths.KUBELET_PAIR}.crt", join.by_hand.serving.certificate),
                _secret_file(f"{paths.KUBELET_PAIR}.key", join.by_hand.serving.key.encode()),
                join_steps.NodeFile(paths.KUBELET_CONFIG, kubelet_config(self.cluster)),
            ]
        else:
            files.append(join_steps.NodeFile(paths.KUBELET_PATCH, config_patch()))
        logs = [
            paths.log_file(task).rpartition("\\")[0]
            for task in (KUBELET_SERVICE, SERVICE, *self._tasks())
        ]
        return join_steps.NodeFiles(
            folders=(paths.PKI, paths.MANIFESTS, paths.CNI_CONF, *logs),
            files=tuple(files),
            links=(join_steps.NodeLink(paths.KUBELET_PKI, paths.PKI),),
        )

    def firewall(self) -> image_steps.Firewall:
        """Open ports: kubelet, NodePorts, the tunnel if there is one; and answers to ping."""
        rules = [
            FirewallRule("ping", "ICMPv4"),
            FirewallRule("kubelet", "TCP", (str(KUBELET_PORT),)),
            FirewallRule("nodeports-tcp", "TCP", ("30000-32767",)),
            FirewallRule("nodeports-udp", "UDP", ("30000-32767",)),
        ]
        if self.network.port is not None:
            rules.append(FirewallRule("vxlan", "UDP", (str(self.network.port),)))
        return image_steps.Firewall(tuple(rules))

    def kubelet(self, observed: WindowsObserved, *, start: bool) -> join_steps.NodeService:
        """The kubelet service; before ``kubeadm join`` it has no configuration to start with."""
        pause = pause_image(self.manifest, observed.build)
        return join_steps.NodeService(
            service=KUBELET_SERVICE,
            command=kubelet_command(self.node, pause, self.labels, by_hand=self.by_hand),
            depends=("containerd",),
            environment=(),
            flags_file=None if self.by_hand else paths.KUBEADM_FLAGS,
            watched=(paths.KUBELET_CONFIG,),
            start=start,
            clear_policies=False,
        )

    def join(self, join: NodeCredentials) -> join_steps.NodeJoin:
        """Run ``kubeadm join``. Secret."""
        return join_steps.NodeJoin(
            document=join_document(self.node, join),
            kubeadm=f"{paths.PROGRAMS}\\kubeadm.exe",
            joined=paths.KUBELET_CONF,
            stale=(paths.BOOTSTRAP_CONF, f"{paths.PKI}\\ca.crt", paths.KUBEADM_FLAGS),
            service=KUBELET_SERVICE,
        )

    def hns_network(self) -> join_steps.HnsNetwork | None:
        """The networks that the lab creates; None if the add-on creates them all."""
        network = self.network
        if network.kind == "Overlay":
            return None
        subnet = {"AddressPrefix": network.pod_cidr, "GatewayAddress": network.gateway}
        endpoint: Document = {
            "Name": network.endpoint,
            "IPAddress": network.endpoint_address,
            "GatewayAddress": "0.0.0.0",  # noqa: S104  on the link, says HNS' language
            "Policies": [],
        }
        return join_steps.HnsNetwork(
            address=self.node.address,
            networks=(
                _compact_json({"Type": network.kind, "Name": network.name, "Subnets": [subnet]}),
            ),
            endpoint=_compact_json(endpoint) if network.maker == "lab" else None,
            attachment=_compact_json({"SystemType": "Host", "CompartmentId": 1}),  # the host's own
            settle_seconds=self.pause,
        )

    def hns_state(self) -> join_steps.HnsState:
        """The state of the networks."""
        tasks = ("hns-make", *self._tasks())
        return join_steps.HnsState(self.node.address, (paths.SUBNET_ENV,), tasks)

    def flannel_files(self, join: NodeCredentials) -> join_steps.NodeFiles:
        """The files that flanneld reads. Secret."""
        assert join.network_kubeconfig is not None, "only called with flannel"
        return join_steps.NodeFiles(
            folders=(),
            files=(
                _secret_file(paths.FLANNEL_CONF, join.network_kubeconfig),
                join_steps.NodeFile(paths.NET_CONF, network_config(self.cluster, self.intent)),
                join_steps.NodeFile(
                    paths.FLANNEL_PROGRAM,
                    json_text(flanneld_program(self.cluster, self.node, self.network, self.pause)),
                ),
            ),
        )

    @staticmethod
    def flannel_task() -> join_steps.NodeTask:
        """flanneld, started with the machine."""
        return join_steps.NodeTask(
            task=FLANNELD_TASK,
            script=paths.KEEPER,
            settings=paths.FLANNEL_PROGRAM,
            programs=FLANNELD_PROGRAMS,
            watched=(paths.NET_CONF, paths.FLANNEL_CONF),
        )

    def plugin_files(self, observed: WindowsObserved) -> join_steps.NodeFiles | None:
        """The plugin's configuration, alone in its folder; written last: it makes nodes Ready."""
        made = plugin_config(self.cluster, self.network, dsr=self._dsr(observed))
        if made is None:
            return None
        return join_steps.NodeFiles((), (join_steps.NodeFile(*made),), alone=(paths.CNI_CONF,))

    def source_vip(self) -> join_steps.SourceVip | None:
        """Reserve an address that no pod gets; None if none is needed."""
        network = self.network
        if network.kind != "Overlay" and network.maker != "flannel":
            return None
        return join_steps.SourceVip(
            plugin=f"{paths.CNI_BIN}\\host-local.exe",
            request=address_request(network),
            request_file=paths.SOURCE_VIP_REQUEST,
            answer_file=paths.SOURCE_VIP,
            container="dummy",
            endpoint=network.endpoint if network.maker == "calico" else None,
        )

    def proxy(self, observed: WindowsObserved, source_vip: str | None) -> join_steps.NodeService:
        """The kube-proxy service."""
        vip = source_vip if self.network.kind == "Overlay" else None
        return join_steps.NodeService(
            service=SERVICE,
            command=proxy_command(
                self.cluster, self.node, self.network, vip, dsr=self._dsr(observed)
            ),
            depends=(KUBELET_SERVICE,),
            environment=(f"KUBE_NETWORK={self.network.name}",),
            flags_file=None,
            watched=(paths.PROXY_CONF,),
            start=True,
            clear_policies=True,
        )

    def routes(self) -> join_steps.NodeRoutes:
        """AddRoutes; an empty list, as for most topologies, removes old ones."""
        routes = [join_steps.NodeRoute(o.destination, o.via) for o in self.network.routes if o.via]
        return join_steps.NodeRoutes(self.node.address, tuple(routes))

    def health(self) -> join_steps.NodeHealth:
        """Services and tasks that must survive a restart."""
        return join_steps.NodeHealth(SERVICES, self._tasks())

    def _dsr(self, observed: WindowsObserved) -> bool:
        """Whether kube-proxy uses Direct Server Return: an old 2019 has none.

        Nor where HNS allocates the pods' addresses: the plugin would then give a pod's way to
        itself (``loopbackDSR``) the destination "<nil>".
        """
        return observed.dsr and not _hns_allocates(self.cluster)

    def _tasks(self) -> tuple[str, ...]:
        return (FLANNELD_TASK,) if self.network.maker == "flannel" else ()


def program_path(program: str) -> str:
    """The path of a program of the bundle on a Windows node."""
    if program.startswith("cni/"):
        return f"{paths.CNI_BIN}\\{program.removeprefix('cni/')}"
    folder = paths.CONTAINERD if program in _OF_CONTAINERD else paths.PROGRAMS
    return f"{folder}\\{program}"


def _secret_file(path: str, content: bytes) -> join_steps.NodeFile:
    return join_steps.NodeFile(path, content.decode("ascii"), secret=True)


def _compact_json(document: Document) -> str:
    return json.dumps(document, separators=(",", ":"))
