"""The WS-Management service: its messages, shells and commands, and the quotas on them."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from .drives import text_of
from .script import Answer, Asked, Responder, answered

LOOK_SECONDS = 0.02
PIECE = 65_536
"""Bytes of output in one Receive; more is split, to fit the envelope."""
FAULT = "http://schemas.xmlsoap.org/ws/2004/08/addressing/fault"
_SECONDS = re.compile(r"PT(?:(\d+)M)?(?:([\d.]+)S)?")


class SoapFaultError(Exception):
    """One of ``replies/faults.json``: code, reason and subcode."""

    def __init__(self, name: str, **facts: object) -> None:
        code, reason, subcode = json.loads(_text("faults.json"))[name]
        self.facts = {"code": code, "reason": escape(reason.format(**facts)), "subcode": subcode}


@dataclass(frozen=True)
class Asking:
    """A request."""

    root: ET.Element

    @property
    def action(self) -> str:
        """Last part: ``Create``, ``Command``, ``Send``, ``Receive``, ``Signal``, ``Delete``."""
        return self.text("Action").rsplit("/", 1)[-1]

    @property
    def timeout(self) -> float:
        """OperationTimeout, in seconds."""
        match = _SECONDS.fullmatch(self.text("OperationTimeout"))
        return int(match[1] or 0) * 60 + float(match[2] or 0) if match else 60.0

    @property
    def shell(self) -> str:
        return self.text("Selector[@Name='ShellId']")

    def option(self, name: str) -> str:
        return self.text(f"Option[@Name='{name}']")

    def body(self, name: str) -> ET.Element:
        """An element that must be there."""
        return next(self.root.iterfind(f".//{{*}}{name}"))

    def text(self, name: str) -> str:
        return self.root.findtext(f".//{{*}}{name}", "")

    def reply(self, body: str = "", action: str = "", **facts: object) -> str:
        """An envelope with a body of ``replies``: the action's own, if no other is named."""
        inner = _text(f"{body or self.action}.xml").format(**facts)
        number, action = str(uuid.uuid4()).upper(), action or f"{self.text('Action')}Response"
        message = self.text("MessageID")
        envelope = _text("envelope.xml")
        return envelope.format(action=action, number=number, message=message, body=inner)

    def fault(self, error: SoapFaultError) -> str:
        return self.reply("fault", FAULT, **error.facts)


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / "replies" / name).read_text()


@dataclass
class Command:
    """A command that was started and not yet signalled."""

    asked: Asked
    stdin: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None
    pieces: list[tuple[bytes, bytes]] = field(default_factory=list)
    told: bool = False
    """Whether its end has been received."""
    ended: bool = False
    """Whether it was signalled, or its shell deleted."""

    def resolve(self, respond: Responder) -> None:
        answer = answered(respond, replace(self.asked, stdin=bytes(self.stdin)))
        out, err = answer.stdout, answer.stderr
        starts = range(0, max(len(out), len(err)), PIECE)
        rest = [(out[at : at + PIECE], err[at : at + PIECE]) for at in starts]
        self.pieces = [*answer.pieces, *rest]
        self.answer = answer

    def code(self) -> int | None:
        """The exit code, once nothing else is to be received."""
        answer = self.answer
        if self.pieces or answer is None or (answer.held and not answer.held.is_set()):
            return None
        self.told = True
        return answer.code


@dataclass
class Shell:
    user: str
    codepage: str
    commands: dict[str, Command] = field(default_factory=dict)
    used: bool = False
    """Whether it ever got a command: if not, the client may have given up before it received the
    reply, and the service deletes it."""


