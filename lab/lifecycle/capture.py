"""Repeat the probe of one cell while capturing its packets at every hop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast

from lab._deadline import Deadline
from lab._errors import UsageError, os_words
from lab._log import quantity
from lab.explain.capture.files import Captured, PcapngStream, files
from lab.explain.capture.probe import capture_probe
from lab.lifecycle.explain import ExplainQuestion
from lab.lifecycle.open_lab import OpenLab
from lab.matrix.cell import Cell
from lab.plan.plan import Plan
from lab.providers.capture import Capturing, Taken, Tap
from lab.providers.provider import CAPTURE
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import replacing
from lab.state.lock import RUNS
from lab.state.permissions import writer
from lab.state.stamps import in_order, stamp
from lab.suites.running_lab import bind_intent
from lab.topology.intent import Intent

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CaptureRequest(ExplainQuestion):
    """The cells to capture, and how to probe them."""

    family: str | None = None
    timeout: float = 2.0
    """Seconds for one exchange."""
    times: int = 1
    """Largest number of probes; they end at the first outcome that is not as expected."""


def capture_cell(opened: OpenLab, request: CaptureRequest, say: Say) -> Captured:
    """Probe a cell and capture its packets wherever they should pass.

    If several cells match, return the first whose outcome is not as expected, else the first.

    Raises UsageError when the matrix has no such cell, or the lab's provider cannot capture
    packets. Raises BrokenError when the lab is not running.
    """
    action = f"capturing '{request}' in lab '{opened.name}'"
    _require_capture(opened, action)
    with opened.in_use(f"lab capture {opened.name}", say):
        opened.require_running(healthy=False)
        with bind_intent(opened) as intent:
            cells = cells_of(opened.plan, intent, request, action)
            first: Captured | None = None
            for cell in cells:
                captured = _until_wrong(opened, intent, cell, request)
                if not captured.well:
                    return captured
                first = first or captured
            assert first is not None, "there is at least one cell"
            return first


_STREAM_SECONDS = 86_400.0
"""A capture that nobody ends is ended after a day."""


def stream_packets(
    opened: OpenLab, place: str, device: str, write: Callable[[bytes], None], say: Say
) -> None:
    """Capture at a device of a machine or pod, or at all of them, and write pcapng as packets come.

    ``write`` gets the parts of one file, an empty one at least every second; the capture ends when
    it raises.

    Raises UsageError when there is no such machine, pod or device, or the lab's provider cannot
    capture packets. Raises BrokenError when the lab is not running.
    """
    action = (
        f"capturing packets at '{device or 'every device'}' of '{place}' in lab '{opened.name}'"
    )
    _require_capture(opened, action)
    file = PcapngStream()
    missed = 0

    def heard(taken: Taken) -> None:
        nonlocal missed
        if taken.trouble:
            devices = f"lab exec {opened.name} {place} -- ip -br link"
            raise UsageError(action, taken.trouble, f"{devices} lists its devices")
        missed += taken.missed
        write(file.add(taken))

    with opened.in_use(f"lab capture {opened.name}", say):
        opened.require_running(healthy=False)
        with bind_intent(opened) as intent:
            opened.provider.machine(opened.handle, intent, place)
            provider = cast(Capturing, opened.provider)
            try:
                provider.stream_packets(
                    opened.handle, intent, Tap(place, device), heard, Deadline(_STREAM_SECONDS)
                )
            finally:
                if missed:
                    say(f"missed {quantity(missed, 'packet')}: more arrived than could be captured")


def _require_capture(opened: OpenLab, action: str) -> None:
    opened.require_own(action, f"'lab explain {opened.name} SRC DST' asks the cluster's API")
    if CAPTURE not in opened.provider.abilities:
        raise UsageError(
            action,
            f"provider '{opened.provider.name}' cannot capture packets",
            f"'lab explain' checks the path without them; 'lab shell {opened.name} NODE' and "
            "tcpdump there; or the same scenario with '--provider netns'",
        )


def cells_of(plan: Plan, intent: Intent, request: CaptureRequest, action: str) -> tuple[Cell, ...]:
    """The cells that match the request, in order.

    Raises UsageError, listing the alternatives, if there are none.
    """
    cells = request.cells(plan, intent, action)
    wanted = tuple(cell for cell in cells if request.family in {None, cell.family})
    if not wanted:
        had = ", ".join(dict.fromkeys(cell.family for cell in cells))
        raise UsageError(
            action, f"family '{request.family}' has no such cell", f"families that have it: {had}"
        )
    return wanted


def _until_wrong(opened: OpenLab, intent: Intent, cell: Cell, request: CaptureRequest) -> Captured:
    for number in count(1):
        captured = capture_probe(
            opened.provider,
            opened.handle,
            intent,
            cell,
            opened.limits,
            timeout=request.timeout,
        )
        if number == request.times or not captured.well:
            break
    return replace(captured, tried=number)


def keep(opened: OpenLab, captured: Captured, directory: Path | None) -> Path:
    """Write one file for each tap and one with all packets; return their directory.

    If one cannot be written, the others are removed.

    ``directory``: an existing, empty directory; None for a new one beside the lab's runs.

    Raises StateError when the files cannot be written.
    """
    own = directory is None
    directory = directory or _own_directory(opened)
    begun: list[Path] = []
    with guarded_files(f"writing packets into '{directory}'", "or give --output another directory"):
        directory.mkdir(parents=True, exist_ok=True)
        try:
            for name, content in files(captured):
                path = directory / name
                with replacing(path) as file:
                    file.write(content)
                begun.append(path)
        except BaseException:
            for path in begun:
                path.unlink()
            if own:
                directory.rmdir()
            raise
    return directory


def _own_directory(opened: OpenLab) -> Path:
    parent = opened.handle.directory / RUNS
    make_private(parent)
    names = [path.name for path in parent.iterdir()]
    directory = parent / in_order(f"{stamp(opened.store.now())}-capture", names)
    make_private(directory)
    return directory


@contextmanager
def made_empty(directory: Path | None) -> Iterator[None]:
    """Create ``directory``, or check that it is empty, before the work whose files it is for.

    If the block fails, the directories created here are removed. None does nothing: :func:`keep`
    then creates a directory of the lab.

    Raises UsageError when it is not empty, is not a directory, or cannot be created or written;
    when another user may write or redirect it.
    """
    made: list[Path] = []
    try:
        if directory is not None:
            _require_empty(directory)
            _make(directory, made)
            _require_own(directory, exists=True)  # another user may have created a parent
        yield
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):  # no longer empty
                path.rmdir()
        raise


def _require_empty(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise _unfit_error(f"'{directory}' is not a directory")
    _require_own(directory)
    if not directory.exists():
        return
    try:
        empty = not any(directory.iterdir())
    except OSError as error:
        raise _unfit_error(f"'{directory}' cannot be read: {os_words(error)}") from error
    if not empty:
        raise _unfit_error(f"'{directory}' is not empty")


def _require_own(directory: Path, *, exists: bool = False) -> None:
    if wrong := writer(directory.absolute(), exists=exists):
        raise _unfit_error(wrong[0])


def _make(directory: Path, made: list[Path]) -> None:
    try:
        for parent in (*reversed(directory.parents), directory):
            if not parent.exists():
                parent.mkdir()
                made.append(parent)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        lacks = "no file can be created in it" if directory.is_dir() else "it cannot be created"
        raise _unfit_error(f"'{directory}': {lacks}: {os_words(error)}") from error


def _unfit_error(happened: str) -> UsageError:
    return UsageError(
        "capturing packets",
        happened,
        "give --output a new or empty directory that you can write to, or leave it out to keep "
        "the files beside the lab's runs",
    )
