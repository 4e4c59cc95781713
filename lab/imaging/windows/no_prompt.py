"""An installation medium that starts under UEFI without a key press.

The UEFI loader of Microsoft's media waits for a key, and goes on to the next device without one.
``efisys_noprompt.bin`` on the same medium does not wait. It takes the other's place in a layer
over the ISO, which stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.imaging import tools
from lab.imaging.medium import Extent
from lab.imaging.windows.medium import WindowsMedium

_SECONDS = 60.0
_BY_KEY = "build it with firmware bios, whose loader asks for no key on an empty disk"


def overlay(iso: Path, medium: WindowsMedium, out: Path) -> None:
    """Make a qcow2 over the ISO, which stays as it is; its UEFI loader asks for no key.

    Parameters
    ----------
    iso
        Where the medium is for whoever opens the layer, which refers to it by its whole path.
    medium
        As it has been read, there or at another place.
    out
        Must not be there. Takes about 2 MB.

    Raises
    ------
    PreflightError
        When the medium cannot be started that way, the disk is full, or a program is missing.
    BrokenError
        When a program fails.

    """
    loader, places = _replaced(medium)
    doing = f"making the layer '{out}' over '{iso}'"
    if out.exists():
        raise PreflightError(doing, "there is a file of that name", "remove it, or name another")
    tools.need(doing, "qemu-img", "qemu-io", "setpriv")
    deadline = Deadline(_SECONDS)
    base = str(iso.resolve())
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, str(out)]
    try:
        tools.run(doing, create, deadline)
        with tools.unnamed_file() as content:
            for place in places:
                content.write_bytes(loader.ljust(place.length, b"\0"))
                # Its words are split at every blank, quoted or not: a path is better not there.
                verb = f"write -q -s /dev/stdin {place.offset} {place.length}"
                command = ["qemu-io", "-f", "qcow2", "-c", verb, str(out)]
                tools.run(doing, command, deadline, stdin=content)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _replaced(medium: WindowsMedium) -> tuple[bytes, list[Extent]]:
    """The loader that asks for no key, and the places of those that do."""
    doing = f"making the UEFI loader of '{medium.path}' start without a key press"
    where = medium.no_prompt
    if where is None:
        missing = "there is no 'efi/microsoft/boot/efisys_noprompt.bin' on it"
        raise PreflightError(doing, missing, _BY_KEY)
    places = [boot.extent for boot in medium.boots if boot.kind == "uefi"]
    if not places:
        raise PreflightError(doing, "it does not start under UEFI", _BY_KEY)
    room = min(place.length for place in places)
    if where.length > room:
        raise PreflightError(
            doing,
            f"its loader that asks for no key has {where.length:,} bytes, and there is room "
            f"for {room:,}",
            _BY_KEY,
        )
    with medium.path.open("rb") as file:
        file.seek(where.offset)
        return file.read(where.length), places
