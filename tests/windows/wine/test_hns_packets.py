"""HNS' daemon carries packets: two nodes in network namespaces, one of them Linux with flannel."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hns_documents import (
    NETWORK,
    POD,
    REMOTE,
    SPACE,
    add_endpoint,
    load_balancer,
    overlay_network,
    pod_endpoint,
    remote_endpoint,
    remote_subnet,
)

pytestmark = [
    pytest.mark.room,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces of nodes"),
]
ROOT = Path(__file__).parents[3]
SECONDS = 30.0
CLUSTER_IP = "10.96.0.10"
SERVER = """
import socketserver, sys
class Call(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(f"{sys.argv[1]} {self.client_address[0]}".encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(("0.0.0.0", int(sys.argv[2])), Call).serve_forever()
"""
ECHO = """
import socket, sys
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    data, client = channel.recvfrom(100)
    channel.sendto(data, client)
"""
DATAGRAM = """
import socket, sys
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.settimeout(float(sys.argv[3]))
channel.connect((sys.argv[1], int(sys.argv[2])))
channel.send(b"answered")
print(channel.recv(100).decode(), end="")
"""
CLIENT = """
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).makefile().read(), end="")
"""
QUESTION = """
import socket, sys
channel = socket.create_connection(("127.0.0.1", 18081), 20)
body = sys.stdin.buffer.read()
channel.sendall(f"{sys.argv[1]}\\n{sys.argv[2]}\\n{len(body)}\\n".encode() + body)
channel.shutdown(socket.SHUT_WR)
print(channel.makefile().read(), end="")
"""


class Node:
    """A process with network and mount namespaces of its own, which end with it."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self.directory = directory
        script = (
            "mount -t tmpfs none /run/netns && mount -t sysfs none /sys && echo ready "
            "&& exec sleep infinity"
        )
        process = subprocess.Popen(
            ("unshare", "--mount", "--net", "sh", "-c", f"mkdir -p /run/netns; {script}"),
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self.pid = process.pid
        self.run("ip", "link", "set", "lo", "up")

    def inside(self, *command: str) -> tuple[str, ...]:
        """The command in this node."""
        return ("nsenter", "--target", str(self.pid), "--mount", "--net", "--", *command)

    def run(self, *command: str, text: str = "") -> str:
        """Run a command in this node; its output."""
        done = subprocess.run(
            self.inside(*command),
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def ip(self, *lines: str) -> None:
        """Lines of ``ip -batch``."""
        self.run("ip", "-batch", "-", text="".join(f"{line}\n" for line in lines))

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command that runs until the test's end."""
        process = subprocess.Popen(self.inside(*command), cwd=ROOT)
        self._stack.callback(end, process)
        return process

    def serve(self, name: str, port: int, namespace: str = "") -> None:
        """A server in the node or in one of its pods that says its name and who called."""
        where = ("ip", "netns", "exec", namespace) if namespace else ()
        self.start(*where, sys.executable, "-c", SERVER, name, str(port))
        self.until(f"server {name}", lambda: self.call("127.0.0.1", port, namespace))

    def call(self, address: str, port: int, namespace: str = "") -> str:
        """What a server answers to the node or to one of its pods; empty if it does not."""
        where = ("ip", "netns", "exec", namespace) if namespace else ()
        command = (*where, sys.executable, "-c", CLIENT, address, str(port))
        done = subprocess.run(
            self.inside(*command), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return done.stdout

    def until(self, condition: str, look: Any) -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + SECONDS
        while not look():
            assert time.monotonic() < deadline, f"{condition}: not in {SECONDS} s"
            time.sleep(0.05)


class WindowsNode(Node):
    """A node with HNS' daemon."""

    daemon: subprocess.Popen[bytes]

    def power_on(self) -> None:
        """Start the daemon and wait until it answers. Its nft refuses while there is `refuse`."""
        words = ("-m", "lab.windows.wine.hns.daemon", str(self.directory), "20348", "cluster")
        nft = self.directory / "bin" / "nft"
        nft.parent.mkdir(parents=True, exist_ok=True)
        nft.write_text(
            f'#!/bin/sh\n[ -e {self.refuse} ] && exit 9\nexec {shutil.which("nft")} "$@"\n'
        )
        nft.chmod(0o755)
        path = f"PATH={nft.parent}:{os.environ['PATH']}"
        self.daemon = self.start("env", path, sys.executable, *words)

        def answers() -> bool:
            probe = (
                sys.executable,
                "-c",
                "import socket; socket.create_connection(('127.0.0.1', 18081))",
            )
            command = self.inside(*probe)
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        self.until("HNS' daemon", answers)

    @property
    def refuse(self) -> Path:
        """While it exists, nft loads nothing."""
        return self.directory / "refuse"

    def ask(self, operation: str, named: str, document: Mapping[str, Any] | None = None) -> str:
        """Ask HNS; its answer's document. It must succeed."""
        code, answer = self.try_to_ask(operation, named, document)
        assert code == "0", answer
        return answer.partition("\n")[2]

    def try_to_ask(
        self, operation: str, named: str, document: Mapping[str, Any] | None
    ) -> tuple[str, str]:
        """Ask HNS; its answer's code, and the rest."""
        body = "" if document is None else json.dumps(document)
        answer = self.run(sys.executable, "-c", QUESTION, operation, named, text=body)
        code, _, rest = answer.partition("\n")
        return code, rest

    def devices(self) -> set[str]:
        """The devices that HNS made."""
        links = json.loads(self.run("ip", "-json", "link"))
        return {link["ifname"] for link in links} - {"lo", "cluster"}


def end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def two_nodes(directory: Path) -> Iterator[tuple[WindowsNode, Node]]:
    """A Windows node, 192.0.2.2 with pods 10.244.1.0/24, and a Linux one, .3 with 10.244.3.0/24."""
    with ExitStack() as stack:
        linux = Node(stack, directory / "linux")
        windows = WindowsNode(stack, directory / "windows")
        linux.ip(
            f"link add cluster type veth peer name cluster netns {windows.pid}",
            "link set cluster up",
            "address add 192.0.2.3/24 dev cluster",
            "link add flannel.4096 address 0e:00:00:00:00:03 type vxlan id 4096 dstport 4789 "
            "local 192.0.2.3 dev cluster nolearning",
            "link set flannel.4096 mtu 1450 up",
            "address add 10.244.3.0/32 dev flannel.4096",
            "address add 10.244.3.7/32 dev lo",
            "neighbour add 10.244.1.0 lladdr 00:15:5d:00:02:02 dev flannel.4096 nud permanent",
            "route add 10.244.1.0/24 via 10.244.1.0 dev flannel.4096 onlink src 10.244.3.7",
        )
        linux.run(
            "bridge", "fdb", "add", "00:15:5d:00:02:02", "dev", "flannel.4096", "dst", "192.0.2.2"
        )
        windows.ip("link set cluster up", "address add 192.0.2.2/24 dev cluster")
        windows.power_on()
        yield windows, linux


def make_overlay(windows: WindowsNode) -> None:
    windows.ask("create", f"networks {NETWORK}", overlay_network("10.244.1.0/24", "10.244.1.1"))
    remote = remote_subnet("10.244.3.0/24", "192.0.2.3", "0E-00-00-00-00-03")
    windows.ask("modify", f"networks {NETWORK}", remote)


def make_pod(windows: WindowsNode, exceptions: list[str]) -> None:
    windows.run("ip", "netns", "add", "cni-1")
    windows.ask("bind", f"namespaces {SPACE}", {"Netns": "cni-1"})
    windows.ask("create", f"endpoints {POD} {NETWORK}", pod_endpoint("10.244.1.2", exceptions))
    windows.ask("modify", f"namespaces {SPACE}", add_endpoint(POD))


EXCEPTIONS = ["10.244.0.0/16", "10.96.0.0/12"]


def test_pods_talk_over_the_overlay_and_through_services(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        linux.serve("linux", 8080)
        assert linux.call("10.244.1.2", 8080) == "windows 10.244.3.7"
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.2"
        counts = json.loads(windows.ask("call", f"GET /endpointstats/{POD}"))["Output"]
        assert min(counts["BytesReceived"], counts["PacketsSent"]) > 0
        remote = remote_endpoint("10.244.3.7", "192.0.2.3")
        windows.ask("create", f"endpoints {REMOTE} {NETWORK}", remote)
        to_linux = load_balancer([REMOTE], [CLUSTER_IP], 80, 8080)
        windows.ask("create", "loadbalancers -", to_linux)
        assert windows.call(CLUSTER_IP, 80, "cni-1") == "linux 10.244.1.2"
        windows.ask("create", "loadbalancers -", load_balancer([POD], [], 30080, 8080))
        assert linux.call("192.0.2.2", 30080).startswith("windows ")


def test_a_pod_reaches_itself_through_a_service_only_by_its_loopback_policy(tmp_path: Path) -> None:
    """X4: with Direct Server Return, as kube-proxy asks for it."""
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        windows.ask("create", "loadbalancers -", load_balancer([POD], [CLUSTER_IP], 80, 8080))
        windows.ask("create", "loadbalancers -", load_balancer([POD], [], 30080, 8080))
        assert linux.call("192.0.2.2", 30080).startswith("windows "), "the Service has its backend"
        assert windows.call(CLUSTER_IP, 80, "cni-1") == ""
        loopback = {"Type": "OutBoundNAT", "Settings": {"Destinations": ["10.244.1.2"]}}
        change = {"ResourceType": "Policy", "Settings": {"Policies": [loopback]}}
        windows.ask("modify", f"endpoints {POD}", {**change, "RequestType": "Add"})
        assert windows.call(CLUSTER_IP, 80, "cni-1").startswith("windows ")


def test_a_network_on_an_unused_card_reaches_no_other_node_until_it_is_made_again(
    tmp_path: Path,
) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        linux.serve("linux", 8080)
        windows.ask("call", "POST /habits/other-card", {"On": True})
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        assert "ethernet2" in windows.devices()
        assert windows.call("10.244.3.7", 8080, "cni-1") == ""
        windows.daemon.kill()
        windows.power_on()
        windows.ask("call", "POST /habits/other-card", {"On": False})
        windows.ask("delete", f"networks {NETWORK}")
        windows.run("ip", "netns", "delete", "cni-1")
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        assert "ethernet2" not in windows.devices()
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.2"


def test_routes_that_went_with_the_cards_address_are_made_again_when_asked(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        linux.serve("linux", 8080)
        windows.serve("windows", 8080, "cni-1")
        windows.ip("address delete 192.0.2.2/24 dev cluster")
        assert windows.call("10.244.3.7", 8080, "cni-1") == ""
        windows.ip("address add 192.0.2.2/24 dev cluster")
        windows.ask("call", "POST /refresh")
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.2"
        assert windows.call("10.244.1.2", 8080) == "windows 192.0.2.2"


def test_a_node_answers_its_pods_datagrams_from_the_address_that_they_asked(
    tmp_path: Path,
) -> None:
    with two_nodes(tmp_path) as (windows, _):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        server = windows.inside(sys.executable, "-c", ECHO, "8080")
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            words = ("ip", "netns", "exec", "cni-1", sys.executable, "-c", DATAGRAM)
            try:
                assert windows.run(*words, "192.0.2.2", "8080", str(SECONDS)) == "answered"
            finally:
                process.kill()


def make_bridge(windows: WindowsNode) -> None:
    """The network of hns-make, the endpoint of flanneld (both version 1), the pod of win-bridge."""
    network = {
        "Type": "L2Bridge",
        "Name": "cbr0",
        "NetworkAdapterName": "cluster",
        "Subnets": [{"AddressPrefix": "10.244.1.0/24", "GatewayAddress": "10.244.1.1"}],
    }
    made = json.loads(windows.ask("call", "POST /networks/", network))["Output"]["ID"]
    own = {"Name": "cbr0_ep", "IPAddress": "10.244.1.2", "GatewayAddress": "0.0.0.0"}
    answer = windows.ask("call", "POST /endpoints/", {**own, "VirtualNetwork": made})
    guid = json.loads(answer)["Output"]["ID"]
    attachment = {"SystemType": "Host", "CompartmentId": 1}
    windows.ask("call", f"POST /endpoints/{guid}/attach", attachment)
    windows.run("ip", "netns", "add", "cni-1")
    windows.ask("bind", f"namespaces {SPACE}", {"Netns": "cni-1"})
    routes = [{"NextHop": "10.244.1.2", "DestinationPrefix": "0.0.0.0/0"}]
    pod = {**pod_endpoint("10.244.1.3", EXCEPTIONS), "Routes": routes}
    windows.ask("create", f"endpoints {POD} {made}", pod)
    windows.ask("modify", f"namespaces {SPACE}", add_endpoint(POD))


def test_pods_of_a_bridge_talk_to_other_nodes_and_to_their_own(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_bridge(windows)
        linux.ip("route replace 10.244.1.0/24 via 192.0.2.2 dev cluster src 10.244.3.7")
        windows.ip("route add 10.244.3.0/24 via 192.0.2.3 dev cluster")
        windows.serve("windows", 8080, "cni-1")
        windows.serve("node", 8081)
        linux.serve("linux", 8080)
        assert linux.call("10.244.1.3", 8080) == "windows 10.244.3.7"
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.3"
        assert windows.call("192.0.2.2", 8081, "cni-1") == "node 10.244.1.3"
        assert windows.call("10.244.1.3", 8080).startswith("windows ")
        windows.ask("create", "loadbalancers -", load_balancer([POD], [], 30080, 8080))
        assert linux.call("192.0.2.2", 30080).startswith("windows ")


def test_a_policy_without_exceptions_translates_pods_into_the_cluster(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, [])
        linux.serve("linux", 8080)
        caller = windows.call("10.244.3.7", 8080, "cni-1")
        assert caller.startswith("linux ")
        assert caller != "linux 10.244.1.2"


def test_an_access_control_list_blocks_what_it_names_until_it_is_removed(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        windows.serve("windows", 8081, "cni-1")
        linux.serve("linux", 8080)
        rule = {
            "Action": "Block",
            "Direction": "In",
            "Protocols": "6",
            "LocalPorts": "8080",
            "RemoteAddresses": "10.244.3.0/24",
        }
        change = {
            "ResourceType": "Policy",
            "Settings": {"Policies": [{"Type": "ACL", "Settings": rule}]},
        }
        windows.ask("modify", f"endpoints {POD}", {**change, "RequestType": "Add"})
        assert linux.call("10.244.1.2", 8080) == ""
        assert linux.call("10.244.1.2", 8081) == "windows 10.244.3.7"
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.2"
        windows.daemon.send_signal(signal.SIGKILL)
        windows.daemon.wait()
        windows.power_on()
        windows.ask("modify", f"endpoints {POD}", {**change, "RequestType": "Remove"})
        assert linux.call("10.244.1.2", 8080) == "windows 10.244.3.7"


def test_what_a_list_drops_of_a_pods_packets_is_not_told_to_the_pod(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        linux.serve("linux", 8080)
        rule = {"Action": "Block", "Direction": "Out", "Protocols": "6,17", "RemotePorts": "8080"}
        change = {
            "ResourceType": "Policy",
            "Settings": {"Policies": [{"Type": "ACL", "Settings": rule}]},
        }
        windows.ask("modify", f"endpoints {POD}", {**change, "RequestType": "Add"})
        send = ("python3", "-c", DATAGRAM, "10.244.3.7", "8080", "0.3")
        done = subprocess.run(
            windows.inside("ip", "netns", "exec", "cni-1", *send),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.stderr.splitlines()[-1] == "TimeoutError: timed out"
        assert windows.call("10.244.3.7", 8080, "cni-1") == ""
        windows.daemon.send_signal(signal.SIGKILL)
        windows.daemon.wait()
        windows.power_on()
        windows.ask("modify", f"endpoints {POD}", {**change, "RequestType": "Remove"})
        assert windows.call("10.244.3.7", 8080, "cni-1") == "linux 10.244.1.2"


def test_after_a_refusal_of_the_kernel_the_network_is_as_before_and_can_be_changed(
    tmp_path: Path,
) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        balancer = load_balancer([POD], [], 30080, 8080)
        windows.refuse.touch()
        code, answer = windows.try_to_ask("create", "loadbalancers -", balancer)
        assert (code, "nftables" in answer) == ("80004005", True)
        windows.refuse.unlink()
        windows.ask("create", "loadbalancers -", balancer)
        assert linux.call("10.244.1.2", 8080) == "windows 10.244.3.7"
        assert linux.call("192.0.2.2", 30080).startswith("windows ")


def test_a_pod_whose_endpoint_left_its_namespace_is_unplugged(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        assert linux.call("10.244.1.2", 8080)
        windows.ask("modify", f"namespaces {SPACE}", {**add_endpoint(POD), "RequestType": "Remove"})
        assert linux.call("10.244.1.2", 8080) == ""


def test_a_killed_daemon_goes_on_and_what_is_deleted_is_gone(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (windows, linux):
        make_overlay(windows)
        make_pod(windows, EXCEPTIONS)
        windows.serve("windows", 8080, "cni-1")
        before = windows.devices()
        assert len(before) == 3
        windows.daemon.send_signal(signal.SIGKILL)
        windows.daemon.wait()
        assert linux.call("10.244.1.2", 8080) == "windows 10.244.3.7"
        windows.power_on()
        assert windows.devices() == before
        assert linux.call("10.244.1.2", 8080) == "windows 10.244.3.7"
        windows.ask("delete", f"endpoints {POD}")
        assert windows.devices() == {"hns", "vxlan4096"}
        windows.ask("delete", f"networks {NETWORK}")
        assert windows.devices() == set()
        calls = (windows.directory / "calls.jsonl").read_text().splitlines()
        operations = [json.loads(call)["question"]["operation"] for call in calls]
        assert operations[-2:] == ["delete", "delete"]
