"""A pod whose program forges what the helper of a command answers; run as any user.

``forged.py TOKEN DIRECTORY MESSAGE``: a lab, and in one of its pods a program that writes MESSAGE
(hexadecimal) into every pipe that it can open, but no process's standard streams. Prints as JSON
whether it could open one, and what the caller of the command met.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from netns_intents import cluster  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import LabError  # noqa: E402
from lab.providers.netns.provider import NetnsProvider  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402

FORGE = """
import os, select, sys
from pathlib import Path
done = {os.readlink(path) for path in Path("/proc").glob("[0-9]*/fd/[012]")}
for path in Path("/proc").glob("[0-9]*/fd/*"):
    try:
        name = os.readlink(path)
        if name.startswith("pipe:") and name not in done:
            done.add(name)
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            Path(sys.argv[2]).write_text(name)  # before: the answer may be the end of this program
            ready = select.poll()
            ready.register(pipe, select.POLLOUT)
            data = bytes.fromhex(sys.argv[1])
            while data and ready.poll(5000):  # a user with many pipes has pipes of one page
                data = data[os.write(pipe, data):]
            os.close(pipe)
    except OSError:
        continue
"""


def main() -> None:
    """Bring the lab up, run the program, and take the lab down."""
    token, directory, message = sys.argv[1:]
    lab, intent, provider = (
        LabHandle("forged", Path(directory), token),
        cluster(pods=1),
        NetnsProvider(),
    )
    opened = Path(directory, "opened")
    try:
        for step in provider.steps(lab, intent):
            step.run()
        pod = provider.machine(lab, intent, "worker1-p1")
        command = [sys.executable, "-I", "-c", FORGE, message, str(opened)]
        met: object
        try:
            met = pod.run(command, Deadline(20)).code
        except LabError as error:
            met = error.happened
    finally:
        provider.destroy(lab)
    print(json.dumps({"opened": opened.exists(), "met": met}))


main()
