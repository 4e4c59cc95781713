"""The kubelet of every node, as far as ``exec`` goes: a network in which everything answers.

``python answering_kubelet.py KUBECONFIG CERTIFICATE`` prints its port and serves. It reads pods and
Services of the API, and answers what the lab's probers run (``curl`` with its configuration on
standard input) as pods with netexec would, in bulk: no packet is sent. Windows pods resolve no
partly qualified names, as documented.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from websockets_by_hand import frame, switched

from lab._deadline import Deadline
from lab.machines.cluster.api import Api, make_namespaced_path
from lab.providers.provider import LARGE_TCP_BYTES

MTU = 1450
_CALL = 60.0
_WINDOWS = "windows"
_NO_SUCH_NAME = 6
_VARIABLE = re.compile(r"%\{(\w+)\}")
_STDIN, _STDOUT, _STATUS, _END = b"\x00", b"\x01", 3, b"\xff"


class Network:
    """Who answers at which address."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = Api(kubeconfig)
        self._lock = threading.Lock()
        self._turn = count()
        self._space = ""
        self._addresses: dict[str, str] = {}
        self._systems: dict[str, str] = {}
        self._backends: dict[tuple[str, int], list[str]] = {}
        self._names: dict[str, str] = {}
        self.bodies: dict[str, dict[str, str]] = {}
        """By pod, what curl has written, by file."""

    def known(self, space: str, pod: str) -> bool:
        """Whether a pod exists; the API is read again for a new one, or another namespace."""
        with self._lock:
            if space != self._space or pod not in self._addresses:
                self._read(space)
        return pod in self._addresses

    def _read(self, space: str) -> None:
        """Replaces what other threads look at."""
        self._space = space
        pods = self._api.listing(make_namespaced_path("pods", space), Deadline(_CALL)).objects
        services = self._api.ask("GET", "/api/v1/services", Deadline(_CALL))["items"]
        addresses = {name: pod["status"].get("podIP", "") for name, pod in pods.items()}
        names: dict[str, str] = {}
        all_backends = {(address, 8080): [name] for name, address in addresses.items()}
        self._systems = {
            name: pod["spec"]["nodeSelector"]["kubernetes.io/os"] for name, pod in pods.items()
        }
        self.bodies = {name: self.bodies.get(name, {}) for name in pods}
        for service in services:
            selector = service["spec"].get("selector") or {}
            ends = [
                name
                for name, pod in pods.items()
                if selector and selector.items() <= pod["metadata"].get("labels", {}).items()
            ]
            address, metadata = service["spec"]["clusterIP"], service["metadata"]
            names[f"{metadata['name']}.{metadata['namespace']}"] = address
            for port in service["spec"]["ports"]:
                all_backends[address, port["port"]] = ends
                all_backends["", port.get("nodePort", -1)] = ends
        self._names, self._backends, self._addresses = names, all_backends, addresses

    def answer(self, pod: str, address: str, port: int, path: str) -> str | None:
        """What netexec answers to a request from a pod; None if nobody is there."""
        ends = self._backends.get((address, port)) or self._backends.get(("", port))
        if not ends:
            return None
        if path == "hostname":
            return ends[next(self._turn) % len(ends)]
        if path == "clientip":
            return f"{self._addresses[pod]}:40000"
        return path.removeprefix("echo ")

    def resolve(self, pod: str, name: str) -> str | None:
        """The address of a Service's name, as a pod with its search list sees it."""
        words = name.rstrip(".").removesuffix(".cluster.local").removesuffix(".svc").split(".")
        partial = len(words) > 1 and not name.rstrip(".").endswith(".cluster.local")
        if partial and self._systems[pod] == _WINDOWS:
            return None
        known = [at for at in self._names if at.split(".")[: len(words)] == words]
        return self._names[known[0]] if known else None


def run(network: Network, pod: str, command: Sequence[str], stdin: str) -> str:
    """What a command of the lab prints in a pod."""
    if command[0] == "cat":
        return f"{MTU}\n"
    return "".join(
        _transfer(network, pod, options)
        for section in stdin.split("next\n")
        for options in _transfers(section)
    )


