"""A Wine node whose programs are killed, and that reboots: it comes back by itself.

It needs a bundle with Windows' programs and PowerShell, as ``make test-wine`` makes one; else it
says why not.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest
from container_labs import ContainerLabs, room_for
from processes import run_program
from wine_labs import new_labs

from lab._deadline import Deadline
from lab.machines.nspawn import containers
from lab.topology.observed import NAMESPACE
from lab.windows.wine.system import WINE

pytestmark = pytest.mark.clusters
SCENARIO = Path(__file__).with_name("wine_node.yaml")
LAB, CONTROL_PLANE, NODE = "wine-node", "master", "win"
UP = ("up", str(SCENARIO), "--provider", "nspawn", "--pods", "kubernetes")
MOMENTS = (
    f"{NODE}: Windows build",
    "  step 10 of 14: windows",
    f"{NODE}: joined",
    f"{NODE}: starting",
)
"""Beginnings of lines of the story, at which ``lab up`` is killed and then run again."""
JOINED = MOMENTS[2]
SECONDS = 300.0
PROGRAMS = {
    "wineserver": "^/usr/lib/wine/wineserver",
    "kubelet.exe": r"^C:\\k\\kubelet\.exe",
    "flanneld.exe": r"^C:\\k\\flanneld\.exe",
    "HNS": "wine.hns.daemon",
    "containerd": "^/usr/local/bin/containerd",
}
"""What is killed, and the pattern of its command line on the node."""
DRILLED = {"wineserver", "flanneld.exe", "containerd"}
"""Of them, those that only ``make drill-nspawn`` kills."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerLabs]:
    """The scenario, up though that was killed once; nothing of it is left afterwards."""
    labs = new_labs(tmp_path_factory)
    with room_for(SCENARIO, only=None):
        labs.killed_after(UP, JOINED)
        labs.run(*UP)
        yield labs
        labs.run("gc", "--yes", "--older-than", "0s")
        assert labs.left() == set()


def linux(lab: ContainerLabs, machine: str, *command: str) -> str:
    """What a command prints on a machine's Linux; empty while the machine is off."""
    leader = containers.leaders(lab.holder()).get(machine)
    if leader is None:
        return ""
    inside = ("nsenter", f"--target={leader.pid}", "--mount", "--pid", "--net", "--uts", "--ipc")
    done = run_program((*inside, "--", *command), stdin=subprocess.DEVNULL, check=False)
    return done.stdout.strip()


def processes(lab: ContainerLabs, pattern: str) -> set[str]:
    """The node's own processes with such a command line; those of pods are in no unit."""
    found = linux(lab, NODE, "pgrep", "--full", pattern).split()
    groups = {pid: linux(lab, NODE, "cat", f"/proc/{pid}/cgroup") for pid in found}
    return {pid for pid, group in groups.items() if "system.slice" in group}


