"""Pods on a Wine node: a Windows program in one is a stranger to its node and to other pods."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator

import pytest
from container_labs import ContainerLabs
from scenario_clusters import brought_up
from test_wine_node import CONTROL_PLANE, NODE, SCENARIO, kubectl, linux
from wine_labs import new_labs

from lab.topology.observed import NAMESPACE

pytestmark = pytest.mark.clusters
LAB = "wine-pods"
KEPT = "/root/kept"
"""A folder of the node's Linux."""
WAIT = "--timeout=120s"
POD = r"""
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
"""
PLANTED = (
    POD.replace("NAME", "planted")
    + r"""
  initContainers:
    - name: plant
      image: IMAGE
      command: [tar, xf, 'C:\plan\links.tar', -C, 'C:\volume']
      volumeMounts: [{name: plan, mountPath: 'C:\plan'}, {name: volume, mountPath: 'C:\volume'}]
  containers:
    - name: web
      image: IMAGE
      volumeMounts: [{name: volume, mountPath: 'C:\seen', subPath: LINK}]
  volumes: [{name: plan, configMap: {name: plan}}, {name: volume, emptyDir: {}}]
"""
)
"""A pod whose first container makes links in a volume; the second mounts what one leads to."""
MOUNTING = (
    POD.replace("NAME", "mounting")
    + r"""
  containers: [{name: web, image: IMAGE, volumeMounts: [{name: volume, mountPath: 'C:\seen'}]}]
  volumes: [{name: volume, hostPath: {path: 'PATH'}}]
"""
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerLabs]:
    """A cluster with a Wine node, on whose Linux is a folder that no pod may see or remove."""
    labs = new_labs(tmp_path_factory)
    with brought_up(labs, str(SCENARIO), "kubernetes", LAB, only=None):
        linux(labs, NODE, "sh", "-c", f"mkdir {KEPT}; echo kept >{KEPT}/file")
        yield labs


def image(lab: ContainerLabs) -> str:
    """The image of Windows pods."""
    path = "jsonpath={.spec.containers[0].image}"
    return kubectl(lab, "get", "pod", f"--namespace={NAMESPACE}", f"{NODE}-p1", "-o", path)


def applied(lab: ContainerLabs, manifest: str) -> str:
    """Apply documents, with the image of Windows pods; returns what kubectl prints."""
    text = manifest.replace("IMAGE", image(lab))
    linux(lab, CONTROL_PLANE, "sh", "-c", f"cat >/root/applied.yaml <<'END'\n{text}\nEND\n")
    return kubectl(lab, "apply", "--filename=/root/applied.yaml")


