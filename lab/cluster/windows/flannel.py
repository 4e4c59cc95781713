"""flanneld on a Windows node: its configuration and how it is started. Pure.

flannel is no Windows service, so a task of the scheduler starts it with the machine. Its sources
(0.28) find the node by ``NODE_NAME`` where it is in no pod.
"""

from __future__ import annotations

import json

from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.windows import places
from lab.cluster.windows.network import WindowsPodNetwork

TASK = "flanneld"
"""The scheduler has it as ``hybridlab-flanneld``."""


def net_conf(cluster: Cluster, network: WindowsPodNetwork) -> str:
    """``net-conf.json``, the same as on the Linux nodes.

    On Windows flanneld takes no VNI below 4096 and no other port than 4789; the scenario is
    refused before.
    """
    backend: dict[str, object] = (
        {"Type": "vxlan", "VNI": network.vni, "Port": network.port}
        if network.kind == "Overlay"
        else {"Type": "host-gw"}
    )
    return json.dumps({"Network": cluster.pod_cidr, "Backend": backend}, indent=2) + "\n"


def arguments(node: ClusterNode) -> tuple[str, ...]:
    """Of ``flanneld.exe``."""
    return (
        "--kube-subnet-mgr",
        f"--iface={node.address}",
        f"--kubeconfig-file={places.FLANNEL_CONF}",
        f"--net-config-path={places.NET_CONF}",
    )


def environment(cluster: Cluster, node: ClusterNode) -> dict[str, str]:
    """What it is told: the API server itself, since no service address works from the host."""
    return {
        "NODE_NAME": node.name,
        "KUBERNETES_SERVICE_HOST": cluster.endpoint,
        "KUBERNETES_SERVICE_PORT": str(API_PORT),
    }


def start_script(cluster: Cluster, node: ClusterNode) -> str:
    """``StartFlanneld.ps1``."""
    told = "\n".join(
        f"[Environment]::SetEnvironmentVariable('{key}', '{value}', 'Process')"
        for key, value in environment(cluster, node).items()
    )
    given = [f"--log-file={places.log(TASK)}", f"{places.PROGRAMS}\\flanneld.exe", *arguments(node)]
    listed = ",\n    ".join(f"'{one}'" for one in given)
    return (
        "Set-StrictMode -Version 3.0\n"
        "$ErrorActionPreference = 'Stop'\n"
        "$ProgressPreference = 'SilentlyContinue'\n"
        f"{told}\n"
        f"$given = @(\n    {listed}\n)\n"
        f"& '{places.PROGRAMS}\\kube-log-runner.exe' @given\n"
        "exit $LASTEXITCODE\n"
    )
