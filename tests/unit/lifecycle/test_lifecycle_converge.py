from __future__ import annotations

import pytest

from lab.lifecycle import up
from lab.providers.provider import Liveness

RUNNING = Liveness("running", "here")
ABSENT = Liveness("absent", "no process carries its token")
BROKEN = Liveness("broken", "win1 is not there")
WANTED = [("holder", "1"), ("network", "2"), ("services", "3")]
ALL = {"holder": "1", "network": "2", "services": "3"}


@pytest.mark.parametrize(
    ("done", "liveness", "actions", "whys"),
    [
        pytest.param(ALL, RUNNING, "skip skip skip", {"holder": "unchanged"}, id="all-done"),
        pytest.param({}, ABSENT, "run run run", {"holder": "new"}, id="new"),
        pytest.param({}, RUNNING, "run run run", {"holder": "new"}, id="killed-in-first"),
        pytest.param(
            {"holder": "1"},
            RUNNING,
            "skip run run",
            {"network": "new", "services": "follows 'network'"},
            id="killed-in-second",
        ),
        pytest.param(
            {**ALL, "network": "old"},
            RUNNING,
            "skip run run",
            {"network": "has changed", "services": "follows 'network'"},
            id="second-changed",
        ),
        pytest.param(
            {**ALL, "services": "old"},
            RUNNING,
            "skip skip run",
            {"services": "has changed"},
            id="last-changed",
        ),
        pytest.param(
            ALL,
            ABSENT,
            "run run run",
            {"holder": "machines are gone: no process", "services": "machines are gone"},
            id="gone",
        ),
        pytest.param(
            ALL, BROKEN, "run run run", {"holder": "broken: win1 is not there"}, id="broken"
        ),
        pytest.param(
            {**ALL, "tunnels": "9"},
            RUNNING,
            "run run run",
            {"holder": "step 'tunnels' was done and is no longer wanted"},
            id="a-step-too-many",
        ),
    ],
)
def test_what_runs_and_why(done, liveness, actions, whys):
    decisions = up.decide(done, WANTED, liveness)
    assert [d.step for d in decisions] == ["holder", "network", "services"]
    assert " ".join(d.action for d in decisions) == actions
    for decision in decisions:
        assert whys.get(decision.step, "") in decision.why
        assert decision.why
