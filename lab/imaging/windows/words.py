"""What a Windows guest says on its first serial port, and what the host hears in it.

Each line is ``hybridlab: <word> <rest>``, ended by CR LF, ASCII::

    hybridlab: phase winpe|specialize|first-logon|sysprep|ready
    hybridlab: step <name>                a step of ours begins
    hybridlab: failed <name>: <message>   a step of ours has failed; nothing follows
    hybridlab: key ssh-ed25519 AAAA...    the guest's SSH host key
    hybridlab: certificate <64 hex>       SHA-256 of the guest's WinRM certificate (DER)

``key`` and ``certificate`` come before ``phase ready``, which comes when both ports are open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PREFIX = "hybridlab: "
Word = Literal["phase", "step", "failed", "key", "certificate"]
_LINE = re.compile(
    re.escape(PREFIX) + r"(?P<word>phase|step|failed|key|certificate) (?P<rest>\S.*?)\s*$"
)


@dataclass(frozen=True, slots=True)
class Heard:
    """One line that was meant for us."""

    word: Word
    rest: str


def heard(line: str) -> Heard | None:
    """What a line of the console says to us; None for all others.

    The line may begin with what firmware or another program has left on it.
    """
    found = _LINE.search(line)
    if found is None:
        return None
    return Heard(found["word"], found["rest"])  # type: ignore[arg-type]
