"""pktmon.exe on a double; sources of its words and codes: ``lab/providers/machines/pktmon.py``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .script import Answer, Asked

UNKNOWN_PARAMETER, DENIED, STARTED = 87, 5, 183
_NONE = {"Packets": 0, "Bytes": 0, "DropReason": ""}


@dataclass(frozen=True)
class Dropped:
    """Inbound packets between two addresses that were dropped."""

    ends: tuple[str, str]
    count: int
    reason: str
    port: int = 8080

    def matches(self, rule: str) -> bool:
        return {*self.ends, str(self.port)} <= {*rule.split()}

    def counter(self) -> dict[str, Any]:
        counted = {"Packets": self.count, "Bytes": 60, "DropReason": self.reason}
        return {"Name": "", "Type": "Drops", "Inbound": counted, "Outbound": _NONE}


@dataclass
class Pktmon:
    """One machine's session and filters; a test may change every attribute."""

    running: bool = False
    filters: list[str] = field(default_factory=list)
    """Names and arguments."""
    most: int = 8
    drops: list[Dropped] = field(default_factory=list)
    """Since the last reset."""
    old: bool = False
    """Whether it is that of Windows Server 2019 without updates."""
    denied: bool = False
    none: str = "Packet Filters:\r\n    None"
    """An empty list of filters."""
    changed: Callable[[str], str] = str
    """Changes the output of ``counters``."""
    code: int = 0
    """Of ``counters``."""
    silent: Callable[[str], Answer | None] = lambda _: None
    """Answers instead of it."""
    ran: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer | None:
        line = re.sub(r"(?i)^\S*cmd\.exe (/d )?(/s )?/c ", "", asked.line)
        self.output.clear()
        code = self._several(line)
        return self.silent(line) or Answer(code, "\r\n".join(self.output).encode())

    def clean(self) -> bool:
        return not self.running and not self.filters

    def _several(self, line: str) -> int:
        """``a & b``, or ``a && (b && c || (d & e))``, as cmd.exe runs them."""
        first, _, rest = line.partition(" && (")
        code = [self._run(one) for one in first.split(" & ")][-1]
        if code or not rest:
            return code
        then, _, otherwise = rest.rstrip(")").partition(" || (")
        if not any(self._run(one) for one in then.split(" && ")):
            return 0
        return [self._run(one) for one in otherwise.split(" & ")][-1]

    def _run(self, command: str) -> int:
        self.ran.append(command)
        program, *words = command.split()
        if program == "exit":
            return int(words[0])
        if self.denied:
            self.output.append("Zugriff verweigert")
            return DENIED
        return self._start() if words[0] == "start" else self._rest(words)

    def _start(self) -> int:
        if self.old:
            self.output.append("Unknown parameter '--capture'. See pktmon start help.")
            return UNKNOWN_PARAMETER
        if self.running:
            self.output.append("Die Paket\u00fcberwachung wurde bereits gestartet.")
            return STARTED
        self.running = True
        return 0

    def _rest(self, words: list[str]) -> int:
        match words:
            case ["filter", "list"]:
                self.output.append(self._listed())
            case ["filter", "add", *rest] if len(self.filters) < self.most:
                self.filters.append(" ".join(rest))
            case ["filter", "remove"]:
                self.filters.clear()
            case ["stop"]:
                self.running = False
            case ["reset"]:
                self.drops.clear()
            case ["counters", "--json"]:
                self.output.append(self.changed(self._counted()))
                return self.code
            case _:
                self.output.append(f"Unknown parameter '{words[-1]}'.")
                return UNKNOWN_PARAMETER
        return 0

    def _listed(self) -> str:
        if not self.filters:
            return self.none
        rows = [one.partition(" ") for one in self.filters]
        wide = max(len(name) for name, _, _ in rows)
        lines = [f" # {'Name':{wide}} IP Address", f" - {'-' * wide} ----------"]
        lines += [f" {n} {name:{wide}} {rest}" for n, (name, _, rest) in enumerate(rows, start=1)]
        return "\r\n".join(("Packet Filters:", *lines))

    def _counted(self) -> str:
        flows = {"Name": "Upper", "Type": "Flows", "Inbound": {"Packets": 6}, "Outbound": _NONE}
        drops = [one.counter() for one in self.drops if any(map(one.matches, self.filters))]
        component = {"Name": "TCP/IPv4 - L3/L4", "Id": 49, "Counters": [flows, *drops]}
        return json.dumps([{"Group": "Ethernet", "Components": [component]}])
