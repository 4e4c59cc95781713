"""What an installer's console means."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.imaging.job import Installation
from lab.imaging.recipe import Phase
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection, documents
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.installer import InstallationConsole, LibvirtInstaller

PHASES = (
    Phase(name="partitioning", sees=r"[Pp]artition"),
    Phase(name="copying", sees=r"Copying \d+ files"),
    Phase(name="finishing", sees=r"Finish"),
)


def story() -> InstallationConsole:
    return InstallationConsole(PHASES, "all done")


def test_phases_are_told_once_and_in_their_order():
    told = story()
    assert told.hear(b"Starting\r\nPartitioning /dev/vda\r\n") == ["partitioning"]
    assert told.hear(b"partition 2\r\nCopying 7 files\r\nCopying 8 files\r\n") == ["copying"]
    assert told.hear(b"Partition table again\r\n") == []
    assert told.phase == "copying"


def test_phase_that_was_never_seen_is_passed_over():
    told = story()
    assert told.hear(b"Finishing\n") == ["finishing"]


def test_words_may_come_in_pieces_and_in_colours():
    told = story()
    assert told.hear(b"\x1b[1mCopy") == []
    assert told.hear(b"ing 7\x1b[0m fil") == []
    assert told.hear(b"es\n") == ["copying"]
    told.hear(b"caf\xc3")
    told.hear(b"\xa9 all do")
    assert not told.is_done
    told.hear(b"ne")
    assert told.is_done
    assert "café" in told.tail


def test_line_that_is_not_ended_counts_too():
    assert story().hear(b"Partition disks?") == ["partitioning"]


def test_document_has_a_drive_for_each_medium_and_a_network_only_if_asked():
    spec = documents.VirtualMachine(
        kind="installer",
        name="x",
        title="small",
        accelerated=False,
        vcpus=1,
        memory_mib=512,
        firmware="bios",
        kernel="/pool/kernel",
        initrd="/pool/initrd",
        arguments="a=1 & b",
        disk="/pool/disk",
        console_log="/pool/console",
        discs=(documents.Disc("/pool/medium0"), documents.Disc("/pool/medium1")),
    )
    text = documents.domain(spec)
    assert text.count('device="cdrom"') == 2
    assert "<cmdline>a=1 &amp; b" in text
    assert "<on_reboot>destroy</on_reboot>" in text
    assert "interface" not in text
    assert "/pool/medium1" in text


def test_installer_of_another_architecture_is_refused(tmp_path, monkeypatch):
    class Elsewhere:
        def getInfo(self) -> list[str]:  # noqa: N802  libvirt's own name
            return ["aarch64"]

    monkeypatch.setattr(connection, "connect", lambda _: Elsewhere())
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(libvirtError=OSError))
    host = Host(Hypervisor(name="far", uri="qemu:///system"))
    one = Installation(
        name="small",
        architecture="x86_64",
        disk_gib=1,
        media=(),
        kernel=tmp_path,
        initrd=tmp_path,
        arguments="",
        memory_mib=1,
        vcpus=1,
        firmware="bios",
        network=False,
        done="",
        phases=(),
        deadline=Deadline(1),
    )
    with pytest.raises(PreflightError, match="it is for x86_64, but hypervisor 'far' is aarch64"):
        LibvirtInstaller(host).install(one, tmp_path / "disk", print, print)
