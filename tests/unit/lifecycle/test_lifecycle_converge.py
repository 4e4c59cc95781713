from __future__ import annotations

import pytest

from lab.lifecycle import up
from lab.providers.provider import Liveness

RUNNING = Liveness("running", "here")
ABSENT = Liveness("absent", "no process carries its token")
BROKEN = Liveness("broken", "win1 is not there")
WANTED = [("holder", "1"), ("network", "2"), ("services", "3")]
ALL = {"holder": "1", "network": "2", "services": "3"}


AFTER_NETWORK = {"network": "has changed", "services": "follows 'network'"}
GONE = {"holder": "machines are gone: no process", "services": "machines are gone"}
UNWANTED = {"holder": "step 'tunnels' was done and is no longer wanted"}
CASES = {
    "all done": (ALL, RUNNING, "skip skip skip", {"holder": "unchanged"}),
    "new": ({}, ABSENT, "run run run", {"holder": "new"}),
    "killed in the first": ({}, RUNNING, "run run run", {"holder": "new"}),
    "killed in the second": (
        {"holder": "1"},
        RUNNING,
        "skip run run",
        {**AFTER_NETWORK, "network": "new"},
    ),
    "second changed": ({**ALL, "network": "old"}, RUNNING, "skip run run", AFTER_NETWORK),
    "last changed": (
        {**ALL, "services": "old"},
        RUNNING,
        "skip skip run",
        {"services": "has changed"},
    ),
    "gone": (ALL, ABSENT, "run run run", GONE),
    "broken": (ALL, BROKEN, "run run run", {"holder": "broken: win1 is not there"}),
    "a step too many": ({**ALL, "tunnels": "9"}, RUNNING, "run run run", UNWANTED),
}


@pytest.mark.parametrize(("done", "liveness", "actions", "whys"), CASES.values(), ids=CASES)
def test_what_runs_and_why(done, liveness, actions, whys):
    decisions = up.decide(done, WANTED, liveness)
    assert [d.step for d in decisions] == ["holder", "network", "services"]
    assert " ".join(d.action for d in decisions) == actions
    for decision in decisions:
        assert whys.get(decision.step, "") in decision.why
        assert decision.why
