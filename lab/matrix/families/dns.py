"""Every probe pod resolves the plan's first single Service by its three names.

A DNS answer has no backend and no source: only the address in it is judged. The relation, and the
machine that answers, are those of the DNS pod.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import DNS, CellFamily, Ends, rule
from lab.providers.provider import DNS_PORT


def _ends(lab: LabEndpoints) -> Ends:
    server = lab.ends.dns_pod
    service = next((s for s in lab.plan.services if s.purpose == "single"), None)
    if server is None or service is None:
        return lab.ends.pods, iter(())
    names: tuple[tuple[Literal["short", "partial", "full"], str], ...] = (
        ("short", service.name),
        ("partial", f"{service.name}.{lab.namespace}"),
        ("full", f"{service.name}.{lab.namespace}.svc.{lab.plan.domain}."),
    )
    address = str(lab.plan.dns_address)

    def path(form: Literal["short", "partial", "full"], asked: Endpoint, pod: Endpoint) -> GridPath:
        return GridPath(
            pod,
            asked,
            between(pod, server),
            (server.name,),
            name_form=form,
            answer=str(service.address),
        )

    return lab.ends.pods, (
        GridTarget(form, False, partial(path, form, asked), only_small=True)
        for form, name in names
        for asked in [Endpoint(name, "name", server.os, server.node, address, DNS_PORT)]
    )


FAMILY = CellFamily(
    name="dns",
    order=90,
    ends=_ends,
    works=rule("K8S-DNS", "a pod finds a Service by its short, partial and full name", DNS),
)