def _transfers(section: str) -> Iterator[dict[str, str]]:
    """The options of each transfer of a part of curl's configuration."""
    common: dict[str, str] = {}
    own: dict[str, str] = {}
    for line in section.splitlines():
        key, _, value = line.partition(" = ")
        if key == "url" and own:
            yield common | own
        if key == "url":
            own = {key: json.loads(value)}
        elif key == "output":
            own[key] = json.loads(value)
        elif key == "write-out":
            common[key] = json.loads(value)
    if own:
        yield common | own


def _transfer(network: Network, pod: str, options: dict[str, str]) -> str:
    """What curl prints of one transfer: its body, unless it goes to a file, and its report."""
    url, file = options["url"], options.get("output", "")
    body, exit_code, remote = _ask(network, pod, url)
    if file:
        network.bodies[pod][file] = body
    report = {
        "url_effective": url,
        "filename_effective": file,
        "exitcode": exit_code,
        "http_code": 0 if exit_code else 200,
        "size_download": LARGE_TCP_BYTES if urlsplit(url).path == "/echo" else len(body),
        "time_total": 0.001,
        "remote_ip": remote,
        "errormsg": "",
    }
    written = _VARIABLE.sub(lambda name: str(report[name[1]]), options["write-out"])
    return written if file else body + written


def _ask(network: Network, pod: str, text: str) -> tuple[str, int, str]:
    """Body, exit code and address of one request."""
    url = urlsplit(text)
    if url.scheme == "file":
        return network.bodies[pod].pop(url.path, ""), 0, ""
    host, port = url.hostname or "", url.port or 80
    if url.path == "/dial":
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        answers = [
            network.answer(pod, query["host"], int(query["port"]), query["request"])
            for _ in range(int(query["tries"]))
        ]
        responses = [answer for answer in answers if answer is not None]
        document = {"responses": responses} if responses else {"errors": ["i/o timeout"]}
        return json.dumps(document), 0, host
    if not host.replace(".", "").isdigit():
        address = network.resolve(pod, host)
        return ("", 0, address) if address else ("", _NO_SUCH_NAME, "")
    answer = network.answer(pod, host, port, url.path.strip("/"))
    return ("", 28, host) if answer is None else (answer, 0, host)


class _Handler(BaseHTTPRequestHandler):
    """``GET /exec/NAMESPACE/POD/CONTAINER`` over a WebSocket."""

    protocol_version = "HTTP/1.1"
    network: Network

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        (_, _, space, pod, *_), query = url.path.split("/"), parse_qs(url.query)
        self.close_connection = True
        if not self.network.known(space, pod):
            self.send_error(404, "no such pod")
            return
        self.wfile.write(switched(str(self.headers["Sec-WebSocket-Key"]).encode()))
        given = b"".join(self._stdin()) if "1" in query.get("input", ()) else b""
        printed = run(self.network, pod, query["command"], given.decode())
        self.wfile.write(frame(_STDOUT + printed.encode()))
        status = json.dumps({"status": "Success"}).encode()
        self.wfile.write(frame(bytes([_STATUS]) + status) + frame(b"\x03\xe8", 8))

    do_POST = do_GET  # noqa: N815  the base class's names

    def _stdin(self) -> Iterator[bytes]:
        """Standard input, until its channel is closed."""
        while (content := self._message())[:1] != _END:
            if content[:1] == _STDIN:
                yield content[1:]

    def _message(self) -> bytes:
        """One frame of a client, which is masked."""
        head = self.rfile.read(2)
        length = head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(self.rfile.read(2 if length == 126 else 8), "big")
        mask, content = self.rfile.read(4), self.rfile.read(length)
        key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        return (int.from_bytes(content, "big") ^ key).to_bytes(length, "big")

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    tls: ssl.SSLContext

    def finish_request(self, request: object, client_address: object) -> None:
        secured = self.tls.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
        super().finish_request(secured, client_address)  # type: ignore[arg-type]


def main(kubeconfig: str, certificate: str) -> None:
    """Serve until the process is ended."""
    _Handler.network = Network(Path(kubeconfig))
    server = _Server(("127.0.0.1", 0), _Handler)
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(certificate)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
