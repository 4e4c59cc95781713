from __future__ import annotations

import pytest

from lab.imaging.windows.foreign import FIRST, of_bytes, of_names

UDF_ALONE = bytes(32768) + b"\0BEA01\x01"
DISK = bytes(510) + b"\x55\xaa"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "it is empty"),
        (b"hello", "it has 5 bytes, too few for a medium"),
        (b"x" * 1000, "it has 1,000 bytes, too few for a medium"),
        (b"x" * FIRST, "it is no ISO 9660 image"),
        (bytes(FIRST), "it begins with nothing but zeros: the download has not been written"),
        (b"QFI\xfb\0\0\0\3", "it is a disk in qcow2 format"),
        (b"MSWIM\0\0\0", "it is a WIM file, which is only one part of a medium"),
        (b"vhdxfile", "it is a disk of Hyper-V (VHDX)"),
        (b"PK\x03\x04\x14", "it is a ZIP archive"),
        (b"MZ\x90\0", "it is a program of Windows"),
        (b"\r\n<!DOCTYPE HTML>\n<p>Sign in", "it is a web page: the download led to words"),
        (b"\xef\xbb\xbf<html lang='en'>", "it is a web page: the download led to words"),
        (b'<?xml version="1.0"?><Error>', "it is an XML document"),
        (DISK.ljust(FIRST, b"\1"), "it is a disk's image, with a boot sector and no volume"),
        (UDF_ALONE.ljust(FIRST, b"\0"), "it is a UDF volume without ISO 9660"),
    ],
)
def test_file_is_told_by_its_first_bytes(first, words):
    assert of_bytes(first).startswith(words)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((".disk", "casper", "EFI", "boot"), "is one of Linux"),
        (("images", "images/pxeboot", "EFI", "isolinux"), "is one of Linux"),
        ((".disk", "dists", "install.amd", "pool"), "is one of Linux"),
        (("NetKVM", "viostor", "virtio-win_license.txt"), "holds drivers (virtio-win)"),
        (("Autounattend.xml", "bootstrap.ps1"), "holds answers for Setup"),
        (("boot", "sources", "sources/boot.wim"), "starts Windows PE and holds no Windows"),
        ((), "holds no 'sources/install.wim', '.esd' or '.swm', but nothing"),
        (("sources", "sources/install.txt"), "but 'sources'"),
        (tuple("abcdefghij"), "but 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 2 more"),
    ],
)
def test_medium_is_told_by_what_is_on_it(names, words):
    told = of_names("LABEL", names)
    assert told.startswith("the medium 'LABEL' ")
    assert words in told