def gone(lab: ContainerLabs, pod: str) -> None:
    """Delete a pod, and wait until its volumes are gone too."""
    uid = kubectl(lab, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
    kubectl(lab, "delete", "pod", pod, WAIT)
    volumes = f"/var/lib/kubelet/pods/{uid}/volumes"
    look = f"for n in $(seq 600); do [ -e {volumes} ] || exit 0; sleep 0.1; done; ls {volumes}"
    assert linux(lab, NODE, "sh", "-c", look) == ""


def planted(lab: ContainerLabs, name: str, target: str) -> None:
    """A ConfigMap with an archive that has one link."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.SYMTYPE, target
        archive.addfile(member)
    text = base64.b64encode(content.getvalue()).decode()
    kubectl(lab, "delete", "configmap", "plan", "--ignore-not-found")
    applied(
        lab,
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan}\n"
        f"binaryData: {{links.tar: {text}}}\n",
    )


def in_pod(lab: ContainerLabs, *command: str, pod: str = f"{NODE}-p1") -> str:
    """What a command prints in a probe pod."""
    return kubectl(lab, "exec", f"--namespace={NAMESPACE}", pod, "--", *command)


def read(lab: ContainerLabs, pod: str, path: str) -> str:
    """A file of Linux, as a pod sees it."""
    windows = ("curl", "--silent", f"file://{path}")
    return in_pod(lab, *(windows if pod.startswith(NODE) else ("cat", path)), pod=pod)


def refusal(lab: ContainerLabs, pod: str, reason: str) -> str:
    """Why a pod's container is not made, once the reason is this one."""
    waiting = "jsonpath={.status.containerStatuses[0].state.waiting"
    refused = ("wait", f"pod/{pod}", WAIT, f"--for={waiting}.reason}}={reason}")
    assert "condition met" in kubectl(lab, *refused)
    return kubectl(lab, "get", "pod", pod, "-o", f"{waiting}.message}}")


@pytest.mark.parametrize("target", [KEPT, "../../../../../../../../../../../../root/kept"])
def test_a_link_in_a_volume_leads_no_container_to_the_nodes_files(
    lab: ContainerLabs, target: str
) -> None:
    planted(lab, "link", target)
    applied(lab, PLANTED.replace("LINK", "link"))
    assert "subPath" in refusal(lab, "planted", "CreateContainerConfigError")
    gone(lab, "planted")


def test_a_link_in_a_volume_does_not_lead_its_removal_to_the_nodes_files(
    lab: ContainerLabs,
) -> None:
    planted(lab, "link", KEPT)
    applied(lab, PLANTED.replace("subPath: LINK", "readOnly: true"))
    assert "condition met" in kubectl(lab, "wait", "pod/planted", WAIT, "--for=condition=Ready")
    gone(lab, "planted")
    assert linux(lab, NODE, "cat", f"{KEPT}/file") == "kept"


def test_a_windows_program_has_the_rights_of_a_linux_pods(lab: ContainerLabs) -> None:
    named = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    rights = [
        [
            line
            for line in read(lab, pod, "/proc/self/status").splitlines()
            if line.startswith(named)
        ]
        for pod in (f"{NODE}-p1", f"{CONTROL_PLANE}-p1")
    ]
    assert rights[0]
    assert rights[0] == rights[1]


def protected(lab: ContainerLabs, pod: str) -> set[tuple[str, bool]]:
    """Mounts over the kernel's own files, and whether they can be written."""
    lines = (line.split() for line in read(lab, pod, "/proc/self/mountinfo").splitlines())
    return {
        (words[4], words[5].startswith("rw"))
        for words in lines
        if words[4].startswith(("/proc", "/sys")) and not words[4].startswith("/sys/fs/cgroup")
    }


def test_a_windows_program_cannot_write_the_kernels_settings(lab: ContainerLabs) -> None:
    windows, other = (protected(lab, pod) for pod in (f"{NODE}-p1", f"{CONTROL_PLANE}-p1"))
    assert ("/proc/sys", False) in windows
    assert windows == other


def test_drive_z_is_the_pods_own_root(lab: ContainerLabs) -> None:
    assert "drive_c" in in_pod(lab, "cmd", "/c", r"dir Z:\wine")
    printed = in_pod(lab, "cmd", "/c", r"dir Z:\root & dir Z:\run & dir Z:\var")
    for of_the_node in ("kept", "containerd", "hybridlab", "systemd"):
        assert of_the_node not in printed
    assert "kubelet" not in in_pod(lab, "tasklist")


def test_a_windows_program_has_a_linux_pods_devices(lab: ContainerLabs) -> None:
    windows = in_pod(lab, "cmd", "/c", r"dir /b Z:\dev").split()
    other = in_pod(lab, "ls", "/dev", pod=f"{CONTROL_PLANE}-p1").split()
    assert set(windows) <= set(other)


@pytest.mark.parametrize(
    "path",
    [
        "/run/containerd/containerd.sock",
        "/run/hybridlab-powershell.socket",
        "/run/systemd/private",
    ],
)
def test_a_windows_program_reaches_no_socket_of_its_node(lab: ContainerLabs, path: str) -> None:
    assert linux(lab, NODE, "sh", "-c", f"[ -S {path} ] && echo there") == "there"
    command = ("curl", "--silent", "--unix-socket", path, "--write-out", "%{exitcode}", "http://x/")
    assert in_pod(lab, *command).endswith("7")  # it could not connect


@pytest.mark.parametrize("port", [10010, 10011, 18081])
def test_the_nodes_own_services_answer_no_pod(lab: ContainerLabs, port: int) -> None:
    """The container runtime, the lab's commands and HNS."""
    path = "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"
    address = kubectl(lab, "get", "node", NODE, "-o", path)
    for host in (address, "127.0.0.1", "10.244.1.1"):
        command = ("curl", "--silent", "--max-time", "3", "--write-out", "%{exitcode}")
        assert in_pod(lab, *command, f"telnet://{host}:{port}")[-2:] in {"7", "28"}


@pytest.mark.parametrize("path", [r"\\.\pipe\containerd-containerd", r"D:\programs"])
def test_a_mount_of_what_is_not_on_drive_c_is_refused(lab: ContainerLabs, path: str) -> None:
    applied(lab, MOUNTING.replace("PATH", path))
    assert "is not on drive C" in refusal(lab, "mounting", "CreateContainerError")
    gone(lab, "mounting")


@pytest.mark.parametrize("user", ["ContainerUser"])
def test_a_user_whom_wine_has_not_is_refused(lab: ContainerLabs, user: str) -> None:
    options = f"  securityContext: {{windowsOptions: {{runAsUserName: {user}}}}}\n"
    web = "  containers: [{name: web, image: IMAGE}]\n"
    applied(lab, POD.replace("NAME", "user") + options + web)
    words = refusal(lab, "user", "CreateContainerError")
    assert f"runAsUserName '{user}' cannot be kept" in words
    gone(lab, "user")


OLD_FORM = r"""
import json, pathlib
file = next(iter(sorted(pathlib.Path("/etc/cni/net.d").glob("*.conf"))))
document = json.loads(file.read_text())
for entry in document["delegate"]["AdditionalArgs"]:
    settings = entry["Value"].pop("Settings")
    entry["Value"] |= {"ExceptionList": settings.get("Exceptions", [])}
file.with_suffix(".kept").write_text(file.read_text())
file.write_text(json.dumps(document))
"""
"""Writes the policies of the node's CNI configuration in the form of HNS' first version."""


def test_a_policy_that_the_plugin_would_drop_silently_is_named(lab: ContainerLabs) -> None:
    linux(lab, NODE, "python3", "-c", OLD_FORM)
    differs = lab.run("status", LAB, "--deep", code=1).stdout
    assert "the plugin drops a part of" in differs
    assert "OutBoundNAT" in differs
    linux(lab, NODE, "sh", "-c", "cd /etc/cni/net.d && mv 10-flannel.kept 10-flannel.conf")
    assert "every machine is as intended" in lab.run("status", LAB, "--deep").stdout
