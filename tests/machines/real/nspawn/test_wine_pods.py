"""Pods on a Wine node, as people write them. A program in one is a stranger to its node."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle.image_archives import Entry, Image, write_image
from container_labs import ContainerLabs
from scenario_clusters import brought_up
from test_wine_node import CONTROL_PLANE, NODE, SCENARIO, kubectl, linux
from wine_labs import new_labs

from lab._deadline import Deadline
from lab.topology.observed import NAMESPACE

pytestmark = pytest.mark.clusters
LAB = "wine-pods"
KEPT = "/root/kept"
"""A folder of the node's Linux."""
WAIT = "--timeout=120s"
KUBECTL = "/usr/local/bin/kubectl --kubeconfig=/etc/kubernetes/admin.conf"
"""In a shell of the control plane."""
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


WRITTEN = (
    r"""
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOUR: green}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: of a secret}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: windows}
handler: runhcs-wcow-process
scheduling: {nodeSelector: {kubernetes.io/os: windows}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      tolerations: [{key: os, operator: Exists}]
      runtimeClassName: windows
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: IMAGE}]
"""
    "---"
    + POD.replace("NAME", "whole").replace("Seconds: 1", "Seconds: 60")
    + r"""
  initContainers:
    - name: first
      image: IMAGE
      command: [cmd, /c, 'echo of the first> C:\shared\first']
      volumeMounts: [{name: shared, mountPath: 'C:\shared'}]
    - name: beside
      image: IMAGE
      args: [netexec, --http-port=8090, --udp-port=8091]
      restartPolicy: Always
      startupProbe: {httpGet: {port: 8090, path: /healthz}, periodSeconds: 1, failureThreshold: 90}
  containers:
    - name: web
      image: IMAGE
      args: [netexec, --http-port=8080]
      env:
        - {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}
        - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
        - {name: GREETING, value: address $(ADDRESS)}
      envFrom: [{configMapRef: {name: settings}}]
      resources: {limits: {cpu: "1", memory: 512Mi}}
      readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}
      livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 90}
      lifecycle: {preStop: {exec: {command: [cmd, /c, 'echo of a hook> C:\node\stopped']}}}
      volumeMounts:
        - {name: all, mountPath: /all}
        - {name: shared, mountPath: 'C:\shared'}
        - {name: node, mountPath: 'C:\node'}
  volumes:
    - {name: shared, emptyDir: {}}
    - {name: node, hostPath: {path: 'C:\of-pods', type: DirectoryOrCreate}}
    - name: all
      projected:
        sources:
          - {serviceAccountToken: {path: token, audience: lab, expirationSeconds: 600}}
          - {configMap: {name: settings}}
          - {secret: {name: password}}
          - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
---"""
    + POD.replace("NAME", "again").replace("Never", "OnFailure")
    + r"""
  containers:
    - name: work
      image: IMAGE
      command: [cmd, /c, 'if exist C:\shared\begun (exit 0) else (echo x> C:\shared\begun& exit 3)']
      volumeMounts: [{name: shared, mountPath: 'C:\shared'}]
  volumes: [{name: shared, emptyDir: {}}]
---"""
    + POD.replace("NAME", "never")
    + r"""
  containers: [{name: work, image: IMAGE, command: [cmd, /c, exit 3]}]
---"""
    + POD.replace("NAME", "sick").replace("Never", "Always")
    + r"""
  containers:
    - name: web
      image: IMAGE
      livenessProbe: {exec: {command: [cmd, /c, exit 1]}, periodSeconds: 1, failureThreshold: 1}
---"""
    + POD.replace("NAME", "part")
    + r"""
  containers:
    - name: web
      image: IMAGE
      env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
      volumeMounts:
        - {name: shared, mountPath: 'C:\shared'}
        - {name: shared, mountPath: 'C:\part', subPathExpr: folder-of-$(POD)}
  volumes: [{name: shared, emptyDir: {}}]
---"""
    + POD.replace("NAME", "reader")
    + r"""
  containers: [{name: shell, image: IMAGE, command: [cmd], stdin: true, stdinOnce: true}]
"""
)
"""What people write into pods."""


