"""Bring up a lab, probe it and take it down, in its own process; print observations as JSON.

``life.py TOKEN DIRECTORY [stop-after STEP]``: after STEP it waits to be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from netns_intents import cluster  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import LabError  # noqa: E402
from lab.providers.netns import holders  # noqa: E402
from lab.providers.netns.provider import NetnsProvider  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402

token, directory, *stop = sys.argv[1:]
lab = LabHandle("life", Path(directory), token)
provider, intent = NetnsProvider(), cluster("overlay", pods=1)
seen: dict[str, object] = {"user": os.geteuid()}
try:
    provider.preflight(lab, intent)
    for step in provider.steps(lab, intent):
        step.run()
        if stop == [step.name]:
            print("stopped", flush=True)
            signal.pause()
    seen["state"] = provider.liveness(lab, intent).state
    pod = provider.machine(lab, intent, "worker1-p1")
    done = pod.run(["cat", "/etc/resolv.conf"], Deadline(10))
    seen["resolver"] = done.stdout.splitlines()[:1]
    ask = ["curl", "--silent", "--max-time", "5", "http://10.244.1.2:8080/"]
    seen["answer"] = json.loads(pod.run(ask, Deadline(10)).stdout)["endpoint"]
    by_hand = os.popen(pod.command_line(["ip", "-brief", "address"])).read()
    seen["by hand"] = "10.244.0.2/24" in by_hand
    seen["removed"] = len(provider.destroy(lab))
    seen["left"] = holders.find_holder(lab) is not None
except LabError as error:
    seen.update(error=type(error).__name__, text=str(error), hint=error.hint)
print(json.dumps(seen))
