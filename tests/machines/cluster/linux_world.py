"""Simulated Linux machines: files, units, kubeadm and an API, as far as the lab uses them."""

from __future__ import annotations

import fnmatch
import io
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.cluster.api import Api, LostError, Object, ObjectList, Query, RefusedError
from lab.machines.cluster.credentials import make_authority, public_key_pin
from lab.machines.cluster.linux.joining import MARK
from lab.machines.cluster.linux.operations import ClusterSite
from lab.shells.shell import Completed, Shell

CA = "/etc/kubernetes/pki/ca.crt"
DONE = Completed(0, "", "")


def said(*lines: str) -> Completed:
    return Completed(0, "".join(f"{line}\n" for line in lines), "")


class Killed(BaseException):
    """The command is killed here, as by SIGKILL."""


def ready_pod(name: str) -> dict:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


@dataclass
class World:
    """One cluster and its machines; at command number ``kill_at``, from 1, the caller is killed."""

    names: tuple[str, ...]
    kill_at: int = 0
    commands: int = 0
    log: list[tuple[str, str]] = field(default_factory=list)
    nodes: dict[str, dict] = field(default_factory=dict)
    applied: list[dict] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    signed: dict[str, str] = field(default_factory=dict)
    """The ConfigMap ``cluster-info``; a new token's signature is in it once somebody has looked."""
    keys: set[str] = field(default_factory=set)
    ready: bool = True
    network: bool = True
    """Whether the DaemonSets of network add-ons are ready."""
    said: list[str] = field(default_factory=list)
    machines: dict[str, FakeMachine] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Words of a command that fails to its error message."""
    shows: dict[str, str] = field(default_factory=dict)
    """Words of a command to its output."""
    pods: list[dict] = field(default_factory=lambda: [ready_pod(f"coredns-{n}") for n in range(2)])
    """Pods of all namespaces."""
    ended: set[str] = field(default_factory=set)
    """Units that have failed."""

    def __post_init__(self) -> None:
        self.machines = {name: FakeMachine(name, self) for name in self.names}

    def site(self, directory: Path) -> ClusterSite:
        management = {name: f"192.168.251.{n}" for n, name in enumerate(self.names, 10)}
        return ClusterSite(self.shell, management, directory, self.said.append, api=self.api)

    @contextmanager
    def api(self, name: str, _deadline: Deadline) -> Iterator[Api]:
        yield FakeApi(name, self)

    def command(self, name: str, line: str) -> bool:
        """Count a command or a query; return whether it is the one that kills."""
        self.commands += 1
        self.log.append((name, line))
        return self.commands == self.kill_at

    def shell(self, name: str) -> Shell:
        return self.machines[name]

    def ran(self, words: str) -> list[str]:
        return [name for name, line in self.log if words in line]

    def daemon_sets(self, namespace: str) -> list[dict]:
        """DaemonSets, applied or created by an operator; ready if ``network`` is."""
        names = {"calico-system": ["calico-node"]}.get(namespace, [])
        names += [
            one["metadata"]["name"]
            for one in self.applied
            if one["kind"] == "DaemonSet" and one["metadata"]["namespace"] == namespace
        ]
        ready = len(self.nodes) if self.network else 0
        status = {"observedGeneration": 1, "desiredNumberScheduled": len(self.nodes)}
        status |= {"updatedNumberScheduled": len(self.nodes), "numberReady": ready}
        return [
            {
                "kind": "DaemonSet",
                "metadata": {"name": name, "generation": 1},
                "spec": {},
                "status": status,
            }
            for name in names
        ]

    def register(self, name: str) -> None:
        status = "True" if self.ready else "False"
        condition = {"type": "Ready", "status": status, "reason": "KubeletNotReady"}
        condition["message"] = "cni plugin not initialized"
        self.nodes.setdefault(
            name, {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [condition]}}
        )


@dataclass
class FakeMachine:
    """One machine's shell."""

    name: str
    world: World
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    logs: dict[str, str] = field(default_factory=dict)
    """Logs of daemons, by path."""
    member: bool = False
    half: bool = False
    """Whether kubeadm was killed here, or has only finished its first half."""

    def run(self, command: Sequence[str], _deadline: Deadline, stdin: bytes = b"") -> Completed:
        line = command[2] if command[:2] == ("sh", "-c") else shlex.join(command)
        killed = self.world.command(self.name, line)
        for words, complaint in self.world.broken.items():
            if words in line:
                return Completed(1, "", complaint)
        for words, text in self.world.shows.items():
            if words in line:
                return Completed(0, text, "")
        if killed and re.search(r"kubeadm (init --config|join|reset)", line):
            self.half = True
        if killed:
            raise Killed
        return self._answer(line, tuple(command), stdin)

    def get(self, path: str, _deadline: Deadline) -> bytes:
        if path not in self.files:
            raise BrokenError(f"reading '{path}' of '{self.name}'", "no such file")
        return self.files[path][1].encode()

    def _answer(self, line: str, command: tuple[str, ...], stdin: bytes) -> Completed:
        for pattern, answer in _ANSWERS:
            if re.search(pattern, line, re.DOTALL):
                return answer(self, line, command, stdin)
        return DONE

    def kill_files(self, *patterns: str) -> None:
        for path in list(self.files):
            if any(fnmatch.fnmatch(path, f"{pattern}*") for pattern in patterns):
                del self.files[path]