@pytest.fixture(scope="module")
def written(lab: ContainerLabs) -> ContainerLabs:
    """The cluster, with everything applied."""
    applied(lab, WRITTEN)
    assert "condition met" in kubectl(lab, "wait", "pod/whole", WAIT, "--for=condition=Ready")
    return lab


def state(lab: ContainerLabs, pod: str, path: str) -> str:
    """A field of a pod's first container's status."""
    return kubectl(
        lab, "get", "pod", pod, "-o", f"jsonpath={{.status.containerStatuses[0].{path}}}"
    )


def test_a_pod_has_its_variables_volumes_and_init_containers_files(written: ContainerLabs) -> None:
    show = (
        "echo %WORD%,%LIMIT%,%COLOUR%,%GREETING%& type C:\\all\\word& type C:\\all\\name& "
        "type C:\\all\\COLOUR& type C:\\shared\\first"
    )
    printed = kubectl(written, "exec", "whole", "--container=web", "--", "cmd", "/c", show)
    address = kubectl(written, "get", "pod", "whole", "-o", "jsonpath={.status.podIP}")
    for text in (f"of a secret,512,green,address {address}", "whole", "of the first", "green"):
        assert text in printed


def test_a_projected_token_is_for_its_audience(written: ContainerLabs) -> None:
    show = ("cmd", "/c", "type C:\\all\\token")
    token = kubectl(written, "exec", "whole", "--container=web", "--", *show).strip()
    body = token.split(".")[1]
    assert b'"aud":["lab"]' in base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def test_a_changed_configmap_comes_into_a_running_pod(written: ContainerLabs) -> None:
    kubectl(written, "patch", "configmap", "settings", '--patch={"data": {"COLOUR": "blue"}}')
    show = ("cmd", "/c", "type C:\\all\\COLOUR")

    def look() -> str:
        kubectl(written, "annotate", "pod", "whole", "--overwrite", f"now={os.urandom(4).hex()}")
        return kubectl(written, "exec", "whole", "--container=web", "--", *show)

    Deadline(120).wait(
        "waiting for the new value", look, until=lambda printed: "blue" in printed, every=1
    )


def test_containers_end_and_start_again_as_their_restart_policy_says(
    written: ContainerLabs,
) -> None:
    ended = "--for=jsonpath={.status.phase}"
    assert "condition met" in kubectl(written, "wait", "pod/again", WAIT, f"{ended}=Succeeded")
    assert "condition met" in kubectl(written, "wait", "pod/never", WAIT, f"{ended}=Failed")
    assert state(written, "again", "restartCount") == "1"
    assert state(written, "never", "state.terminated.exitCode") == "3"


def test_a_liveness_probe_that_fails_restarts_its_container(written: ContainerLabs) -> None:
    Deadline(120).wait(
        "waiting for a restart",
        lambda: state(written, "sick", "restartCount"),
        until=lambda count: count not in {"", "0"},
        every=0.5,
    )
    kubectl(written, "delete", "pod", "sick", WAIT)


def test_attach_and_port_forward_reach_a_windows_pod(written: ContainerLabs) -> None:
    kubectl(written, "wait", "pod/reader", WAIT, "--for=condition=Ready")
    command = f"{KUBECTL} attach --stdin reader"
    typed = f"printf 'echo %%OS%%\\r\\nexit\\r\\n' | timeout 60 {command}"
    assert "Windows_NT" in linux(written, CONTROL_PLANE, "sh", "-c", typed)
    forward = f"{KUBECTL} port-forward pod/whole 18080:8080 >/dev/null & p=$!"
    ask = "curl --silent --retry 30 --retry-delay 1 --retry-connrefused"
    fetch = f"{forward}; {ask} http://127.0.0.1:18080/hostname; kill $p"
    assert "whole" in linux(written, CONTROL_PLANE, "sh", "-c", fetch)


