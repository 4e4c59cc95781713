"""API servers that have answered by their certificates get their machines' names."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.cluster.credentials import CertificateSubject, issue, make_authority
from lab.machines.kubernetes import MachinesCluster
from lab.providers.netns.dialects import fingerprint
from lab.providers.provider import LabHandle, Outcome, Probe, ProbeSettings

PLANES = ("controller-01", "controller-02", "controller-03")
CA = make_authority("kubernetes")
WRITTEN = {
    name: issue(CA, CertificateSubject("kube-apiserver", (), (name,))).certificate
    for name in PLANES
}
SEEN = {name: fingerprint(ssl.PEM_cert_to_DER_cert(text)) for name, text in WRITTEN.items()}


@dataclass
class Machines:
    """Control planes that show their certificates, and what is found when they are probed."""

    found: dict[int, Outcome]
    written: dict[str, str | None]
    read: list[str] = field(default_factory=list)
    deadline = Deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def probe(self, *_: Any) -> dict[int, Outcome]:
        return self.found

    def shell(self, name: str) -> Any:
        def get(path: str, _deadline: Deadline) -> bytes:
            assert path == "/etc/kubernetes/pki/apiserver.crt"
            self.read.append(name)
            text = self.written[name]
            if text is None:
                raise BrokenError("reading a file", "it does not answer")
            return text.encode()

        return SimpleNamespace(get=get)


def answered(*backends: Sequence[str], **written: str | None) -> tuple[list[Any], list[str]]:
    """Who is said to have answered, by probe, and whose certificates were read for that."""
    found = {
        key: Outcome(key, "ok", "", None, tuple(backend), None, 1.0)
        for key, backend in enumerate(backends)
    }
    machines = Machines(found, {**WRITTEN, **written})
    nodes = [SimpleNamespace(name=name, os="linux") for name in PLANES]
    cluster = SimpleNamespace(nodes=nodes, control_planes=lambda: nodes)
    lab = LabHandle("lab", Path("/nowhere"), "token")
    made = MachinesCluster(lab, None, SimpleNamespace(cluster=cluster), lambda: machines)  # type: ignore[arg-type]  # as much as is used
    probes = [Probe(key, "a", "tcp", "small", "10.0.0.1", 80, 1450) for key in found]
    outcomes = made.probe(None, probes, ProbeSettings(1.0, 4), lambda _: None)  # type: ignore[arg-type]
    return [outcomes[key].backends for key in found], machines.read


def test_each_certificate_is_its_control_plane_and_a_stranger_s_stays_what_it_is():
    names, _ = answered([*SEEN.values(), "sha256:00"], ["worker1-p1"], [])
    assert names == [(*PLANES, "sha256:00"), ("worker1-p1",), ()]


def test_only_as_many_control_planes_are_asked_as_have_to_be():
    assert answered(["worker1-p1"]) == ([("worker1-p1",)], [])
    assert answered([SEEN["controller-01"]]) == ([("controller-01",)], ["controller-01"])


def test_a_control_plane_that_cannot_be_asked_takes_nothing_from_the_others():
    lost: dict[str, str | None] = {"controller-01": None, "controller-02": "no certificate"}
    names, _ = answered([SEEN["controller-03"], SEEN["controller-01"]], **lost)
    assert names == [("controller-03", SEEN["controller-01"])]
