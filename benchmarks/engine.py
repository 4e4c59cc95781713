"""Probes a second of the matrix engine, beside a loop of ``ip netns exec POD curl``.

Runs alone, as root or as a plain user who may make namespaces: ``python benchmarks/engine.py``.
All pods hang on one bridge in a world of their own, which goes when this ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab.providers.netns import isolation, prober  # noqa: E402  found only by the line above
from lab.providers.provider import PROBE_PORT, Outcome, Probe, ProbeSettings  # noqa: E402
from lab.scenario.terms import Protocol, Size  # noqa: E402

INSIDE = "inside"
QUIET = "addrgenmode none"
"""No IPv6 addresses: their multicast, flooded to every port, would be measured as well."""
OTHERS: tuple[tuple[Protocol, Size], ...] = (("udp", "small"), ("tcp", "large"), ("udp", "large"))
SETTINGS = ProbeSettings(timeout=2.0, in_flight=256)


def address(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250 + 1}"


def build(pods: int) -> None:
    """Pods p0, p1, ... with permanent neighbours, as the provider makes them."""
    lines = ["link add br0 type bridge", f"link set br0 {QUIET} up"]
    for number in range(pods):
        subprocess.run(["ip", "netns", "add", f"p{number}"], check=True)
        mac = f"0a:58:0a:00:{number // 250:02x}:{number % 250 + 1:02x}"
        lines += [
            f"link add v{number} type veth peer name eth0 address {mac} netns p{number}",
            f"link set v{number} master br0 {QUIET} up",
        ]
    batch(lines)
    for number in range(pods):
        inside = [
            f"addr add {address(number)}/16 dev eth0",
            f"link set eth0 {QUIET} up",
            "link set lo up",
        ]
        for other in range(pods):
            mac = f"0a:58:0a:00:{other // 250:02x}:{other % 250 + 1:02x}"
            inside.append(f"neigh replace {address(other)} lladdr {mac} dev eth0 nud permanent")
        batch(inside, "-n", f"p{number}")


def batch(lines: list[str], *options: str) -> None:
    text = "\n".join(lines) + "\n"
    subprocess.run(["ip", *options, "-batch", "-"], input=text, text=True, check=True)


def responder(pods: int) -> subprocess.Popen[bytes]:
    config = Path("/run/responder.json")
    ports = [PROBE_PORT]
    entries = [
        {"namespace": f"p{number}", "name": f"p{number}", "tcp": ports, "udp": ports, "dns": None}
        for number in range(pods)
    ]
    config.write_text(json.dumps(entries), encoding="utf-8")
    script = ROOT / "lab/providers/netns/responder.py"
    process = subprocess.Popen([sys.executable, "-I", script, config], stdout=subprocess.PIPE)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        sys.exit("the responder did not start")
    return process


class Enter:
    """Goes into a namespace by its name; keeps it open."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __call__(self, name: str) -> None:
        if name not in self._open:
            self._open[name] = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        isolation.setns(self._open[name], isolation.CLONE_NEWNET)


def probes(pods: int, count: int, protocol: Protocol, size: Size) -> list[Probe]:
    """So many probes between different pods, sources in turn, targets by chance."""
    chance = random.Random(1)
    made = []
    for key in range(count):
        source = key % pods
        target = (source + chance.randrange(1, pods)) % pods
        made.append(Probe(key, f"p{source}", protocol, size, address(target), PROBE_PORT, 1500))
    return made


def engine(pods: int, count: int, protocol: Protocol, size: Size, settings: ProbeSettings) -> float:
    sent = probes(pods, count, protocol, size)
    began = time.perf_counter()
    outcomes = prober.probe(Enter(), sent, settings, lambda _: None)
    seconds = time.perf_counter() - began
    report(f"engine, {protocol} {size}", count, seconds, outcomes)
    return count / seconds


def report(subject: str, count: int, seconds: float, outcomes: dict[int, Outcome]) -> None:
    statuses = Counter(outcome.status for outcome in outcomes.values())
    order = sorted(outcome.latency_ms for outcome in outcomes.values())
    print(
        f"{subject:<22} {count:>7} probes {seconds:7.2f} s {count / seconds:9,.0f} a second   "
        f"p50 {order[len(order) // 2]:.2f} ms, p99 {order[len(order) * 99 // 100]:.2f} ms   "
        + ", ".join(f"{status} {number}" for status, number in statuses.items())
    )


def curl(pods: int, count: int) -> float:
    began = time.perf_counter()
    for probe in probes(pods, count, "tcp", "small"):
        url = f"http://{probe.address}:{probe.port}/"
        command = ["ip", "netns", "exec", probe.source, "curl", "-sf", "-o", "/dev/null", url]
        subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    rate = count / seconds
    print(f"{'ip netns exec curl':<22} {count:>7} probes {seconds:7.2f} s {rate:9,.0f} a second")
    return rate


def inside(arguments: argparse.Namespace) -> None:
    Path("/run/netns").mkdir()
    build(arguments.pods)
    serving = responder(arguments.pods)
    try:
        settings = ProbeSettings(SETTINGS.timeout, arguments.in_flight)
        rate = engine(arguments.pods, arguments.probes, "tcp", "small", settings)
        for protocol, size in OTHERS:
            engine(arguments.pods, arguments.probes // 10, protocol, size, settings)
        beside = curl(arguments.pods, arguments.curl)
        print(
            f"{rate:,.0f} against {beside:,.0f} probes a second: {rate / beside:.0f} times as many"
        )
    finally:
        serving.terminate()
        serving.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--probes", type=int, default=30_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--curl", type=int, default=60)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments)
        return 0
    command = ["unshare", "-mnpf", "--kill-child", "--mount-proc"]
    if os.geteuid():
        command.insert(1, "-Ur")
    shell = 'mount -t tmpfs tmpfs /run && exec "$@"'
    again = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--inside"]
    return subprocess.run([*command, "sh", "-c", shell, "sh", *again], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
