"""Every step of a node with its settings, decided from plan, bundle and what was observed. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lab.cluster.bundle import medium
from lab.cluster.bundle.manifest import Manifest, Program
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.windows import (
    cni,
    flannel,
    hns,
    images,
    kubelet,
    network,
    places,
    proxy,
    steps,
)
from lab.cluster.windows.join import Join
from lab.cluster.windows.network import NodeNetwork
from lab.cluster.windows.observed import Observed
from lab.imaging.windows import steps as image_steps
from lab.imaging.windows.steps import Mirror, Rule
from lab.topology.intent import Intent

SERVICES = ("containerd", kubelet.SERVICE, proxy.SERVICE)
"""In the order in which they start: each depends on the one before."""
_OF_CONTAINERD = frozenset(
    {"containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe", "crictl.exe"}
)
_MARKS = (places.KUBELET_CONF, places.SOURCE_VIP, places.CNI_STATE)


@dataclass(frozen=True, slots=True)
class Decided:
    """One Windows node: what it is to become."""

    cluster: Cluster
    intent: Intent
    node: ClusterNode
    manifest: Manifest
    mirrors: tuple[Mirror, ...] = ()

    @property
    def network(self) -> NodeNetwork:
        """Its pod network; UsageError where the topology has none on Windows."""
        return network.node_network(self.cluster, self.intent, self.node)

    @property
    def by_hand(self) -> bool:
        """Whether it joins without kubeadm."""
        return self.cluster.how == "by-hand"

    def survey(self) -> steps.NodeSurvey:
        """What is asked first."""
        return steps.NodeSurvey(self.node.address, medium.LABEL, _MARKS)

    def leave(self) -> steps.NodeLeave:
        """What an earlier life left."""
        return steps.NodeLeave(
            stop=tuple(reversed(SERVICES)),
            services=(proxy.SERVICE, kubelet.SERVICE),
            tasks=(flannel.TASK, "hns-make"),
            paths=(
                places.KUBELET_CONF,
                places.BOOTSTRAP_CONF,
                places.KUBELET_CONFIG,
                places.KUBEADM_FLAGS,
                f"{places.PKI}\\ca.crt",
                f"{places.KUBELET}\\pki",
                places.SOURCE_VIP,
                places.SOURCE_VIP_REQUEST,
                places.CNI_STATE,
                places.CNI_CONF,
                places.PROXY_CONF,
                places.FLANNEL_CONF,
                places.FLANNEL_START,
                places.SUBNET_ENV,
            ),
        )

    def bundle_programs(self) -> tuple[Program, ...]:
        """Those of the bundle that are for Windows."""
        return tuple(one for one in self.manifest.programs if one.os == "windows")

    def bundle(self) -> steps.NodeBundle:
        """Its programs."""
        files = tuple(
            steps.BundleFile(medium.program_path(one.name), _place(one.name), one.blob.sha256)
            for one in self.bundle_programs()
        )
        return steps.NodeBundle(medium.LABEL, files, tuple(reversed(SERVICES)))

    def containerd(self, seen: Observed) -> image_steps.Containerd:
        """The runtime, whose programs the bundle has brought."""
        return image_steps.Containerd(None, None, images.pause(self.manifest, seen.build))

    def registry_mirrors(self) -> image_steps.RegistryMirrors:
        """The lab's own registry."""
        return image_steps.RegistryMirrors(self.mirrors)

    def images(self, seen: Observed) -> steps.NodeImages:
        """Its container images."""
        wanted = images.for_build(self.manifest, seen.build)
        return steps.NodeImages(
            medium.LABEL,
            tuple(steps.ImageFile(medium.image_path(one.name), one.name) for one in wanted),
        )

    def files(self, join: Join) -> steps.NodeFiles:
        """Folders, links, and what the control plane gives. Secret."""
        files = [_secret(places.PROXY_CONF, join.proxy_kubeconfig)]
        if join.by_hand is not None:
            files += [
                _secret(places.KUBELET_CONF, join.by_hand.kubelet_kubeconfig),
                steps.NodeFile(f"{places.PKI}\\ca.crt", join.by_hand.ca.decode("ascii")),
                steps.NodeFile(places.KUBELET_CONFIG, kubelet.configuration(self.cluster)),
            ]
        return steps.NodeFiles(
            folders=(
                places.PKI,
                places.CNI_CONF,
                *(places.log(one).rpartition("\\")[0] for one in _logging(self.network)),
            ),
            files=tuple(files),
            links=(steps.NodeLink(places.KUBELET_PKI, places.PKI),),
        )

    def firewall(self) -> image_steps.Firewall:
        """What the node lets in: its kubelet, NodePorts, and the tunnel where there is one."""
        rules = [
            Rule("kubelet", "TCP", (str(kubelet.PORT),)),
            Rule("nodeports-tcp", "TCP", ("30000-32767",)),
            Rule("nodeports-udp", "UDP", ("30000-32767",)),
        ]
        if self.network.port is not None:
            rules.append(Rule("vxlan", "UDP", (str(self.network.port),)))
        return image_steps.Firewall(tuple(rules))

    def kubelet(self, seen: Observed, *, start: bool) -> steps.NodeService:
        """The kubelet; before ``kubeadm join`` it has no configuration to start with."""
        pause = images.pause(self.manifest, seen.build)
        return steps.NodeService(
            service=kubelet.SERVICE,
            command=kubelet.command(self.node, pause, by_hand=self.by_hand),
            depends=("containerd",),
            environment=(),
            flags_file=None if self.by_hand else places.KUBEADM_FLAGS,
            watched=(places.KUBELET_CONFIG,),
            start=start,
            clear_policies=False,
        )

    def join(self, join: Join) -> steps.NodeJoin:
        """``kubeadm join``. Secret."""
        return steps.NodeJoin(
            document=kubelet.join_document(self.node, join),
            kubeadm=f"{places.PROGRAMS}\\kubeadm.exe",
            joined=places.KUBELET_CONF,
            stale=(places.BOOTSTRAP_CONF, f"{places.PKI}\\ca.crt", places.KUBEADM_FLAGS),
            service=kubelet.SERVICE,
        )

    def hns_network(self) -> steps.HnsNetwork | None:
        """Networks that the lab makes; None where somebody else makes them all."""
        made, own = hns.networks(self.network), hns.endpoint(self.network)
        if not made:
            return None
        return steps.HnsNetwork(
            address=self.node.address,
            networks=tuple(_json(one) for one in made),
            endpoint=None if own is None else _json(own),
            attachment=_json(hns.attachment()),
        )

    def hns_state(self) -> steps.HnsState:
        """How far networks are."""
        task = (flannel.TASK,) if self.network.maker == "flannel" else ()
        return steps.HnsState(self.node.address, (places.SUBNET_ENV,), ("hns-make", *task))

    def flannel_files(self, join: Join) -> steps.NodeFiles:
        """What flanneld reads. Secret."""
        assert join.network_kubeconfig is not None, "asked for where flannel runs"
        return steps.NodeFiles(
            folders=(),
            files=(
                _secret(places.FLANNEL_CONF, join.network_kubeconfig),
                steps.NodeFile(places.NET_CONF, flannel.net_conf(self.cluster, self.network)),
                steps.NodeFile(places.FLANNEL_START, flannel.start_script(self.cluster, self.node)),
            ),
        )

    @staticmethod
    def flannel_task() -> steps.NodeTask:
        """flanneld, started with the machine."""
        return steps.NodeTask(
            flannel.TASK, places.FLANNEL_START, (places.NET_CONF, places.FLANNEL_CONF)
        )

    def plugin_files(self) -> steps.NodeFiles | None:
        """The plugin's configuration, alone in its folder; written last: it makes a node Ready."""
        made = cni.configuration(self.cluster, self.network)
        if made is None:
            return None
        return steps.NodeFiles((), (steps.NodeFile(*made),), alone=(places.CNI_CONF,))

    def source_vip(self) -> steps.SourceVip | None:
        """The address that no pod may get; None where nobody hands it out."""
        one = self.network
        request = (
            proxy.source_vip_request(one) if one.kind == "Overlay" else proxy.endpoint_request(one)
        )
        if one.kind != "Overlay" and one.maker != "flannel":
            return None
        return steps.SourceVip(
            plugin=f"{places.CNI_BIN}\\host-local.exe",
            request=request,
            request_file=places.SOURCE_VIP_REQUEST,
            answer_file=places.SOURCE_VIP,
            container="dummy",
            endpoint=one.endpoint if one.maker == "calico" else None,
        )

    def proxy(self, seen: Observed, source_vip: str | None) -> steps.NodeService:
        """kube-proxy."""
        vip = source_vip if self.network.kind == "Overlay" else None
        return steps.NodeService(
            service=proxy.SERVICE,
            command=proxy.command(self.cluster, self.node, self.network, seen, vip),
            depends=(kubelet.SERVICE,),
            environment=proxy.environment(self.network),
            flags_file=None,
            watched=(places.PROXY_CONF,),
            start=True,
            clear_policies=True,
        )

    def routes(self) -> steps.NodeRoutes:
        """AddRoutes; none for most topologies, which takes old ones away."""
        return steps.NodeRoutes(
            self.node.address,
            tuple(
                steps.NodeRoute(route.destination, route.via)
                for route in self.network.routes
                if route.via is not None
            ),
        )

    def health(self) -> steps.NodeHealth:
        """Services and tasks that must outlive a restart."""
        tasks = (flannel.TASK,) if self.network.maker == "flannel" else ()
        return steps.NodeHealth(SERVICES, tasks)


def _logging(one: NodeNetwork) -> tuple[str, ...]:
    tasks = (flannel.TASK,) if one.maker == "flannel" else ()
    return (kubelet.SERVICE, proxy.SERVICE, *tasks)


def _place(program: str) -> str:
    if program.startswith("cni/"):
        return f"{places.CNI_BIN}\\{program.removeprefix('cni/')}"
    folder = places.CONTAINERD if program in _OF_CONTAINERD else places.PROGRAMS
    return f"{folder}\\{program}"


def _secret(path: str, content: bytes) -> steps.NodeFile:
    return steps.NodeFile(path, content.decode("ascii"), secret=True)


def _json(document: hns.Document) -> str:

    return json.dumps(document, separators=(",", ":"))
