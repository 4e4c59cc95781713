"""``lab fault``, ``lab explain`` and ``lab heal`` on machines, whose pods are namespaces."""

import pytest
from guest_provider import GuestProvider, opened

from lab.explain.explanation import Explanation
from lab.explain.faults import registry
from lab.lifecycle.explain import ExplainQuestion, explain_cell
from lab.lifecycle.faults import FaultRequest, heal, present, put_in
from lab.lifecycle.open_lab import OpenLab

SAID: list[str] = []


@pytest.fixture(scope="module")
def there(overlay, tmp_path_factory):
    found = opened(overlay, GuestProvider(overlay.fleet), tmp_path_factory.mktemp("state"))
    yield found
    found.store.close()


def told(opened: OpenLab) -> Explanation:
    return explain_cell(
        opened, ExplainQuestion("worker1-p1", "worker2-p1", "tcp", "small"), SAID.append
    )


@pytest.mark.parametrize(
    "fault",
    ["wrong-vni", "pod-link-down", "ip-forward-off"],
)
def test_a_fault_on_a_machine_is_named_and_healed(there, fault):
    sites = registry.sites(registry.faults()[fault], there.intent)
    site = next(site for site in sites if site.node == "worker1")
    peer = next((peer for peer in site.peers if peer in {"worker2", "worker1-p1"}), "")
    row = put_in(there, FaultRequest(fault, "worker1", peer), SAID.append)
    assert (row.node, row.peer, row.state) == ("worker1", peer, "done")
    try:
        finding = told(there).finding
        assert finding is not None
        assert (finding.fault, finding.node) == (fault, "worker1")
    finally:
        assert heal(there, SAID.append).removed == (row,)
    assert present(there) == ()


def test_a_healed_lab_has_no_findings(there):
    explanation = told(there)
    assert explanation.well, explanation
    assert explanation.explained.path.machines == ("worker1", "worker2")