def kubectl(lab: ContainerLabs, *words: str) -> str:
    """What kubectl prints on the control plane."""
    command = ("/usr/local/bin/kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
    return linux(lab, CONTROL_PLANE, *command, *words)


def boot_id(lab: ContainerLabs) -> str:
    """How often the node has started, as its kubelet tells."""
    return kubectl(lab, "get", "node", NODE, "-o", "jsonpath={.status.nodeInfo.bootID}")


def ready(lab: ContainerLabs) -> str:
    """The node's condition Ready."""
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    return kubectl(lab, "get", "node", NODE, "-o", path)


def wait_until_back(lab: ContainerLabs, name: str, before: set[str]) -> None:
    """Wait for another process of the program, and for the node to be Ready."""

    def look() -> str:
        new = processes(lab, PROGRAMS[name]) - before
        return ready(lab) if new else f"no other {name} runs"

    Deadline(SECONDS).wait(
        f"waiting for {name} to come back", look, until=lambda state: state == "True", every=1.0
    )


ADDRESS = "ip -o -4 address show dev eth0 | awk '{ print $4 }'"
ASK_HNS = """
import json, socket, sys

def ask(operation, name, document):
    channel = socket.create_connection(("127.0.0.1", 18081), 20)
    body = json.dumps(document).encode()
    channel.sendall(f"{operation}\\n{name}\\n{len(body)}\\n".encode() + body)
    channel.shutdown(socket.SHUT_WR)
    return channel.makefile().read().split("\\n", 2)[2]

(network,) = json.loads(ask("enumerate", "networks", {}))
document = json.loads(ask("query", f"networks {network}", {}))
routes = [each for each in document["Policies"] if each["Type"] == "RemoteSubnetRoute"]
removal = {"ResourceType": "Policy", "RequestType": "Remove", "Settings": {"Policies": routes}}
ask("modify", f"networks {network}", removal)
print(routes[0]["Settings"]["DestinationPrefix"])
"""
"""Removes HNS' routes to other nodes' pods, and prints the first."""


def test_a_wine_node_takes_no_more_inotify_instances_than_counted(lab: ContainerLabs) -> None:
    """systemd three, containerd two, wineserver one."""
    count = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c anon_inode:inotify"
    assert 0 < int(linux(lab, NODE, "sh", "-c", count)) <= WINE.inotify


def test_a_healthy_lab_has_no_difference(lab: ContainerLabs) -> None:
    lab.green(LAB)
    assert "every machine is as intended" in lab.run("status", LAB, "--deep").stdout


POD = r"""
apiVersion: v1
kind: Secret
metadata: {name: word}
stringData: {word: "of a secret"}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  terminationGracePeriodSeconds: 3600
  containers:
    - name: web
      image: IMAGE
      imagePullPolicy: IfNotPresent
      args: [netexec, --http-port=8080]
      env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
      readinessProbe: {exec: {command: [cmd, /c, "type C:\\started"]}, periodSeconds: 1}
      lifecycle: {postStart: {exec: {command: [cmd, /c, "echo of a hook> C:\\started"]}}}
      volumeMounts: [{name: word, mountPath: /word}]
  volumes: [{name: word, secret: {secretName: word}}]
"""


def test_a_users_pod_has_its_hook_variables_and_files_and_ends_when_asked(
    lab: ContainerLabs,
) -> None:
    path = "jsonpath={.spec.containers[0].image}"
    image = kubectl(lab, "get", "pod", f"--namespace={NAMESPACE}", f"{NODE}-p1", "-o", path)
    write = f"cat >/root/user.yaml <<'END'\n{POD.replace('IMAGE', image)}END\n"
    linux(lab, CONTROL_PLANE, "sh", "-c", write)
    kubectl(lab, "apply", "--filename=/root/user.yaml")
    wait = ("wait", "pod/user", f"--timeout={SECONDS:g}s")
    assert "condition met" in kubectl(lab, *wait, "--for=condition=Ready")
    token = r"C:\var\run\secrets\kubernetes.io\serviceaccount\namespace"
    show = rf"echo %NODE%& type C:\started& type C:\word\word& type {token}"
    printed = kubectl(lab, "exec", "user", "--", "cmd", "/c", show)
    assert all(text in printed for text in (NODE, "of a hook", "of a secret", "default"))
    kubectl(lab, "delete", "--filename=/root/user.yaml", "--wait=false")
    assert "condition met" in kubectl(lab, *wait, "--for=delete")


def test_packets_are_captured_on_a_wine_node_in_both_directions(lab: ContainerLabs) -> None:
    windows, linux_pod = f"{NODE}-p1", f"{CONTROL_PLANE}-p1"
    for source, target in ((windows, linux_pod), (linux_pod, windows)):
        captured = json.loads(lab.run("capture", LAB, source, target, "--json").stdout)
        packets = {
            (hop["place"], hop["device"]): hop["question"]["packets"] for hop in captured["hops"]
        }
        assert packets[NODE, "flannel.4096"] > 0
        assert packets[NODE, "eth0"] > 0
        assert captured["gaps"] == []


def test_what_people_type_in_windows_pods_works(lab: ContainerLabs) -> None:
    pod = f"{NODE}-p1"
    name = "kubernetes.default.svc.cluster.local."
    assert "10.96.0.1" in lab.run("exec", LAB, pod, "--", "nslookup", name).stdout.split()
    linux(lab, CONTROL_PLANE, "sh", "-c", "echo word >/root/sent")
    kubectl(lab, "cp", "/root/sent", f"{NAMESPACE}/{pod}:/sent")
    kubectl(lab, "cp", f"{NAMESPACE}/{pod}:/sent", "/root/back")
    assert linux(lab, CONTROL_PLANE, "cat", "/root/back") == "word"


def test_scripts_of_the_node_run_as_on_windows_server(lab: ContainerLabs) -> None:
    linux(lab, NODE, "sh", "-c", "echo 'Get-ExecutionPolicy; exit 3' >/wine/drive_c/x.ps1")
    done = lab.run("exec", LAB, NODE, "--", "powershell", "-File", "C:\\x.ps1", code=3)
    assert done.stdout.strip() == "RemoteSigned"


@pytest.mark.parametrize("fault", ["hns-endpoint-removed", "hns-network-removed"])
def test_what_hns_has_lost_is_named_by_its_fault(lab: ContainerLabs, fault: str) -> None:
    lab.run("fault", LAB, fault, "--node", NODE)
    explained = lab.run("explain", LAB, f"{NODE}-p1", f"{CONTROL_PLANE}-p1", code=1).stdout
    assert f"fault:  {fault}\n" in explained
    deep = lab.run("status", LAB, "--deep", code=1).stdout
    assert [f"({fault})" in line for line in deep.splitlines() if "  difference " in line] == [True]
    lab.run("heal", LAB)
    lab.green(LAB, "-k", "pod-pod")


def test_a_lost_network_and_its_pods_are_made_again_by_repair(lab: ContainerLabs) -> None:
    lab.run("exec", LAB, NODE, "--", "powershell", "-Command", "Get-HnsNetwork | Remove-HnsNetwork")
    assert "repaired: on win, tunnel" in lab.run("repair", LAB, NODE, code=None).stdout
    Deadline(SECONDS).wait(
        "waiting for the pods",
        lambda: lab.run("status", LAB, "--deep", code=None).stdout,
        until=lambda status: "every machine is as intended" in status,
        every=1.0,
    )
    lab.green(LAB, "-k", "pod-pod")


HABITS = (
    # fault, peer, target, what explain says
    ("stale-neighbour", CONTROL_PLANE, f"{CONTROL_PLANE}-p1", "fault:  stale-neighbour"),
    ("hns-balancers-refused", "", f"to-{CONTROL_PLANE}-p1", "fault:  hns-balancers-refused"),
    (
        "hns-balancers-kept",
        f"{CONTROL_PLANE}-p1",
        f"to-{CONTROL_PLANE}-p1",
        "fault:  hns-balancers-kept",
    ),
    ("hns-attach-refused", f"{NODE}-p1", f"{CONTROL_PLANE}-p1", "FailedCreatePodSandBox"),
)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("fault", "peer", "target", "named"), HABITS, ids=[habit[0] for habit in HABITS]
)
def test_a_habit_of_hns_is_found_and_healed(
    lab: ContainerLabs, fault: str, peer: str, target: str, named: str
) -> None:
    words = ("--peer", peer) if peer else ()
    lab.run("fault", LAB, fault, "--node", NODE, *words)
    assert named in lab.run("explain", LAB, f"{NODE}-p1", target, code=1).stdout
    lab.run("heal", LAB)
    lab.green(LAB, "-k", "pod-pod or pod-service")


