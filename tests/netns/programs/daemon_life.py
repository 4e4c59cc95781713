"""Bring up a lab with daemons and take it down, in its own process; print observations as JSON.

``daemon_life.py TOKEN DIRECTORY``
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from daemon_worlds import VIRTUAL, world  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab.providers.netns.provider import NetnsProvider  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402

token, directory = sys.argv[1:]
lab = LabHandle("life", Path(directory), token)
provider, intent = NetnsProvider(), world()
seen: dict[str, object] = {"user": os.geteuid()}
try:
    provider.preflight(lab, intent)
    for step in provider.steps(lab, intent):
        step.run()
    seen["state"] = provider.liveness(lab, intent).state
    worker = provider.machine(lab, intent, "worker1")
    protocols = worker.run(["birdc", "show", "protocols"], Deadline(10)).stdout
    seen["established"] = "Established" in protocols
    seen["elected"] = Deadline(5).wait(
        "electing",
        lambda: VIRTUAL in worker.run(["ip", "-4", "address", "show"], Deadline(10)).stdout,
    )
finally:
    seen["removed"] = len(provider.destroy(lab))
print(json.dumps(seen))
