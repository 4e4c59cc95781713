"""A node's network as programmed by the real kube-proxy, in an otherwise empty namespace."""

import json
import os
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from control_plane import ControlPlane
from processes import run_program

from lab._deadline import Deadline
from lab.facts import nftables
from lab.facts.node import NodeFacts
from lab.plan.plan import PlannedNode
from lab.providers.netns import isolation

_SECONDS = 10.0
_CHUNK = 65_536


class ProxiedNode:
    """One kube-proxy in its own network namespace, from which only the API is reachable.

    ``plane``: the API server. ``program``: kube-proxy, or the directory with the files of its
    image, which is then its root. ``node``: the node that it runs for. Node ports and health checks
    are only at its address. ``configuration``: as written by the lab. ``directory``: for its files.
    """

    def __init__(
        self,
        plane: ControlPlane,
        program: Path,
        node: PlannedNode,
        configuration: dict[str, Any],
        directory: Path,
    ) -> None:
        self._log = directory / f"{node.name}.log"
        file = directory / f"{node.name}.json"
        given = {
            **configuration,
            "clientConnection": {"kubeconfig": str(plane.kubeconfig)},
            "conntrack": {
                "maxPerCore": 0
            },  # a setting of the machine, which a namespace cannot set
        }
        file.write_text(json.dumps(given))
        own = f"ip link set lo up && ip addr replace {node.address}/32 dev lo"
        command = str(program)
        if program.is_dir():
            shared = (Path("/proc"), Path("/dev"), directory, plane.kubeconfig.parent)
            own += "".join(f" && {_bound(path, program)}" for path in shared)
            command = f"chroot {program} /usr/local/bin/kube-proxy"
        arguments = f"--config={file} --hostname-override={node.name}"
        self._words = f"{own} && exec {command} {arguments}"
        self._address = str(node.address)
        self._process = self._started("unshare", "--net")
        self._namespace = self._opened()
        self._server = self._inside(
            lambda: socket.create_server(("127.0.0.1", urlsplit(plane.address).port))
        )
        self._relays = [threading.Thread(target=self._forward, args=(plane.address,))]
        self._relays[0].start()

    def _started(self, *where: str, keeps: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*where, "unshare", "--mount", "sh", "-c", self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=keeps,
            )

    def stop(self) -> None:
        """Kill it; its rules stay."""
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        """Start it again; its old rules are still there."""
        space = self._namespace
        self._process = self._started("nsenter", f"--net=/proc/self/fd/{space}", keeps=(space,))

    def nft(self, *words: str) -> str:
        """Run nft in its network."""
        command = ["nsenter", f"--net=/proc/self/fd/{self._namespace}", "nft", *words]
        keeps = (self._namespace,)
        return run_program(command, pass_fds=keeps).stdout

    def _opened(self) -> int:
        """Open its namespace, once it differs from this process's."""
        own = Path("/proc/self/ns/net").readlink()
        path = Path(f"/proc/{self._process.pid}/ns/net")
        Deadline(_SECONDS).wait(
            "waiting for a namespace", path.readlink, until=lambda its: its != own
        )
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _inside(self, function: Any) -> Any:
        """Call a function on a thread in the namespace; its sockets stay in that namespace."""
        with ThreadPoolExecutor(1) as threads:
            threads.submit(isolation.setns, self._namespace, isolation.CLONE_NEWNET).result()
            return threads.submit(function).result()

    def _forward(self, address: str) -> None:
        there = urlsplit(address)
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection((str(there.hostname), there.port or 0))
                self._relays.append(threading.Thread(target=_relay, args=(near, far)))
                self._relays[-1].start()

    def seen(self) -> NodeFacts:
        """The facts of its rules."""
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        document = json.loads(self.nft("-j", "list", "ruleset"))
        rules = nftables.read(document["nftables"], but=frozenset())
        return NodeFacts("linux", "", translations=rules.translations)

    def asked(self, port: int, question: bytes) -> bytes:
        """The answer on a port of the node."""

        def ask() -> bytes:
            with closing(socket.create_connection((self._address, port), _SECONDS)) as connection:
                connection.sendall(question)
                return b"".join(iter(lambda: connection.recv(_CHUNK), b""))

        answer: bytes = self._inside(ask)
        return answer

    def end(self) -> None:
        self.stop()
        # Wakes the thread that waits for connections, which closing alone would not.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        for relay in self._relays:
            relay.join()
        self._server.close()
        os.close(self._namespace)


def _bound(path: Path, root: Path) -> str:
    return f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}"


def _relay(near: socket.socket, far: socket.socket) -> None:
    """Relay both directions of one connection until both have ended."""
    with near, far:
        back = threading.Thread(target=_pump, args=(far, near))
        back.start()
        _pump(near, far)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
