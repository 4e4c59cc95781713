"""Windows' Packet Monitor: which component of a node drops packets of one probe, and why.

By public documents and recordings, never seen on a real Windows:

- ``filter add -i A B -t TCP -p PORT -e``: two addresses match packets with both, in either
  direction; ``-e`` also inside VXLAN at port 4789. ``start --capture --counters-only``, ``reset``,
  and ``counters --json``, which has each counter's last drop reason (learn.microsoft.com,
  windows-commands/pktmon-*; the pages of 2020 allow 8 filters, later ones 32).
- Windows Server 2019 as released knows neither ``--capture`` (its ``-c`` are components) nor
  ``--json``, and refuses them with exit code 87; its updates bring both. The JSON is a list of
  groups with ``Components``, these with ``Counters`` of ``Type`` ``Flows`` or ``Drops``, with
  ``Packets`` of ``Inbound`` and ``Outbound`` (public scripts measured on build 17763, and
  Predictor/pktmon-pktdrop-py). A heading in the system's language may precede it. No recording
  with a drop reason was found: its key is recognized by its words.
- There is one session and one set of filters, and ``filter remove`` removes all. ``start`` fails
  while a session runs ("Monitoraggio pacchetti gia avviato"). ``filter list`` prints a heading and
  one word in the system's language, or a table (recorded in English and Russian).

So a start that succeeds claims the session, and the names of the filters mark it. A session of
others, and whatever is not in a known format, is left alone and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab._log import one_line
from lab.providers.capture import KernelTrace, PacketDrop
from lab.state.lock import lab_lock

if TYPE_CHECKING:
    from lab.shells.shell import Completed
    from lab.windows.shell import WindowsShell

Ends = tuple[str, str, int]
"""Two addresses, and the server's port."""
MOST_FILTERS = 8
_OURS = re.compile(r"hybridlab-\d+")
_UNDO = "pktmon.exe stop & pktmon.exe filter remove"
_REFUSED = 78
"""Exit code of :func:`start_command` if the session started but the filters were refused."""
_CODES: Mapping[int, str] = {
    0: "it prints an unknown format",
    5: "access denied",
    87: "it cannot count drops, as on Windows Server 2019 without updates",
    _REFUSED: "it refused the filters",
}
_SHOWN = 120
T = TypeVar("T")


def start_command(protocol: str, ends: Collection[Ends]) -> str:
    """The line for cmd.exe that starts counting packets of one flow, with all counters at zero.

    It ends with the exit code of ``pktmon start``, and changes nothing, if that fails.
    """
    adds = " && ".join(
        f"pktmon.exe filter add hybridlab-{number} -i {client} {other}"
        f" -t {protocol.upper()} -p {port} -e"
        for number, (client, other, port) in enumerate(sorted(ends), start=1)
    )
    return (
        "pktmon.exe start --capture --counters-only "
        f"&& ({adds} && pktmon.exe reset || ({_UNDO} & exit {_REFUSED}))"
    )


