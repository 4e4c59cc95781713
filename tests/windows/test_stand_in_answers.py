"""The stand-in of Setup reads answer files strictly: what it does not know, it refuses."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from stand_in.guest import answer
from stand_in.guest.answer import AnswerError

from lab.imaging.windows.answer import answer_file, clone_answer_file, driver_paths
from lab.imaging.windows.release import Wanted
from lab.imaging.windows.settings import CloneSettings, Settings

PASSWORD = 'Pa"ss <&>\u00e9\u20ac'
SETTINGS = Settings(
    Wanted("2022", "standard", "core"), "bios", "virtio", None, "HYBRIDLAB", PASSWORD
)


def installation(**changes: object) -> str:
    return answer_file(replace(SETTINGS, **changes)).decode()


def read(text: str) -> answer.Answer:
    return answer.read(text.encode())


def test_the_product_s_answer_file_says_what_its_settings_say() -> None:
    told = read(installation())

    first = told.preinstallation
    assert first is not None
    assert first.image == ("/IMAGE/NAME", "Windows Server 2022 SERVERSTANDARDCORE")
    assert first.target == answer.Target(disk=0, partition=2)
    assert first.key is None
    assert set(first.drivers) >= set(driver_paths(("viostor", "NetKVM"), "2k22"))
    assert told.computer_name == "HYBRIDLAB"
    assert told.password == PASSWORD
    assert told.autologon == answer.Logon("Administrator", PASSWORD)
    assert len(told.first_logon) == 4
    assert told.time_zone == "UTC"


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_partitions_are_as_the_firmware_wants_them(firmware: str) -> None:
    first = read(installation(firmware=firmware)).preinstallation
    assert first is not None
    (disk,) = first.disks
    kinds = [(one.number, one.kind, one.format, one.active) for one in disk.partitions]
    assert disk.wipe
    assert (
        kinds
        == {
            "bios": [(1, "Primary", "NTFS", True), (2, "Primary", "NTFS", False)],
            "uefi": [
                (1, "EFI", "FAT32", False),
                (2, "MSR", None, False),
                (3, "Primary", "NTFS", False),
            ],
        }[firmware]
    )


def test_a_volume_licence_s_key_is_read() -> None:
    key = "VDYBN-27WPP-V4HQT-9VMD4-VMK7H"
    first = read(installation(key=key)).preinstallation
    assert first is not None
    assert first.key == key


def test_a_clone_s_answer_file_has_no_installation() -> None:
    settings = CloneSettings("win1", PASSWORD, "ssh-ed25519 AAAA x", "192.0.2.1", (), None)
    told = answer.read(clone_answer_file(settings))
    assert told.preinstallation is None
    assert told.computer_name == "win1"
    assert told.password == PASSWORD


BROKEN = {
    "element": ("<AcceptEula>", "<Surprise>1</Surprise><AcceptEula>", "unknown element .*Surprise"),
    "element of a known name elsewhere": (
        "<AcceptEula>",
        "<ComputerName>X</ComputerName><AcceptEula>",
        "unknown element .*UserData/ComputerName",
    ),
    "element in a leaf": ("<DiskID>0</DiskID>", "<DiskID><B/></DiskID>", "unknown element .*/B"),
    "element of no namespace": (
        "<AcceptEula>true</AcceptEula>",
        '<AcceptEula xmlns="">true</AcceptEula>',
        "unknown element",
    ),
    "component": ("Microsoft-Windows-SQMApi", "Microsoft-Windows-IE", "unknown component"),
    "pass": ('pass="generalize"', 'pass="auditUser"', "unknown pass 'auditUser'"),
    "attribute": ("<DriverPaths>", '<DriverPaths color="red">', "unknown attribute"),
    "action": ('wcm:action="add"', 'wcm:action="modify"', "unknown attribute"),
    "architecture": ('processorArchitecture="amd64"', 'processorArchitecture="x86"', "looks for"),
    "text between elements": ("<DriverPaths>", "<DriverPaths>hello", "has text: 'hello"),
    "leaf twice": (
        "<AcceptEula>true</AcceptEula>",
        "<AcceptEula>true</AcceptEula><AcceptEula>true</AcceptEula>",
        "AcceptEula twice",
    ),
    "licence not accepted": (
        "<AcceptEula>true</AcceptEula>",
        "<AcceptEula>false</AcceptEula>",
        "shows the licence",
    ),
    "value": ("<WillWipeDisk>true", "<WillWipeDisk>yes", "WillWipeDisk is 'yes'"),
    "order": ("<Order>2</Order>", "<Order>3</Order>", r"Order is \[1, 3"),
    "size and extend": (
        "<Extend>true</Extend>",
        "<Extend>true</Extend><Size>9</Size>",
        "either Size or Extend",
    ),
    "partition that is not created": (
        "<PartitionID>2</PartitionID>\n              <Format>",
        "<PartitionID>9</PartitionID>\n              <Format>",
        r"not created: \[9\]",
    ),
    "long name": (
        "<ComputerName>HYBRIDLAB<",
        "<ComputerName>HYBRIDLAB0123456<",
        "ComputerName is 'HYBRIDLAB0123456'",
    ),
    "document type": (
        "<unattend ",
        '<!DOCTYPE unattend SYSTEM "x"><unattend ',
        "a document type is not taken",
    ),
    "no XML": ("</unattend>", "", "no XML"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_unknown_or_stops_setup_is_refused(name: str) -> None:
    there, instead, words = BROKEN[name]
    text = installation()
    assert there in text
    with pytest.raises(AnswerError, match=words):
        read(text.replace(there, instead, 1))


def test_a_password_has_to_be_encoded_as_setup_reads_it() -> None:
    text = installation()
    right = base64.b64encode((PASSWORD + "AdministratorPassword").encode("utf-16-le")).decode()
    wrong = base64.b64encode(PASSWORD.encode("utf-16-le")).decode()
    assert right in text
    with pytest.raises(AnswerError, match="without the ending 'AdministratorPassword'"):
        read(text.replace(right, wrong))
    with pytest.raises(AnswerError, match="not encoded"):
        read(text.replace(right, "###"))


def test_a_command_that_is_too_long_is_refused() -> None:
    text = installation().replace("cmd /c echo hybridlab: phase winpe", f"cmd /c {'x' * 260}")
    with pytest.raises(AnswerError, match=r"a command of \d+ characters; from 1 to 259"):
        read(text)


def test_drivers_need_key_values_of_their_own() -> None:
    text = installation().replace('wcm:keyValue="2"', 'wcm:keyValue="1"')
    with pytest.raises(AnswerError, match="keyValues of their own"):
        read(text)
