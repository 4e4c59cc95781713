"""Every pod resolves each headless Service's name, short and full, and the names of its pods."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address
from typing import Literal

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import DNS, CellFamily, Ends, rule
from lab.providers.provider import DNS_PORT
from lab.topology.intent import HeadlessService

_Form = Literal["short", "full"]


def _ends(lab: LabEndpoints) -> Ends:
    server = lab.ends.dns_pod
    if server is None:
        return lab.ends.pods, iter(())
    address = str(lab.plan.dns_address)

    def path(form: _Form, answer: str, asked: Endpoint, pod: Endpoint) -> GridPath:
        relation = between(pod, server)
        return GridPath(pod, asked, relation, (server.name,), name_form=form, answer=answer)

    return lab.ends.pods, (
        GridTarget(service.name, False, partial(path, form, answer, asked), name, only_small=True)
        for service in lab.headless
        for form, name, answer in _questions(lab, service)
        for asked in [Endpoint(name, "name", server.os, server.node, address, DNS_PORT)]
    )


def _questions(lab: LabEndpoints, service: HeadlessService) -> Iterator[tuple[_Form, str, str]]:
    domain = f"{lab.namespace}.svc.{lab.plan.domain}."
    every = sorted(IPv4Address(one.address) for one in service.backends)
    together = ", ".join(str(address) for address in every)
    yield "short", service.name, together
    yield "full", f"{service.name}.{domain}", together
    for one in service.backends:
        yield "full", f"{one.pod}.{service.name}.{domain}", one.address


FAMILY = CellFamily(
    name="headless",
    order=150,
    special=lambda one: one.headless,
    needs='"headless: true"',
    every_address=True,
    ends=_ends,
    works=rule(
        "K8S-HEADLESS",
        "the name of a headless Service resolves to the addresses of its ready pods, and each pod "
        "has a name in it",
        DNS,
    ),
)
