"""The double as a program: ``python -m double CONFIGURATION.json``; ended by SIGTERM.

.. code-block:: json

    {
      "user": "Administrator", "password": "secret",
      "winrm": {"address": "0.0.0.0", "port": 5986, "certificate": "c.pem", "key": "k.pem"},
      "ssh": {"address": "0.0.0.0", "port": 22, "host_key": "h", "authorized_keys": "a",
              "root": "/drives"},
      "responder": "module:function",
      "journal": "/var/log/asked.jsonl"
    }

``winrm`` without a certificate is HTTP; either service may be left out. ``responder`` takes an
``Asked`` and gives an ``Answer``, or None for what it does not know; without one every command
is unknown. Every command goes to ``journal``, one JSON object a line, before it is answered.
"Ready" is said on standard output, with the ports, when both listen.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from .script import Answer, Asked, Responder
from .shells import Shells
from .sshd import Sshd, SshService
from .wsman import Service, WsMan


def main(arguments: list[str]) -> int:
    given = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    respond = _journalled(_responder(given.get("responder")), given.get("journal"))
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    services = [start(given, respond) for start in (_winrm, _ssh)]
    running = [one for one in services if one is not None]
    for one in running:
        one.start()
    print("Ready", *(str(one.port) for one in running), flush=True)
    while not over.wait(1.0):
        pass
    for one in running:
        one.stop()
    return 0


def _winrm(given: dict[str, Any], respond: Responder) -> WsMan | None:
    facts = given.get("winrm")
    if facts is None:
        return None
    root = given.get("ssh", {}).get("root")
    shells = Shells(respond, Path(root) if root else None)
    service = Service(given["user"], given["password"], shells)
    pair = [Path(facts[name]) if facts.get(name) else None for name in ("certificate", "key")]
    return WsMan(service, facts.get("address", "127.0.0.1"), facts.get("port", 0), *pair)


def _ssh(given: dict[str, Any], respond: Responder) -> Sshd | None:
    facts = given.get("ssh")
    if facts is None:
        return None
    paths = [Path(facts[name]) for name in ("host_key", "authorized_keys", "root")]
    service = SshService(given["user"], *paths, respond)
    return Sshd(service, facts.get("address", "127.0.0.1"), facts.get("port", 0))


def _responder(name: str | None) -> Responder:
    if not name:
        return lambda _: None
    module, _, function = name.partition(":")
    found: Responder = getattr(importlib.import_module(module), function)
    return found


def _journalled(respond: Responder, path: str | None) -> Responder:
    lock = threading.Lock()

    def answer(asked: Asked) -> Answer | None:
        if path:
            said = {**asked.__dict__, "script": asked.script, "stdin": asked.stdin.decode("latin1")}
            with lock, Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(said) + "\n")
        return respond(asked)

    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
