"""The ``lab`` command with real domains that boot nothing, and guests that answer at once.

Everything on the hypervisor is real: pools, volumes, networks, domains. What would need a
booted guest is answered here. Environment variables:

``BOOTLESS_IMAGE``
    A small qcow2 file: the disk of the golden image.
``BOOTLESS_KILL``
    ``17``: SIGKILL at the 17th call that changes something on a hypervisor, after the call;
    ``-17``: just before it.
``BOOTLESS_CALLS``
    A file to which one line is added for each such call.
``BOOTLESS_SILENT``
    Names of machines that never answer.
``BOOTLESS_SECONDS``
    Timeout of a boot, instead of minutes.
``BOOTLESS_CONTROLLER``
    The identity toward hypervisors: another user, or a user of another machine.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import libvirt

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.machines.images.golden import GoldenImage
from lab.machines.libvirt import bring_up, machines, owned, provider
from lab.machines.libvirt.guests import LibvirtGuests
from lab.shells.shell import Completed
from lab.windows import libvirt as windows

CHANGING = {
    libvirt.virConnect: (
        "networkDefineXML",
        "storagePoolDefineXML",
        "defineXML",
        "createXML",
    ),
    libvirt.virNetwork: ("create", "setAutostart", "destroy", "undefine"),
    libvirt.virStoragePool: (
        "build",
        "create",
        "setAutostart",
        "createXML",
        "destroy",
        "delete",
        "undefine",
    ),
    libvirt.virStorageVol: ("upload", "delete"),
    libvirt.virStream: ("send", "finish"),
    libvirt.virDomain: ("create", "destroy", "undefineFlags", "managedSave", "resume"),
}
_lock = Lock()
_calls = count(1)
_kill = int(os.environ.get("BOOTLESS_KILL", "0"))
_calls_file = os.environ.get("BOOTLESS_CALLS")


def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def act(*words: Any, **named: Any) -> Any:
        with _lock:
            number = next(_calls)
            if _calls_file:
                with Path(_calls_file).open("a", encoding="utf-8") as file:
                    file.write(f"{name}\n")
        if number == -_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return call(*words, **named)
        finally:
            if number == _kill:
                os.kill(os.getpid(), signal.SIGKILL)

    return act


class OneImageStore:
    """Returns golden images that have the same disk, for Linux, and for Windows by its name."""

    def __init__(self, disk: Path) -> None:
        self._image = GoldenImage(
            name="bootless",
            digest=sha256(disk.read_bytes()).hexdigest(),
            os="linux",
            disk=disk,
            virtual_gib=1,
            firmware="bios",
            kernel=None,
            initrd=None,
            arguments="",
            first_boot="light",
            user="root",
        )

    def get(self, name: str, _say: object) -> GoldenImage:
        return self.peek(name)

    def peek(self, name: str) -> GoldenImage:
        if name.startswith("windows"):
            facts = {"name": name, "os": "windows", "first_boot": "windows"}
            return replace(self._image, user="Administrator", **facts)  # type: ignore[arg-type]
        return self._image

    def digest(self, _name: str) -> str:
        return self._image.digest


class Shell:
    """A guest that answers at once, or never."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del command, deadline, stdin
        return Completed(0, "0", "")

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        del command, deadline, heard, stdin
        return Completed(1, "", "this guest has no agent")

    def wait(self, deadline: Deadline) -> None:
        if self._name in os.environ.get("BOOTLESS_SILENT", "").split():
            raise DeadlineError(f"waiting for '{self._name}'", _waited(deadline))

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _waited(deadline: Deadline) -> str:
    try:
        deadline.wait("waiting", lambda: False, every=0.1)
    except DeadlineError as error:
        return error.happened
    raise AssertionError("it cannot have ended well")


def main() -> None:
    for kind, names in CHANGING.items():
        for name in names:
            setattr(kind, name, watched(f"{kind.__name__}.{name}", getattr(kind, name)))
    image_store = OneImageStore(Path(os.environ["BOOTLESS_IMAGE"]))
    provider.LibvirtProvider._image_store = image_store  # type: ignore[assignment]
    LibvirtGuests.shell = lambda _self, name: Shell(name)  # type: ignore[assignment, method-assign, return-value]
    LibvirtGuests.apply = lambda _self, _intent: None  # type: ignore[method-assign]
    LibvirtGuests.ailments = lambda _self, _intent: {}  # type: ignore[method-assign]
    LibvirtGuests.evidence = lambda _self: iter(())  # type: ignore[method-assign]
    if controller := os.environ.get("BOOTLESS_CONTROLLER"):
        for module in (owned, bring_up):
            module.controller_id = lambda: controller  # type: ignore[attr-defined]
    if seconds := os.environ.get("BOOTLESS_SECONDS"):
        machines._BOOT_SECONDS = dict.fromkeys((True, False), float(seconds))
        windows.SPEAK_SECONDS = dict.fromkeys((True, False), float(seconds))
        machines._TRY_SECONDS = 0.5
    from lab.cli.main import main as lab  # noqa: PLC0415  as late as in the command itself

    lab(sys.argv[1:])


if __name__ == "__main__":
    main()
