"""The real CoreDNS with the lab's configuration, on a real API server."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_names import NewPods
from control_plane import ControlPlane, free_ports
from kubernetes_programs import HOW, programs

from lab._deadline import Deadline
from lab.cluster.dns import corefile
from lab.lifecycle.blueprint import Blueprint
from lab.providers.netns import dnswire

SECONDS = 30.0


@dataclass(frozen=True)
class Asked:
    address: str | None


@dataclass(frozen=True)
class Dns:
    port: int
    log: Path

    def ask(self, name: str) -> Asked | str:
        """What it answers; in words when it says nothing."""
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
            asking.settimeout(2.0)
            asking.connect(("127.0.0.1", self.port))
            try:
                asking.send(dnswire.question(name, 7))
                return Asked(dnswire.read_answer(asking.recv(512), name, 7))
            except OSError as error:
                return f"{error}; {self.log.read_text()[-500:]}"

    def once_known(self, name: str) -> Asked | str:
        return Deadline(SECONDS).wait(
            f"asking for {name}",
            lambda: self.ask(name),
            until=lambda said: isinstance(said, Asked) and said.address is not None,
            every=0.2,
        )


@pytest.fixture
def dns(plane: ControlPlane, drawn: Blueprint, tmp_path: Path) -> Iterator[Dns]:
    found = programs("coredns")
    if found is None:
        pytest.skip(f"there is no CoreDNS: {HOW}")
    port, health = free_ports(2)
    text = corefile(drawn.plan.domain)
    for written, here in (
        (":53", f":{port}"),
        ("health {", f"health 127.0.0.1:{health} {{"),
        ("ready", "ready 127.0.0.1:0"),
        ("pods insecure", f"pods insecure\n        kubeconfig {plane.kubeconfig} it"),
    ):
        assert written in text
        text = text.replace(written, here)
    (tmp_path / "Corefile").write_text(text)
    log = tmp_path / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(found / "coredns"), "-conf", str(tmp_path / "Corefile")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    yield Dns(port, log)
    process.kill()
    process.wait()


def test_services_have_their_addresses_and_other_names_do_not_exist_at_once(
    dns: Dns, new_pods: NewPods, drawn: Blueprint
) -> None:
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    bound = pods.bound(Deadline(SECONDS))
    service = next(
        service
        for machine in bound.machines
        if machine.translation
        for service in machine.translation.services
        if service.node_port
    )
    name = f"{service.name}.hybridlab-probe.svc.{drawn.plan.domain}"
    assert dns.once_known(name) == Asked(service.address)
    assert dns.ask(f"nobody.hybridlab-probe.svc.{drawn.plan.domain}") == Asked(None)
    assert dns.ask("example.org") == Asked(None)
