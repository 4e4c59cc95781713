"""Pods of guests like those of Kubernetes: agnhost's netexec, found by its environment."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from node_lab import NodeLab

from lab._deadline import Deadline
from lab.machines.agents.control import NodeControl, archive_digest
from lab.machines.agents.exec_probes import ExecProber
from lab.machines.agents.files import STATUS_SCRIPT, archive_path
from lab.machines.agents.fleet import Fleet
from lab.machines.cluster.pod_exec import ExecResult
from lab.machines.cluster.probe_manifests import host_pod_name
from lab.providers.netns.compile import configuration
from lab.topology.observed import POD_VARIABLE, TOKEN_VARIABLE

TOKEN = "7f3a"
_CONFIGURATION = "/run/nodes-only.json"
_ANSWERS = """
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", 8080))
        if kind == socket.SOCK_DGRAM:
            sock.send(b"hostname")
            assert sock.recv(99) == sys.argv[1].encode()
"""


def inhabit(lab: NodeLab, agnhost: Path) -> None:
    """Replace the lab's responder in every pod by netexec; machines keep the responder."""
    for machine in lab.intent.machines:
        guest = lab.guest(machine.name)
        probed = [pod.name for pod in machine.pods if pod.role == "probe"]
        others = {machine.name, *(pod.name for pod in machine.pods)} - set(probed)
        _only(lab, machine.name, configuration(lab.intent, frozenset(others)))
        for pod in probed:
            words = ["env", f"{TOKEN_VARIABLE}={TOKEN}", f"{POD_VARIABLE}={pod}", str(agnhost)]
            words += ["netexec", "--http-port=8080", "--udp-port=8080"]
            command = shlex.join(["/run/hybridlab/enter", pod, *words])
            guest.shell(f"{command} > /run/{pod}.log 2>&1 < /dev/null &")
            ask = shlex.join(["/run/hybridlab/enter", pod, "python3", "-Ic", _ANSWERS, pod])
            Deadline(20.0).wait(f"starting {pod}", lambda: _done(lab, machine.name, ask))  # noqa: B023  called here


def _done(lab: NodeLab, name: str, command: str) -> bool:
    return lab.guest(name).run(["sh", "-c", command], Deadline(10.0)).code == 0


def _only(lab: NodeLab, name: str, answers: str) -> None:
    """Restart the responder so that it answers in fewer namespaces."""
    program = archive_path(archive_digest()).with_suffix("") / "lab/providers/netns/responder.py"
    script = f"""
    holder=$(sed -n 's,^runs /proc/\\([0-9]*\\)/stat .*,\\1,p' {STATUS_SCRIPT})
    inside="nsenter --target $holder --mount --net --pid"
    $inside kill -KILL $(sed 's/.*"pid": \\([0-9]*\\).*/\\1/' /proc/$holder/root/run/responder.json)
    cat > /proc/$holder/root/{_CONFIGURATION}
    $inside python3 -I {shlex.quote(str(program))} {_CONFIGURATION} > /run/said 2>&1 < /dev/null &
    until grep -q ready /run/said; do :; done
    """
    done = lab.guest(name).run(["sh", "-ec", script], Deadline(20.0), answers.encode())
    assert done.code == 0, done.stderr


def cluster_fleet(lab: NodeLab, *executed: str) -> Fleet:
    """The fleet with pods that are not the lab's; those of some nodes are probed by exec."""
    controls = {
        name: NodeControl(name, guest, token=TOKEN)
        for name, guest in lab.world.guests.items()
        if name not in executed
    }
    others = {name: ExecProber(GuestExec(lab, name), name) for name in executed}
    return Fleet(controls, cluster=True, others=others)


class GuestExec:
    """The API's exec without an API: it runs the command in the pod's namespace."""

    def __init__(self, lab: NodeLab, node: str) -> None:
        self.guest = lab.guest(node)
        self.node = node
        self.commands: list[Sequence[str]] = []

    def execute(
        self,
        _namespace: str,
        pod: str,
        _container: str,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes = b"",
    ) -> ExecResult:
        self.commands.append(command)
        go_in = [] if pod == host_pod_name(self.node) else ["/run/hybridlab/enter", pod]
        done = self.guest.run([*go_in, *command], deadline, stdin)
        return ExecResult(done.code, done.stdout, done.stderr)