def _word(pattern: str, line: str) -> str:
    match = re.search(pattern, line)
    assert match, line
    return match[1]


def _look(machine: FakeMachine, _line: str, command: tuple[str, ...], _in: bytes) -> Completed:
    lines = []
    for path in command[4:]:
        if path in machine.links:
            lines.append(f"link {machine.links[path]}")
        elif path in machine.files:
            mode, content = machine.files[path]
            lines.append(f"file {mode:o} {sha256(content.encode()).hexdigest()}")
        else:
            lines.append("none")
    return said(*lines)


def _unpack(machine: FakeMachine, _line: str, _command: tuple[str, ...], data: bytes) -> Completed:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            path = f"/{member.name}"
            if member.issym():
                machine.links[path] = member.linkname
            else:
                machine.files[path] = (member.mode, tar.extractfile(member).read().decode())
    return DONE


def _init(machine: FakeMachine, line: str, _command: tuple[str, ...], _in: bytes) -> Completed:
    if "--skip-phases=preflight" in line:
        if not machine.half:
            return Completed(1, "", "failed while waiting for the kubelet to start")
        machine.half, machine.member = False, True
        machine.world.register(machine.name)
        return DONE
    if machine.half or machine.member:
        return Completed(1, "", "[ERROR Port-6443]: Port 6443 is in use")
    ca = make_authority("kubernetes")
    machine.files[CA] = (0o644, ca.certificate)
    machine.files["/etc/kubernetes/pki/ca.key"] = (0o600, ca.key)
    machine.half = True
    return DONE


def _join(machine: FakeMachine, _line: str, _command: tuple[str, ...], _in: bytes) -> Completed:
    config = machine.files["/run/hybridlab/kubeadm.yaml"][1]
    world = machine.world
    first = world.machines[world.names[0]]
    if machine.half or machine.member:
        return Completed(1, "", "[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: exists")
    tokens = [token for token in world.tokens if token in config]
    if not any(f"jws-kubeconfig-{token.partition('.')[0]}" in world.signed for token in tokens):
        return Completed(1, "", "could not find a JWS signature in the cluster-info ConfigMap")
    if public_key_pin(first.files[CA][1]) not in config:
        return Completed(1, "", "none of the public keys are pinned")
    if "controlPlane:" in config and not any(key in config for key in world.keys):
        return Completed(1, "", "error downloading the secret")
    if machine.name in world.nodes:
        return Completed(1, "", f'a Node with name "{machine.name}" and status "Ready" exists')
    machine.member = True
    world.register(machine.name)
    return DONE


def _reset(machine: FakeMachine, *_: object) -> Completed:
    machine.member = machine.half = False
    machine.kill_files("/etc/kubernetes/")
    return DONE


def _token(machine: FakeMachine, *_: object) -> Completed:
    token = f"{machine.world.commands:06d}.{machine.world.commands:016d}"
    machine.world.tokens.add(token)
    return said(token)


def _upload(machine: FakeMachine, *_: object) -> Completed:
    config = machine.files["/run/hybridlab/kubeadm.yaml"][1]
    machine.world.keys |= set(re.findall(r"certificateKey: (\w{64})", config))
    return DONE


def _remove(machine: FakeMachine, line: str, *_: object) -> Completed:
    machine.kill_files(*_word(r"for each in ([^;]+);", line).split())
    return DONE