class Shells:
    """The state of the service."""

    def __init__(self, respond: Responder, root: Path | None = None) -> None:
        self.respond, self._root = respond, root
        self.max_shells = 30
        self.max_commands = 25
        self.longest_wait = 3600.0
        """Longest wait of a Receive in seconds, regardless of OperationTimeout."""
        self.open: dict[str, Shell] = {}
        self.signals: list[str] = []
        """Command lines that were signalled before their end was received."""
        self.verbs: list[str] = []
        self._lock = threading.RLock()

    def commands(self) -> list[str]:
        """Command lines of known commands."""
        with self._lock:
            return [c.asked.line for s in self.open.values() for c in s.commands.values()]

    def forget(self) -> None:
        """Forget everything, as after a restart of the service."""
        with self._lock:
            for name in list(self.open):
                self._end(name)

    def _end(self, name: str) -> None:
        for command in self.open.pop(name).commands.values():
            command.ended = True

    def verb(self, asking: Asking, user: str, gone: Callable[[], bool]) -> str:
        """Execute a verb; return the reply.

        Raises SoapFaultError where Windows gives a fault. Raises ConnectionError when the client
        closes the connection meanwhile.
        """
        self.verbs.append(asking.action)
        if asking.action == "Receive":
            return self._receive(asking, gone)
        begun = None
        with self._lock:
            match asking.action:
                case "Create":
                    return self._create(asking, user)
                case "Command":
                    reply, begun = self._command(asking)
                case "Send":
                    stream = asking.body("Stream")
                    command = self._shell(asking).commands[stream.get("CommandId", "")]
                    command.stdin += base64.b64decode(stream.text or "")
                    reply = asking.reply()
                    begun = command if stream.get("End") == "true" else None
                case "Signal":
                    name = asking.body("Signal").get("CommandId", "")
                    command = self._shell(asking).commands.pop(name)
                    self.signals += [] if command.told else [command.asked.line]
                    command.ended = True
                    reply = asking.reply()
                case "Delete":
                    self._shell(asking)
                    self._end(asking.shell)
                    reply = asking.reply()
        if begun is not None:  # without the lock: the responder may be slow
            begun.resolve(self.respond)
        return reply

    def _create(self, asking: Asking, user: str) -> str:
        if len(self.open) >= self.max_shells:
            raise SoapFaultError("shells", most=self.max_shells)
        name = str(uuid.uuid4()).upper()
        self.open[name] = Shell(user, asking.option("WINRS_CODEPAGE"))
        return asking.reply(shell=name)

    def _command(self, asking: Asking) -> tuple[str, Command | None]:
        """The reply, and the command to answer now."""
        shell = self._shell(asking)
        if len(shell.commands) >= self.max_commands:
            raise SoapFaultError("operations", most=self.max_commands)
        line = " ".join(filter(None, (asking.text("Command"), asking.text("Arguments"))))
        skips = asking.option("WINRS_SKIP_CMD_SHELL") == "TRUE"
        request = Asked(line, "winrm", b"", skips, shell.codepage, shell.user)
        command = Command(replace(request, file=text_of(self._root, request.path)))
        name = str(uuid.uuid4()).upper()
        shell.commands[name] = command
        shell.used = True
        console = asking.option("WINRS_CONSOLEMODE_STDIN") != "FALSE"
        return asking.reply(command=name), command if console else None

    def _receive(self, asking: Asking, gone: Callable[[], bool]) -> str:
        name = asking.body("DesiredStream").get("CommandId", "")
        with self._lock:
            command = self._shell(asking).commands[name]
        ends = time.monotonic() + min(asking.timeout, self.longest_wait)
        while True:
            with self._lock:
                if command.ended:
                    raise SoapFaultError("aborted")
                there = command.answer is not None and bool(command.pieces)
                out, err = command.pieces.pop(0) if there else (b"", b"")
                code = command.code()
            if there or code is not None:
                return asking.reply(
                    "Receive" if code is None else "Done",
                    command=name,
                    stdout=base64.b64encode(out).decode(),
                    stderr=base64.b64encode(err).decode(),
                    code=code,
                )
            if gone():
                raise ConnectionError("the client has gone")
            if time.monotonic() > ends:
                raise SoapFaultError("time")
            time.sleep(LOOK_SECONDS)

    def _shell(self, asking: Asking) -> Shell:
        if asking.shell not in self.open:
            raise SoapFaultError("shell", shell=asking.shell)
        return self.open[asking.shell]