def filter_names(text: str) -> tuple[str, ...]:
    """The names in the output of ``pktmon filter list``; pure.

    Raises ValueError if it is not in a known format.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    ruled = next((n for n, line in enumerate(lines) if re.fullmatch(r"\s*-+(\s+-+)+", line)), None)
    if ruled is None:
        if lines and [len(line.split()) for line in lines[1:]] in ([], [1]):
            return ()
        raise ValueError(text)
    second, third = [*(ruler.start() for ruler in re.finditer("-+", lines[ruled])), None][1:3]
    rows = lines[ruled + 1 :]
    if not rows or not all(row[:second].strip().isdecimal() for row in rows):
        raise ValueError(text)
    return tuple(row[second:third].strip() for row in rows)


def parse_drops(text: str) -> tuple[PacketDrop, ...]:
    """The drops in the output of ``pktmon counters --json``; pure.

    ``reason`` is empty if Windows gives none.

    Raises ValueError if it is not in a known format.
    """
    begins, ends = text.find("["), text.rfind("]")
    try:
        return tuple(_drops(json.loads(text[begins : ends + 1])))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(text) from error


def _drops(groups: list[dict[str, Any]]) -> Iterator[PacketDrop]:
    for group in groups:
        for component in group["Components"]:
            names = dict.fromkeys((str(component["Name"]), str(group.get("Group") or "")))
            for counter in component["Counters"]:
                kind = counter["Type"].lower().rstrip("s")
                if kind not in {"flow", "drop"}:
                    raise ValueError(kind)
                for way in ("Inbound", "Outbound") if kind == "drop" else ():
                    if count := int(counter[way]["Packets"]):
                        reason = _reason(counter[way]) or _reason(counter)
                        name = " of ".join(filter(None, names))
                        yield PacketDrop(name, way.lower(), count, reason)


def _reason(counted: dict[str, Any]) -> str:
    for key, value in counted.items():
        if re.fullmatch("(last)?dropreason", re.sub("[^a-z]", "", key.lower())):
            return value.strip() if isinstance(value, str) else ""
    return ""


@dataclass(slots=True)
class PacketMonitor:
    """Counts the drops of one flow on one Windows machine, between ``begin`` and ``end``.

    A killed command leaves counters in memory, no file, and filters that show whose they are: the
    next ``begin`` removes them.
    """

    name: str
    shell: Callable[[], WindowsShell]
    directory: Path
    """The lab's, for the lock that two commands of one lab share."""
    deadline: Callable[[], Deadline]
    """Makes a new one: to begin, to read the counters, and to clean up."""
    _held: ExitStack = field(default_factory=ExitStack)
    _troubles: list[str] = field(default_factory=list)
    _state: Literal["off", "unknown", "on"] = "off"

    def begin(self, protocol: str, ends: Collection[Ends]) -> None:
        """Start counting. Never raises LabError: :meth:`end` says why nothing was counted."""
        with self._noting():
            if not 0 < len(ends) <= MOST_FILTERS:
                raise _error(f"{MOST_FILTERS} filters are too few for {len(ends)} pairs of ends")
            lock = lab_lock(self.directory, "a probe", wait=0, file=f"pktmon-{self.name}.lock")
            self._held.enter_context(lock)
            deadline = self.deadline()
            names = self._read(filter_names, deadline, "filter", "list")
            if foreign := [name for name in names if not _OURS.fullmatch(name)]:
                raise _error(f"somebody else has filters there: {', '.join(foreign)}")
            if names:
                self._undo(deadline)
            self._state = "unknown"
            done = self._cmd(start_command(protocol, ends), deadline)
            self._state = "off" if done.code else "on"
            if done.code:
                other = f"exit code {done.code}; somebody else may be using it"
                raise _error(_CODES.get(done.code, other), done)

    def end(self) -> KernelTrace:
        """Stop, leave nothing behind, and return what was dropped. Never raises LabError."""
        drops: tuple[PacketDrop, ...] = ()
        with self._held:
            with self._noting():
                if self._state == "on":
                    drops = self._read(parse_drops, self.deadline(), "counters", "--json")
            with self._noting():
                deadline = self.deadline()
                if self._state == "on" or (self._state == "unknown" and self._is_ours(deadline)):
                    self._undo(deadline)
        told = tuple(drop for drop in drops if drop.reason)
        if told != drops:
            self._troubles.append("pktmon counts drops without a reason")
        return KernelTrace(self.name, drops=told, trouble="; ".join(self._troubles))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except LabError as error:
            self._troubles.append(f"{error.doing}: {error.happened}")

    def _is_ours(self, deadline: Deadline) -> bool:
        names = self._read(filter_names, deadline, "filter", "list")
        return bool(names) and all(_OURS.fullmatch(name) for name in names)

    def _read(self, parse: Callable[[str], T], deadline: Deadline, *words: str) -> T:
        done = self.shell().run(("pktmon.exe", *words), deadline)
        try:
            return parse("" if done.code else done.stdout)
        except ValueError:
            raise _error(_CODES.get(done.code, f"exit code {done.code}"), done) from None

    def _undo(self, deadline: Deadline) -> None:
        done = self._cmd(_UNDO, deadline)
        if done.code:
            raise _error(f"the lab's filters may still be there: exit code {done.code}", done)

    def _cmd(self, line: str, deadline: Deadline) -> Completed:
        return self.shell().run(("cmd.exe", "/d", "/c", line), deadline)


def _error(happened: str, done: Completed | None = None) -> BrokenError:
    output = one_line(" ".join(f"{done.stdout} {done.stderr}".split()))[:_SHOWN] if done else ""
    return BrokenError("asking pktmon", f"{happened}: '{output}'" if output else happened)
