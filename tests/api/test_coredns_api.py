"""The real CoreDNS with the lab's configuration, on a real API server."""

import pytest
from api_names import SECONDS
from dns_server import Asked

from lab._deadline import Deadline

pytestmark = pytest.mark.slow


def test_services_have_their_addresses_and_other_names_do_not_exist_at_once(dns, new_pods, drawn):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    bound = pods.bound(Deadline(SECONDS))
    service = next(
        service
        for machine in bound.machines
        if machine.translation
        for service in machine.translation.services
        if service.node_ports()
    )
    name = f"{service.name}.hybridlab-probe.svc.{drawn.plan.domain}"
    assert dns.once_known(name) == Asked(service.address)
    assert dns.ask(f"nobody.hybridlab-probe.svc.{drawn.plan.domain}") == Asked(None)
    assert dns.ask("example.org") == Asked(None)
