"""The holder: the one process that keeps a lab's namespaces alive.

Run as ``python -I -S holder_program.py hybridlab-holder LAB DIRECTORY``, with the lab's token in
its environment, so that labs can be found through /proc alone. It enters new namespaces, becomes
process 1 there, prints one line of JSON to standard output (``{"ready": true, "pid": 4711}`` or
``{"ready": false, "call": "mount on /proc", "errno": 1}``), and then only reaps. SIGKILL ends
every process in its pid namespace, and with them every mount and network namespace of the lab.

With ``hybridlab-node`` as the first argument it holds one machine of a lab that runs on its own
computer: it stays in that computer's network namespace and keeps access to DIRECTORY.
"""

from __future__ import annotations

import json
import os
import signal
import sys

if not __package__:  # run by path
    program = os.path.abspath(__file__)  # noqa: PTH100  pathlib is slow to import here
    sys.path.insert(0, program.removesuffix("/lab/providers/netns/holder_program.py"))

from lab.providers.netns import isolation

MARKER = "hybridlab-holder"
NODE_MARKER = "hybridlab-node"


def _say(**words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def _report_refusal(error: OSError) -> None:
    _say(ready=False, call=str(error.filename or ""), errno=error.errno or 0)


def _hold(kept: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)  # SIGCHLD ignored: the kernel reaps
    seen_outside = int(os.readlink("/proc/self"))  # noqa: PTH115  pathlib is slow to import here
    try:
        isolation.furnish(kept)
    except OSError as error:
        _report_refusal(error)
        return
    _say(ready=True, pid=seen_outside)
    quiet = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    os.close(quiet)
    for _ in iter(signal.pause, "ended"):  # until it is killed
        pass


def main() -> None:
    """Isolate, fork process 1, and exit."""
    marker, _, directory = sys.argv[1:]
    whole = marker != NODE_MARKER
    try:
        isolation.isolate(network=whole)
        if os.fork():
            return
    except OSError as error:
        _report_refusal(error)
        return
    _hold("" if whole else directory)


if __name__ == "__main__":
    main()