def test_a_daemon_set_of_a_runtime_class_runs_on_a_tainted_node(written: ContainerLabs) -> None:
    kubectl(written, "taint", "node", NODE, "os=windows:NoSchedule")
    kubectl(written, "delete", "pod", "--selector=app=everywhere", WAIT)
    rollout = ("rollout", "status", "daemonset/everywhere", WAIT)
    assert "successfully rolled out" in kubectl(written, *rollout)
    placed = "jsonpath={.items[*].spec.nodeName}"
    listed = ("get", "pod", "--selector=app=everywhere", "-o", placed)
    assert kubectl(written, *listed) == NODE
    applied(written, POD.replace("NAME", "other") + "  containers: [{name: web, image: IMAGE}]\n")
    reason = "jsonpath={.status.conditions[0].reason}"
    assert "condition met" in kubectl(
        written, "wait", "pod/other", WAIT, f"--for={reason}=Unschedulable"
    )
    kubectl(written, "taint", "node", NODE, "os=windows:NoSchedule-")
    assert "condition met" in kubectl(written, "wait", "pod/other", WAIT, "--for=condition=Ready")
    kubectl(written, "delete", "pod", "other", WAIT)


def test_a_subpath_is_a_folder_of_its_volume(written: ContainerLabs) -> None:
    """The kubelet asks PowerShell about each folder on the way to it."""
    wait = ("wait", "pod/part", "--timeout=400s", "--for=condition=Ready")
    assert "condition met" in kubectl(written, *wait)
    show = (r"echo of a part> C:\part\file& type C:\shared\folder-of-part\file",)
    assert "of a part" in kubectl(written, "exec", "part", "--", "cmd", "/c", *show)


def test_a_container_of_a_user_whom_wine_has_not_does_not_start(lab: ContainerLabs) -> None:
    options = "securityContext: {windowsOptions: {runAsUserName: Bob}}"
    web = f"  containers: [{{name: web, image: IMAGE, {options}}}]\n"
    applied(lab, POD.replace("NAME", "user") + web)
    ended = "jsonpath={.status.containerStatuses[0].state.terminated"
    not_started = ("wait", "pod/user", WAIT, f"--for={ended}.reason}}=StartError")
    assert "condition met" in kubectl(lab, *not_started)
    words = kubectl(lab, "get", "pod", "user", "-o", f"{ended}.message}}")
    assert "runAsUserName 'Bob' cannot be kept" in words
    gone(lab, "user")


def test_an_image_for_windows_lies_over_wine(lab: ContainerLabs, tmp_path: Path) -> None:
    """Its file, folder, environment and command, whatever the case of its names."""
    script = Entry("/Files/App/hello.cmd", text="@echo %GREETING% in %CD%\r\n")
    own = Image(
        "example.com/hello:1",
        (script,),
        ("cmd", "/c", "hello.cmd"),
        folder="C:\\app",
        environment=("GREETING=hello", "PATH=C:\\APP;C:\\Windows"),
        build="10.0.20348.1",
    )
    names = lab.run("image", "import", LAB, str(write_image(own, tmp_path))).stdout
    assert names.split() == [own.name]
    applied(lab, POD.replace("NAME", "hello") + f"  containers: [{{name: c, image: {own.name}}}]\n")
    succeeded = ("wait", "pod/hello", WAIT, "--for=jsonpath={.status.phase}=Succeeded")
    assert "condition met" in kubectl(lab, *succeeded)
    assert kubectl(lab, "logs", "hello").strip() == "hello in C:\\App"
    gone(lab, "hello")


def test_windows_least_user_is_taken(lab: ContainerLabs) -> None:
    """Pod Security's restricted level asks for it."""
    options = (
        "  securityContext: {runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerUser}}\n"
    )
    applied(
        lab, POD.replace("NAME", "least") + options + "  containers: [{name: web, image: IMAGE}]\n"
    )
    assert "condition met" in kubectl(lab, "wait", "pod/least", WAIT, "--for=condition=Ready")
    gone(lab, "least")


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


def test_a_drained_node_has_a_daemon_sets_pods_alone_and_the_hooks_have_run(
    written: ContainerLabs,
) -> None:
    """The last test: bare pods do not come back."""
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", WAIT)
    assert "drained" in kubectl(written, "drain", NODE, *words)
    named = "jsonpath={.items[*].metadata.name}"
    on_node = f"--field-selector=spec.nodeName={NODE}"
    left = kubectl(written, "get", "pod", "--namespace=default", on_node, "-o", named).split()
    assert [name.partition("-")[0] for name in left] == ["everywhere"]
    assert linux(written, NODE, "cat", "/wine/drive_c/of-pods/stopped").strip() == "of a hook"
    kubectl(written, "uncordon", NODE)
