"""What a Windows machine shows of itself, for the evidence archive."""

from __future__ import annotations

from collections.abc import Iterator

from lab._deadline import Deadline
from lab._errors import LabError
from lab.guests.windows_questions import answers
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.provider import Evidence


def pieces(guests: LibvirtGuests, machine: str, deadline: Deadline) -> Iterator[Evidence]:
    """Every answer that it gives; what cannot be had says why. Never raises."""
    try:
        for name, content in answers(guests.windows_shell(machine), deadline):
            yield Evidence(f"{machine}/windows/{name}", content)
    except LabError as error:
        yield Evidence(f"{machine}/windows/missing.txt", f"{error}\n".encode())