def _service(machine: FakeMachine, line: str, *_: object) -> Completed:
    unit = _word(_UNIT, line)
    machine.enabled.add(unit)
    stamp = _word(r"echo (\S*) >", line)
    restarts = machine.units.get(unit) != stamp
    machine.units[unit] = stamp
    if restarts and unit == "kubelet.service":
        machine.world.register(machine.name)
    return DONE


def _active(machine: FakeMachine, _line: str, command: tuple[str, ...], _in: bytes) -> Completed:
    states = ["activating" if one in machine.world.ended else "active" for one in command[2:]]
    return Completed(int("activating" in states) * 3, "".join(f"{state}\n" for state in states), "")


def _restart(machine: FakeMachine, *_: object) -> Completed:
    machine.world.register(machine.name)
    return DONE


def _added(there: set[str], what: str) -> Completed:
    there.add(what)
    return DONE


def _last(line: str) -> str:
    return line.rpartition(" ")[2]


class FakeApi(Api):
    """The API server of one control plane: Nodes, and all applied objects."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(Path("/nowhere"))
        self.name = name
        self.world = world

    @property
    def server(self) -> str:
        return f"https://{self.name}"

    def ask(  # noqa: PLR0913
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: Object | None = None,
        query: Query | None = None,
        *,
        content: str = "",
    ) -> Object:
        del deadline, query, content
        killed = self.world.command(self.name, f"{method} {path}")
        if complaint := self.world.broken.get("API"):
            raise LostError(f"asking {path}", complaint)
        if killed:
            raise Killed
        nodes, name = self.world.nodes, path.rpartition("/")[2]
        if path == "/readyz":
            return {"message": "ok"}
        if method == "DELETE":
            if nodes.pop(name, None) is None:
                raise RefusedError(path, "not found", code=404)
        elif method == "PATCH":
            nodes[name]["spec"] |= body["spec"]
        return {}

    def apply(self, wanted: Object, deadline: Deadline) -> None:
        self.ask("APPLY", wanted["metadata"]["name"], deadline)
        self.world.applied.append(wanted)

    def listing(self, path: str, deadline: Deadline, query: Query | None = None) -> ObjectList:
        self.ask("GET", path, deadline, None, query)
        namespace, _, kind = path.removeprefix("/apis/apps/v1").rpartition("/")
        found = list(self.world.nodes.values())
        if kind == "daemonsets":
            found = self.world.daemon_sets(namespace.rpartition("/")[2])
        elif kind == "pods":
            found = self.world.pods
        elif kind == "configmaps":
            ids = [token.partition(".")[0] for token in self.world.tokens]
            self.world.signed |= {f"jws-kubeconfig-{name}": "signature" for name in ids}
            found = [{"metadata": {"name": "cluster-info"}, "data": self.world.signed}]
        return ObjectList("1", {one["metadata"]["name"]: one for one in found})

    def watch(self, *_arguments: object) -> Iterator[tuple[str, Object]]:
        yield from ()


Answer = Callable[[FakeMachine, str, tuple[str, ...], bytes], Completed]
_UNIT = r"systemctl is-enabled --quiet (\S+)"
_ANSWERS: tuple[tuple[str, Answer], ...] = (
    (r"^for path; do\n", _look),
    (r"tar -x", _unpack),
    (r"kubeadm init phase upload-certs", _upload),
    (r"kubeadm init", _init),
    (r"kubeadm join", _join),
    (r"kubeadm reset", _reset),
    (r"kubeadm token create", _token),
    (
        r"^\[ -e /etc/kubernetes/kubelet.conf",
        lambda one, *_: Completed(int(not (one.half or one.member or MARK in one.files)), "", ""),
    ),
    (r"^cat /var/lib/hybridlab/member", lambda one, *_: said(one.files.get(MARK, (0, ""))[1])),
    (r"rm -rf", _remove),
    (r"^cat /run/\w+/log$", lambda one, line, *_: said(one.logs.get(_last(line), ""))),
    (
        r"systemctl is-failed",
        lambda one, line, *_: Completed(int(_last(line) not in one.world.ended), "", ""),
    ),
    (r"^systemctl is-active hybridlab-", _active),
    (r"systemctl restart kubelet.service$", _restart),
    (r"systemctl restart", _service),
    (r"systemctl enable", lambda one, line, *_: _added(one.enabled, _word(_UNIT, line))),
    (r"images import", lambda one, line, *_: _added(one.images, _last(line))),
    (r"^if ", lambda *_: DONE),
)
