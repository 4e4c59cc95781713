"""A real control plane on loopback, without machines: etcd, kube-apiserver, controllers."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from certificates import Authority, Pair

from lab._deadline import Deadline
from lab._errors import LabError
from lab.machines.cluster.api import Api

CONTROLLERS = (
    "endpointslice-controller",
    "namespace-controller",
    "serviceaccount-controller",
)
_UP_SECONDS = 240.0


class ControlPlane:
    """The processes, and access to the API. ``options``: more of the API server's."""

    def __init__(self, directory: Path, path: Path, options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._options = options
        self._found = path
        self.authority = Authority(directory)
        self._ports = free_ports(3)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = self._kubeconfig("admin", "system:masters")
        self._server = self.authority.sign("server", addresses=("127.0.0.1", "10.96.0.1"))
        self._accounts = self.authority.sign("accounts")
        self._manager = self._kubeconfig("system:kube-controller-manager", "")

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._ports[0]}"

    def _kubeconfig(self, name: str, group: str) -> Path:
        pair: Pair = self.authority.sign(name, group)
        path = self._directory / f"{name.replace(':', '-')}.conf"
        cluster = {"server": self.address, "certificate-authority": str(self.authority.file)}
        user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
        }
        path.write_text(json.dumps(document))
        return path

    def start(self) -> None:
        """Start everything; return when the API server serves."""
        self._start_etcd()
        self.start_server()
        manager = [
            f"--kubeconfig={self._manager}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self.authority.file}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        self.run("kube-controller-manager", manager)

    def start_scheduler(self) -> None:
        """Start a scheduler, which most tests do without."""
        kubeconfig = self._kubeconfig("system:kube-scheduler", "")
        options = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500"]
        self.run("kube-scheduler", [f"--kubeconfig={kubeconfig}", *options])

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[1:])
        self.run(
            "etcd",
            [
                f"--data-dir={self._directory / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
        )

    def start_server(self) -> None:
        """Start the API server, and wait until it serves."""
        self.run(
            "kube-apiserver",
            [
                f"--etcd-servers=http://127.0.0.1:{self._ports[1]}",
                f"--secure-port={self._ports[0]}",
                "--bind-address=127.0.0.1",
                "--advertise-address=192.0.2.1",
                "--endpoint-reconciler-type=none",
                f"--client-ca-file={self.authority.file}",
                f"--tls-cert-file={self._server.certificate}",
                f"--tls-private-key-file={self._server.key}",
                f"--service-account-key-file={self._accounts.certificate}",
                f"--service-account-signing-key-file={self._accounts.key}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/12",
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=Hostname",
                "--watch-cache=true",
                *self._options,
            ],
        )
        self.await_server()

    def await_server(self) -> None:
        api = Api(self.kubeconfig)

        def look() -> str:
            process = self.processes["kube-apiserver"]
            assert process.poll() is None, self.log("kube-apiserver")
            try:
                found = api.ask("GET", "/readyz", Deadline(5.0))
            except LabError as error:
                return error.happened
            return str(found["message"])

        deadline = Deadline(_UP_SECONDS)
        deadline.wait("starting", look, until=lambda said: said == "ok", every=0.1)
        api.close()

    def log(self, program: str) -> str:
        return (self._directory / f"{program}.log").read_text()[-4000:]

    def run(self, program: str, arguments: Sequence[str]) -> None:
        """Start a program; its log is in the directory."""
        with (self._directory / f"{program}.log").open("ab") as log:
            self.processes[program] = subprocess.Popen(
                [str(self._found / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the API server's process during the block; its connections stay open."""
        process = self.processes["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def kill_server(self) -> None:
        process = self.processes["kube-apiserver"]
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [socket.getsockname()[1] for socket in sockets]
    for one in sockets:
        one.close()
    return ports