def test_an_address_that_hns_loses_is_given_back(lab: ContainerLabs) -> None:
    """microsoft/SDN 498, ovn-kubernetes 2530. What keeps flanneld gives it back."""
    (address,) = linux(lab, NODE, "sh", "-c", ADDRESS).split()
    linux(lab, NODE, "ip", "address", "del", address, "dev", "eth0")
    Deadline(SECONDS).wait(
        "waiting for the address",
        lambda: linux(lab, NODE, "sh", "-c", ADDRESS),
        until=lambda now: now == address,
        every=1.0,
    )
    lab.green(LAB, "-k", "pod-pod")


def test_a_lost_default_route_is_put_back_by_repair(lab: ContainerLabs) -> None:
    linux(lab, NODE, "ip", "route", "del", "default")
    explained = lab.run("explain", LAB, f"{NODE}-p1", "client", code=1).stdout
    assert f"on {NODE}, route to default: there is none" in explained
    lab.run("repair", LAB, NODE, "route to default")
    assert linux(lab, NODE, "ip", "route", "show", "default")


def test_an_adapter_that_was_disabled_has_its_default_route_again(lab: ContainerLabs) -> None:
    lab.run("fault", LAB, "node-link-down", "--node", NODE)
    assert linux(lab, NODE, "ip", "route", "show", "default") == ""
    lab.run("heal", LAB)
    assert linux(lab, NODE, "ip", "route", "show", "default")


