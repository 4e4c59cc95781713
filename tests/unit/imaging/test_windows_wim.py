from __future__ import annotations

import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wim_bytes import HEADER, IMAGE, wim, xml

from lab._errors import PreflightError
from lab.imaging.windows.media import WindowsImage
from lab.imaging.windows.wim import Header, check_set, header, header_of, images, read

ONE = xml(["Windows Server 2022 SERVERSTANDARD"])


def test_all_of_an_image_is_read():
    _, found = read("reading", io.BytesIO(wim(ONE)))
    assert found == (
        WindowsImage(
            index=1,
            name="Windows Server 2022 SERVERSTANDARD",
            display_name="Windows Server 2022 SERVERSTANDARD shown",
            edition="ServerStandard",
            installation="Server",
            build=20348,
            revision=587,
            languages=("de-DE", "en-US"),
            default_language="de-DE",
            architecture="x86_64",
            bytes=9_000_000_000,
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        ONE.encode("utf-16-le"),
        b"\xfe\xff" + ONE.encode("utf-16-be"),
        b"\xff\xfe" + (f'<?xml version="1.0" encoding="utf-16"?>{ONE}\0').encode("utf-16-le"),
    ],
    ids=["no mark", "big-endian", "declaration and a zero at the end"],
)
def test_xml_is_read_in_every_way_that_it_is_written(text):
    assert read("reading", io.BytesIO(wim(text)))[1][0].build == 20348


def test_images_come_in_the_order_of_their_numbers():
    text = xml(["first", "second"])
    first, second = text.index("<IMAGE"), text.rindex("<IMAGE")
    swapped = text[:first] + text[second : -len("</WIM>")] + text[first:second] + "</WIM>"
    found = read("reading", io.BytesIO(wim(swapped, images=2)))[1]
    assert [image.name for image in found] == ["first", "second"]


def test_what_an_image_does_not_tell_is_left_empty():
    bare = '<WIM><IMAGE INDEX="1"><NAME>Data</NAME></IMAGE></WIM>'
    (found,) = read("reading", io.BytesIO(wim(bare)))[1]
    assert (found.display_name, found.edition, found.build) == ("Data", "", 0)
    assert (found.languages, found.default_language) == ((), "")
    assert found.architecture == "processor unknown"


def test_first_language_is_the_default_where_none_is_told():
    text = ONE.replace("<DEFAULT>de-DE</DEFAULT>", "")
    assert read("reading", io.BytesIO(wim(text)))[1][0].default_language == "de-DE"


DOCTYPE = '<!DOCTYPE WIM [<!ENTITY a "aaaaaaaa">]>'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is no WIM: it begins with b''"),
        (wim(ONE, magic=b"MSWIN\0\0\0"), "it is no WIM"),
        (wim(ONE, magic=b"WLPWM\0\0\0"), "it is no WIM"),
        (wim(ONE)[:100], "it ends after 100 bytes, within its header"),
        (wim(ONE)[:-1], "its XML is said to end at byte"),
        (wim(ONE, offset=1 << 40), "its XML is said to end at byte 1,099,511"),
        (wim(ONE, offset=(1 << 64) - 10), "its XML is said to end at byte"),
        (wim(ONE, offset=0), "its XML is said to end at byte"),
        (wim(ONE, length=5 << 20), r"is said to be 5,242,880 bytes long, and 4,194,304 are"),
        (wim(ONE, flags=4), "it says that its XML is compressed"),
        (wim(ONE, part=(0, 0)), "it says that it is part 0 of 0"),
        (wim(ONE, part=(3, 2)), "it says that it is part 3 of 2"),
        (wim(ONE, part=(2, 2)), "it is part 2 of 2, and the images are told of in part 1"),
        (wim(ONE, length=(1 << 33) + len(ONE)), r"is said to be 8,589,9\d\d,\d+ bytes long"),
        (wim(ONE, images=(1 << 16) + 1), "its header counts 65,537 images, and"),
        (wim(ONE, images=4), "its header counts 4 images, and its XML describes 1"),
        (wim("<WIM/>"), "its header counts 1 image, and its XML describes none"),
        (wim("<WIM/>", images=0), "it holds no images"),
        (wim("<WIM/>" + " " * 10, images=0, length=4), "its XML cannot be read"),
        (wim(xml(["a", "b"]).replace('"2"', '"1"'), images=2), "describes 1, 1"),
        (wim(xml(["a", "b"]).replace('"2"', '"3"'), images=2), "describes 1, 3"),
        (wim(DOCTYPE + ONE), "its XML declares a document type"),
        (wim(DOCTYPE + "<WIM>&a;&a;</WIM>"), "its XML declares a document type"),
        (wim(b"\xff\xfe<\0W"), "its XML is no UTF-16"),
        (wim("<WIM><IMAGE></WIM>"), "its XML cannot be read: mismatched tag"),
        (wim("<HTML/>"), "its XML has 'HTML' where 'WIM' stands"),
        (wim(ONE.replace("20348", "twenty")), "its XML gives 'twenty' as BUILD"),
        (wim(ONE.replace("587", "-1")), "its XML gives '-1' as SPBUILD"),
        (wim(ONE.replace("9000000000", "9" * 5000)), "its XML gives '9{40}' as TOTALBYTES"),
        (wim(ONE.replace('"1"', '"one"')), "its XML gives 'one' as INDEX"),
    ],
)
def test_file_that_is_no_whole_wim_is_refused_in_words(data, words):
    with pytest.raises(PreflightError, match=words) as raised:
        read("reading 'install.wim'", io.BytesIO(data))
    assert raised.value.doing == "reading 'install.wim'"
    assert raised.value.cure


@given(st.binary(max_size=400), st.integers(0, 1 << 40))
@example(wim(ONE)[:HEADER], 10_000)
def test_header_leads_into_the_file_or_is_refused(data, size):
    try:
        found = header("reading", b"MSWIM\0\0\0" + data, size)
    except PreflightError:
        return
    assert found.xml.offset + found.xml.length <= size
    assert 1 <= found.part <= found.parts


@settings(max_examples=200)
@given(st.text(alphabet="<>/=\"'&;![] AIMGEWNDX1\ud7ff", max_size=200) | st.just(IMAGE))
def test_any_xml_is_read_or_refused(text):
    told = Header(b"", 1, 1, 1, header_of("reading", io.BytesIO(wim(ONE))).xml)
    try:
        images("reading", told, f"<WIM>{text}</WIM>".encode("utf-16"))
    except PreflightError as error:
        assert error.doing == "reading"  # noqa: PT017  either way is right


PARTS = {number: header_of("", io.BytesIO(wim(ONE, part=(number, 4)))) for number in (1, 2, 3, 4)}
STRANGER = header_of("", io.BytesIO(wim(ONE, part=(3, 4), identity=b"other set of WIM")))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({3: None}, "of its 4 parts there is no 'part3'"),
        ({2: None, 4: None}, "of its 4 parts there is no 'part2', 'part4'"),
        ({3: PARTS[2]}, "'part3' is part 2 of 4, and not part 3 of this one"),
        ({3: STRANGER}, "'part3' is part 3 of 4 of another set, and not part 3 of this one"),
    ],
)
def test_split_set_that_is_not_whole_is_refused(others, words):
    there = PARTS | others
    with pytest.raises(PreflightError, match=words):
        check_set("reading", PARTS[1], "part{}".format, there.get)


def test_whole_split_set_is_taken():
    check_set("reading", PARTS[1], "part{}".format, PARTS.get)
