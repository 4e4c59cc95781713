"""A cluster of a thousand nodes, Linux and Windows, whose pods kwok reports as running.

The control plane is a real one, with a scheduler. ``exec`` is answered by
``answering_kubelet.py``, a process of its own, as the kubelet of every node.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from control_plane import ControlPlane

from lab._deadline import Deadline
from lab.machines.cluster.api import NODES, Api, Object

NUMBER, WINDOWS = 1000, 400
ZONES = 3
BUILDS = {"linux": ("6.1.0", "6.12.0"), "windows": ("10.0.17763.6414", "10.0.20348.2762")}
OPTIONS = (
    "--feature-gates=TranslateStreamCloseWebsocketRequests=false",
    "--disable-admission-plugins=TaintNodesByCondition",
)
"""The API server passes WebSockets on to kubelets, instead of translating them to SPDY; new nodes
have no taint, which a controller would have to take away."""
_HERE = Path(__file__).parent
_CALL = 120.0


@contextmanager
def thousand_nodes(directory: Path, programs: Path) -> Iterator[ControlPlane]:
    """The cluster, for the block."""
    plane = ControlPlane(directory, programs, OPTIONS)
    pair = plane.authority.sign("kubelet", addresses=("127.0.0.1",))
    both = directory / "kubelet.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    try:
        plane.start()
        plane.start_scheduler()
        port = _start_kubelet(plane, both)
        api = Api(plane.kubeconfig)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: _make_node(api, number, port), range(NUMBER)))
        _make_dns(api)
        api.close()
        kubeconfig = f"--kubeconfig={plane.kubeconfig}"
        options = ["--manage-all-nodes=true", "--node-lease-duration-seconds=0"]
        plane.run("kwok", [kubeconfig, f"--config={_HERE / 'kwok_stages.yaml'}", *options])
        yield plane
    finally:
        plane.end()


@dataclass(frozen=True)
class TimedCheck:
    """A ``lab check`` that has ended."""

    code: int
    output: str
    story: str
    seconds: float
    beyond: float
    """Seconds after the last probe pod became Ready."""
    processors: float
    """Seconds of them, whatever else the machine does."""
    mib: float
    """Peak memory."""


def timed_check(plane: ControlPlane, directory: Path, *options: str) -> TimedCheck:
    """Run ``lab check`` as a process of its own."""
    environment = os.environ | {
        "KUBECONFIG": str(plane.kubeconfig),
        "HYBRIDLAB_STATE": str(directory / "state"),
    }
    output, story = directory / "output", directory / "story"
    figures = directory / "figures"
    command = [sys.executable, _HERE / "measured.py", figures, "check", *options]
    began = time.monotonic()
    with output.open("wb") as out, story.open("wb") as err:
        check = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        ready = _last_ready(plane, check)
        check.wait()
    ended = time.monotonic()
    processors, kib = map(float, figures.read_text().split())
    return TimedCheck(
        check.returncode,
        output.read_text(),
        story.read_text(),
        ended - began,
        ended - ready,
        processors,
        kib / 1024,
    )


def _last_ready(plane: ControlPlane, check: subprocess.Popen[bytes]) -> float:
    """When the last pod became Ready: they are followed until one is deleted, or the check ends."""
    ready: dict[str, float] = {}
    with closing(Api(plane.kubeconfig)) as api:
        for pod in _follow_pods(api, check):
            if pod["metadata"].get("deletionTimestamp"):
                break
            conditions = (pod.get("status") or {}).get("conditions") or ()
            if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
                ready.setdefault(pod["metadata"]["name"], time.monotonic())
    return max(ready.values(), default=time.monotonic())


def _follow_pods(api: Api, check: subprocess.Popen[bytes]) -> Iterator[Object]:
    version = "0"
    while not os.waitid(os.P_PID, check.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        with closing(api.watch("/api/v1/pods", version, Deadline(_CALL))) as events:
            for _, pod in events:
                version = pod["metadata"]["resourceVersion"]
                yield pod


def _start_kubelet(plane: ControlPlane, certificate: Path) -> int:
    """Start what answers ``exec``; its port."""
    paths = os.pathsep.join(map(str, (_HERE.parent, _HERE.parents[1])))
    kubelet = subprocess.Popen(
        [sys.executable, _HERE / "answering_kubelet.py", plane.kubeconfig, certificate],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
        start_new_session=True,
    )
    plane.processes["kubelet"] = kubelet
    assert kubelet.stdout
    with kubelet.stdout as printed:
        return int(printed.readline())


def _make_node(api: Api, number: int, port: int) -> None:
    system = "windows" if number >= NUMBER - WINDOWS else "linux"
    build = BUILDS[system][number % 2]
    name = f"node-{number:03}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": system,
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
    }
    cidr = f"10.{128 + number // 256}.{number % 256}.0/24"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"172.16.{number // 250}.{number % 250 + 1}"},
                {"type": "Hostname", "address": "127.0.0.1"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": _node_info(system, build),
            "capacity": {"pods": "110", "cpu": "2", "memory": "2Gi"},
            "allocatable": {"pods": "110", "cpu": "2", "memory": "2Gi"},
        },
    }
    api.ask("POST", NODES, Deadline(_CALL), node)


def _node_info(system: str, build: str) -> Object:
    unknown = ("bootID", "kubeProxyVersion", "machineID", "systemUUID")
    return {
        "kubeletVersion": "v1.36.3",
        "osImage": "Windows Server Datacenter" if system == "windows" else f"Debian, {build}",
        "kernelVersion": build,
        "containerRuntimeVersion": "containerd://2.3.7",
        "operatingSystem": system,
        "architecture": "amd64",
        **dict.fromkeys(unknown, ""),
    }


def _make_dns(api: Api) -> None:
    """The Service of a DNS; the kubelets answer for it."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 53, "protocol": "UDP"}]},
    }
    api.ask("POST", "/api/v1/namespaces/kube-system/services", Deadline(_CALL), service)