def test_evidence_of_a_wine_node_is_whole(lab: ContainerLabs, tmp_path: Path) -> None:
    path = tmp_path / "evidence.tar.gz"
    assert "not in the archive" not in lab.run("gather", LAB, "--output", str(path)).stderr
    with tarfile.open(path) as archive:
        pieces = {
            name.partition("/nspawn/")[2]: cast("IO[bytes]", archive.extractfile(name)).read()
            for name in archive.getnames()
        }
    assert b"kubelet" in pieces[f"{NODE}/cluster/kubelet.log"]
    assert b"RemoteSubnetRoute" in pieces[f"{NODE}/cluster/hns.txt"]
    assert f"{NODE}-p1".encode() in pieces["api/pods.txt"]
    assert pieces[f"{NODE}/windows/hns-calls.jsonl"]


def test_a_route_that_hns_has_lost_is_named_and_put_back_by_repair(lab: ContainerLabs) -> None:
    prefix = linux(lab, NODE, "python3", "-c", ASK_HNS)
    explained = lab.run("explain", LAB, f"{NODE}-p1", f"{CONTROL_PLANE}-p1", code=1).stdout
    assert f"on {NODE}, route to {prefix}: there is none" in explained
    assert "repaired: " in lab.run("repair", LAB, NODE, f"route to {prefix}").stdout
    lab.green(LAB, "-k", "pod-pod")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.drill if name in DRILLED else ()) for name in PROGRAMS],
)
def test_a_program_that_is_killed_comes_back(lab: ContainerLabs, name: str) -> None:
    before = processes(lab, PROGRAMS[name])
    assert before
    linux(lab, NODE, "kill", "-9", *sorted(before))
    wait_until_back(lab, name, before)
    lab.green(LAB, "-k", "pod-pod")


def test_a_node_whose_windows_is_stopped_is_not_ready_and_comes_back(lab: ContainerLabs) -> None:
    linux(lab, NODE, "systemctl", "stop", "hybridlab-windows.service")
    Deadline(SECONDS).wait(
        "waiting for the node to be NotReady",
        lambda: ready(lab),
        until=lambda state: state != "True",
        every=1.0,
    )
    assert f"the lab is broken: {NODE}: " in lab.run("test", LAB, code=3).stderr
    linux(lab, NODE, "systemctl", "start", "hybridlab-windows.service")
    wait_until_back(lab, "kubelet.exe", set())
    lab.green(LAB, "-k", "pod-pod")


def test_a_node_that_was_deleted_from_the_api_joins_again(lab: ContainerLabs) -> None:
    kubectl(lab, "delete", "node", NODE)
    again = lab.run(*UP).stderr
    assert f"{NODE}: cleaning up after an earlier membership" in again
    assert ready(lab) == "True"
    lab.green(LAB)


def test_a_node_that_reboots_comes_back_with_flannels_overlay(lab: ContainerLabs) -> None:
    before, started = containers.leaders(lab.holder())[NODE], boot_id(lab)
    linux(lab, NODE, "systemctl", "--no-block", "reboot")
    Deadline(SECONDS).wait(
        "waiting for the node to boot again",
        lambda: containers.leaders(lab.holder()).get(NODE),
        until=lambda now: now not in {None, before},
        every=0.5,
    )
    wait_until_back(lab, "kubelet.exe", set())
    assert int(boot_id(lab)) > int(started)
    lab.run(*UP)
    lab.green(LAB)


@pytest.mark.drill
def test_up_and_down_after_a_kill_at_any_step_leave_nothing(lab: ContainerLabs) -> None:
    lab.run("down", LAB)
    for moment in ("  step 3 of 14: machines", JOINED):
        lab.killed_after(UP, moment)
        lab.run("down", LAB)
        assert lab.left() == set()
    for moment in MOMENTS:
        lab.killed_after(UP, moment)
    lab.run(*UP)
    lab.green(LAB)
