"""Shells and commands of the WS-Management service, and the quotas on them."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import soap
from .drives import text_of
from .script import Answer, Asked, Responder, answered
from .soap import Asking, FaultError

LOOK_SECONDS = 0.02
PIECE = 65_536
"""Bytes of output in one Receive; more is split, to fit the envelope."""


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
        self.pieces = [*answer.pieces, *_split(answer.stdout, answer.stderr)]
        self.answer = answer


_Done = tuple[str, Command | None]
"""The reply, and the command to answer now."""


@dataclass
class Shell:
    user: str
    codepage: str
    commands: dict[str, Command] = field(default_factory=dict)
    used: bool = False
    """Whether it ever got a command: if not, the client may have given up before it received the
    reply, and the service deletes it."""


class Shells:
    """The state of the service; every verb is a method."""

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
        self._over = threading.Event()

    def commands(self) -> list[str]:
        """Command lines of known commands."""
        with self._lock:
            return [c.asked.line for s in self.open.values() for c in s.commands.values()]

    def forget(self) -> None:
        """Forget everything, as after a restart of the service."""
        with self._lock:
            for shell in self.open.values():
                for command in shell.commands.values():
                    command.ended = True
            self.open.clear()

    def verb(self, asking: Asking, user: str, gone: Callable[[], bool]) -> str:
        """Execute a verb; return the reply.

        Raises FaultError where Windows gives a fault. Raises ConnectionError when the client closes
        the connection meanwhile.
        """
        self.verbs.append(asking.action)
        verbs = {"Create": self._create, "Command": self._command, "Send": self._send}
        verbs |= {"Signal": self._signal, "Delete": self._delete}
        if asking.action == "Receive":
            return self._receive(asking, gone)
        with self._lock:
            reply, begun = verbs[asking.action](asking, user)
        if begun is not None:  # without the lock: the responder may be slow
            begun.resolve(self.respond)
        return reply

    def _create(self, asking: Asking, user: str) -> _Done:
        if len(self.open) >= self.max_shells:
            raise FaultError(
                soap.TOO_MANY_SHELLS,
                "The WS-Management service cannot process the request. This user is allowed a "
                f"maximum number of {self.max_shells} concurrent shells, which has been exceeded. "
                "Close existing shells or raise the quota for this user.",
                "w:QuotaLimit",
            )
        name = str(uuid.uuid4()).upper()
        self.open[name] = Shell(user, asking.option("WINRS_CODEPAGE"))
        return soap.created(asking, name), None

    def _command(self, asking: Asking, user: str) -> _Done:
        shell = self._shell(asking)
        if len(shell.commands) >= self.max_commands:
            raise FaultError(
                soap.TOO_MANY_COMMANDS,
                f"The maximum number of {self.max_commands} concurrent operations for this user "
                "has been exceeded.",
                "w:QuotaLimit",
            )
        words = asking.body_text("Command"), asking.body_text("Arguments")
        line = " ".join(word for word in words if word)
        skips = asking.option("WINRS_SKIP_CMD_SHELL") == "TRUE"
        name = str(uuid.uuid4()).upper()
        asked = Asked(line, "winrm", b"", skips, shell.codepage, user)
        command = Command(replace(asked, file=text_of(self._root, asked.path)))
        shell.commands[name] = command
        shell.used = True
        console = asking.option("WINRS_CONSOLEMODE_STDIN") != "FALSE"
        return soap.commanded(asking, name), command if console else None

    def _send(self, asking: Asking, _: str) -> _Done:
        stream = asking.body("Stream")
        command = self._shell(asking).commands[stream.get("CommandId", "")]
        command.stdin += base64.b64decode(stream.text or "")
        return soap.done(asking), command if stream.get("End") == "true" else None

    def _receive(self, asking: Asking, gone: Callable[[], bool]) -> str:
        name = asking.body("DesiredStream").get("CommandId", "")
        with self._lock:
            command = self._shell(asking).commands[name]
        left = min(asking.timeout, self.longest_wait)
        while True:
            with self._lock:
                if command.ended:
                    raise FaultError(soap.ABORTED, "The I/O operation has been aborted.")
                if command.answer is not None and command.pieces:
                    out, err = command.pieces.pop(0)
                    code = self._last(command)
                    streams = [("stdout", out), ("stderr", err)]
                    return soap.received(asking, name, streams, code)
                code = self._last(command)
                if code is not None:
                    return soap.received(asking, name, [], code)
            if gone():
                raise ConnectionError("the client has gone")
            if left <= 0:
                raise FaultError(
                    soap.TIMED_OUT,
                    "The WS-Management service cannot complete the operation within the time "
                    "specified in OperationTimeout.",
                    "w:TimedOut",
                )
            self._over.wait(min(LOOK_SECONDS, left))
            left -= LOOK_SECONDS

    def _last(self, command: Command) -> int | None:
        answer = command.answer
        if command.pieces or answer is None or (answer.held and not answer.held.is_set()):
            return None
        command.told = True
        return answer.code

    def _signal(self, asking: Asking, _: str) -> _Done:
        command = self._shell(asking).commands.pop(asking.body("Signal").get("CommandId", ""))
        if not command.told:
            self.signals.append(command.asked.line)
        command.ended = True
        return soap.done(asking), None

    def _delete(self, asking: Asking, _: str) -> _Done:
        for command in self._shell(asking).commands.values():
            command.ended = True
        del self.open[asking.shell]
        return soap.done(asking), None

    def _shell(self, asking: Asking) -> Shell:
        found = self.open.get(asking.shell)
        if found is None:
            raise FaultError(
                soap.SHELL_NOT_FOUND,
                f"The request for the Windows Remote Shell with ShellId {asking.shell} failed "
                "because the shell was not found on the server.",
                "w:InvalidSelectors",
            )
        return found


def _split(out: bytes, err: bytes) -> list[tuple[bytes, bytes]]:
    length = max(len(out), len(err))
    return [(out[i : i + PIECE], err[i : i + PIECE]) for i in range(0, length, PIECE)]
