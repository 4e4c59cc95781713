"""What a cluster shows of itself, piece by piece; what cannot be had says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from observed_nodes import WORKER1, windows
from shipped import intent_of as intent

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.lifecycle.evidence import scrub
from lab.machines.evidence import PATHS, EvidenceNode, gather, logs, table
from lab.shells.shell import Completed
from lab.windows.system import WINDOWS

SWAP = "E1121 1 run.go:72] failed to run Kubelet: running with swap on is not supported"
TOKEN = "abcdef.0123456789abcdef"


class LinuxShell:
    """A node that answers a question by a word in it."""

    def __init__(self, answers: Mapping[str, str | Exception]) -> None:
        self.answers, self.asked = answers, []

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del deadline, stdin
        line = command[-1]
        self.asked.append(line)
        for word, answer in self.answers.items():
            if word in line:
                if isinstance(answer, Exception):
                    raise answer
                return Completed(0, answer, "")
        return Completed(1, "", "sh: not found\n")


class WindowsShell:
    """A node that runs the step, or not."""

    name = "win1"

    def __init__(self, said: object, text: str = "") -> None:
        self.said, self.text, self.put_paths, self.removed = said, text, [], []

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        del content, mode, deadline
        self.put_paths.append(path)

    def remove(self, path: str) -> None:
        self.removed.append(path)

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del command, deadline, stdin
        if isinstance(self.said, str):
            return Completed(1, json.dumps({"step": "observe", "error": self.said}), "")
        told = {"step": "observe", "changed": False, "reboot": False, "facts": self.said}
        return Completed(0, json.dumps(told), "")

    def powershell(self, script: str, deadline: Deadline) -> Completed:
        del script, deadline
        return Completed(0, self.text, "")


def windows_node(shell: WindowsShell) -> EvidenceNode:
    return EvidenceNode("win1", shell, WINDOWS)


def api(path: str, deadline: Deadline) -> Mapping[str, Any]:
    del deadline
    if path == PATHS["leases"]:
        raise DeadlineError("asking the API server", "not done within 1 s")
    return {"items": [EVENT]} if path == PATHS["events"] else {"items": []}


EVENT = {
    "metadata": {"name": "x", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
    "type": "Warning",
    "reason": "FailedCreatePodSandBox",
    "count": 3,
    "lastTimestamp": "2026-11-21T20:00:00Z",
    "message": 'node "win1"  is not\nthere; failed to get sandbox image "pause:9": gone',
}


def gathered(nodes: Sequence[object], ask: Callable[..., object] | None = None) -> dict[str, str]:
    return {path: text.decode() for path, text in gather(nodes, ask, Deadline(30))}


def test_a_linux_node_shows_its_facts_and_logs() -> None:
    shell = LinuxShell({"address ip": WORKER1, "--unit=kubelet": SWAP})
    found = gathered([EvidenceNode("worker1", shell)])
    facts = json.loads(found["worker1/cluster/facts.json"])
    assert facts["items"]["link flannel.4096 linkinfo.info_data.id"] == "4096"
    assert found["worker1/cluster/kubelet.log"] == SWAP
    assert found["worker1/cluster/crictl.txt"] == "sh: not found\n"


def test_a_silent_node_is_queried_once_and_reported_with_the_reason() -> None:
    gone = LinuxShell({"": BrokenError("running 'sh' on 'worker2'", "connection refused")})
    found = gathered([EvidenceNode("worker2", gone), EvidenceNode("worker1", LinuxShell({}))])
    assert "connection refused" in found["worker2/cluster/facts.json.missing"]
    assert len(gone.asked) == 1
    assert "worker1/cluster/kubelet.log" in found


def test_a_tool_that_hangs_takes_its_own_piece_only() -> None:
    shell = LinuxShell(
        {"address ip": WORKER1, "crictl pods; ": DeadlineError("running 'sh'", "not done")}
    )
    found = gathered([EvidenceNode("worker1", shell)])
    assert "worker1/cluster/crictl.txt.missing" in found
    assert "worker1/cluster/units.txt" in found


def test_nodes_left_after_the_deadline_are_reported() -> None:
    found = dict(gather([EvidenceNode("worker1", LinuxShell({}))], api, Deadline(1e-9)))
    assert found["worker1/cluster/facts.json.missing"] == b"there was no time left\n"
    assert found["api/nodes.txt.missing"] == b"there was no time left\n"


def test_a_windows_node_is_looked_at_with_its_step() -> None:
    whole = intent("overlay")
    shell = WindowsShell(windows(whole.machine("win1"), whole), SWAP)
    found = gathered([windows_node(shell)])
    assert json.loads(found["win1/cluster/facts.json"])["os"] == "windows"
    assert found["win1/cluster/kube-proxy.log"] == SWAP
    assert shell.removed == [path for path in shell.put_paths if path.endswith(".json")]


def test_a_step_that_fails_does_not_keep_the_logs_away() -> None:
    found = gathered([windows_node(WindowsShell("HNS is not there", SWAP))])
    assert "HNS is not there" in found["win1/cluster/facts.json.missing"]
    assert found["win1/cluster/kubelet.log"] == SWAP


def test_the_api_is_shown_as_tables_with_its_events() -> None:
    found = gathered([], api)
    assert "api/leases.txt.missing" in found
    assert "FailedCreatePodSandBox" in found["api/events.txt"]


def test_an_api_that_never_answers_is_asked_once() -> None:
    asked = []

    def lost(path: str, deadline: Deadline) -> Mapping[str, Any]:
        del deadline
        asked.append(path)
        raise BrokenError("asking the API server", "connection refused")

    assert list(gathered([], lost)) == ["api/nodes.txt.missing"]
    assert len(asked) == 1


def test_logs_alone_are_asked_for_logs_alone() -> None:
    linux = LinuxShell({"--unit=kubelet": SWAP})
    shell = WindowsShell("HNS is not there", SWAP)
    found = dict(logs([EvidenceNode("worker1", linux), windows_node(shell)], Deadline(60)))
    assert found["worker1/kubelet.log"] == SWAP.encode()
    assert found["win1/kube-proxy.log"] == SWAP.encode()
    assert all(path.endswith(".log") for path in found)
    assert all("journalctl" in line or "tail" in line for line in linux.asked)
    assert not shell.put_paths


# SECURITY.md: No secret is on a command line.
@pytest.mark.parametrize(
    "text",
    [
        f"kubeadm join 10.0.0.1:6443 --token {TOKEN}",
        f'I1121 1 token.go:1] "token" value="{TOKEN}"',
        f"    client-key-data: {TOKEN}",
    ],
)
def test_secrets_do_not_leave_in_a_log(text: str) -> None:
    shell = LinuxShell({"address ip": WORKER1, "--unit=kubelet": text})
    found = gathered([EvidenceNode("worker1", shell)])
    content = scrub(found["worker1/cluster/kubelet.log"].encode())
    assert TOKEN.encode() not in content


def test_no_secret_is_asked_for() -> None:
    assert not [path for path in PATHS.values() if "secret" in path or "configmap" in path]
    shell = LinuxShell({})
    gathered([EvidenceNode("worker1", shell)])
    asked = "\n".join(shell.asked)
    for harmless in (  # dates of a certificate, and a question that kubectl asks
        "cd /var/lib/kubelet/pki && [",
        "if [ -s /etc/kubernetes/admin.conf ]",
        "ask dns kubectl --kubeconfig=/etc/kubernetes/admin.conf",
        "ask calico-pools kubectl --kubeconfig=/etc/kubernetes/admin.conf",
        "ask calico-systems kubectl --kubeconfig=/etc/kubernetes/admin.conf",
    ):
        assert harmless in asked
        asked = asked.replace(harmless, "")
    for secret in ("pki", "kubelet.conf", "admin.conf", "token", "kubeconfig"):
        assert secret not in asked


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "win1", "containers": [
        {"name": "c", "env": [{"name": "DB_PASSWORD", "value": "hunter2"}]}]},
    "status": {"phase": "Pending", "podIP": "10.244.3.4", "containerStatuses": [
        {"ready": False, "restartCount": 4, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
}  # fmt: skip
NODE = {
    "metadata": {"name": "win1", "labels": {"node-role.kubernetes.io/worker": ""}},
    "spec": {"podCIDR": "10.244.3.0/24"},
    "status": {
        "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],
        "addresses": [{"type": "InternalIP", "address": "10.9.176.94"}],
        "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Windows Server 2022"},
    },
}
SERVICE = {
    "metadata": {"name": "s", "namespace": "n"},
    "spec": {"type": "NodePort", "clusterIP": "10.96.0.20", "selector": {"b": "2", "a": "1"},
             "ports": [{"port": 80, "nodePort": 30000, "protocol": "UDP"}]},
}  # fmt: skip
SLICE = {
    "metadata": {"name": "s-x", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"}},
    "ports": [{"port": 8080}],
    "endpoints": [
        {"addresses": ["10.244.1.4"], "conditions": {"ready": True}},
        {"addresses": ["10.244.3.4"], "conditions": {"ready": False}},
    ],
}
DAEMONS = {
    "metadata": {"name": "d", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}},
    "status": {"desiredNumberScheduled": 3, "numberReady": 2},
}


@pytest.mark.parametrize(
    ("kind", "item", "words"),
    [
        ("pods", POD, ["n", "p", "0/1", "ImagePullBackOff", "4", "10.244.3.4", "win1"]),
        ("nodes", NODE, ["win1", "NotReady: KubeletNotReady", "worker", "v1.36.3", "10.9.176.94"]),
        ("services", SERVICE, ["NodePort", "10.96.0.20", "80:30000/UDP", "a=1,b=2"]),
        ("endpointslices", SLICE, ["s", "8080", "10.244.1.4, 10.244.3.4 (not ready)"]),
        ("daemonsets", DAEMONS, ["3", "2", "kubernetes.io/os=linux"]),
        ("deployments", {"metadata": {"name": "x"}, "spec": {"replicas": 2}}, ["x", "0/2"]),
        ("leases", {"metadata": {"name": "win1"}, "spec": {"renewTime": "now"}}, ["win1", "now"]),
        ("events", EVENT, ["Warning", "3", 'node "win1" is not there;']),
    ],
)
def test_a_table_shows(kind: str, item: Mapping[str, Any], words: list[str]) -> None:
    heading, line = table(kind, [item]).splitlines()
    assert heading.isupper()
    for word in words:
        assert word in line
    assert "hunter2" not in line


def test_an_empty_table_has_its_heading() -> None:
    assert table("pods", []).split()[:2] == ["NAMESPACE", "NAME"]
