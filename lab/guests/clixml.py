"""CLIXML, what PowerShell writes on its error stream when nobody looks: turned into text. Pure.

The form is [MS-PSRP] 2.2.5's and pypsrp's reading of it: ``#< CLIXML``, then one ``Objs`` document
or several. Anything else on the stream, and anything that cannot be read, stays as it is.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

MARK = "#< CLIXML"
_SPACE = "{http://schemas.microsoft.com/powershell/2004/04}"
_DOCUMENT = re.compile(r"<Objs\b.*?</Objs>|<Objs\b[^>]*/>", re.DOTALL)
_HEAD = re.compile(re.escape(MARK) + r"\r?\n?")
_ESCAPES = re.compile(r"(?:_x[0-9A-Fa-f]{4}_)+")
_PREFIX = {"warning": "WARNING: ", "verbose": "VERBOSE: ", "debug": "DEBUG: "}
"""As the console shows them."""
_SILENT = {"progress"}


def readable(text: str) -> str:
    r"""The text behind CLIXML; text that holds none is given back as it is.

    Errors come as they are, warnings and the like with the prefix that the console gives them,
    progress not at all. Lines end with ``\n``.
    """
    if MARK not in text:
        return text
    return _DOCUMENT.sub(lambda found: _document(found[0]), _HEAD.sub("", text))


def _document(text: str) -> str:
    if "<!" in text:  # a document type is not PowerShell's, and may not be harmless
        return text
    try:
        root = ET.fromstring(text)  # noqa: S314  it has no document type, so no entities
    except ET.ParseError:
        return text
    return "".join(_record(one) for one in root)


def _record(element: ET.Element) -> str:
    stream = element.get("S", "").lower()
    if stream in _SILENT:
        return ""
    said = _unescaped(_words(element)).replace("\r\n", "\n")
    if not said:
        return ""
    prefix = _PREFIX.get(stream, "")
    ended = said if element.tag == f"{_SPACE}S" and not prefix else said.rstrip("\n") + "\n"
    return f"{prefix}{ended}"


def _words(element: ET.Element) -> str:
    """A string's own text; an object's as PowerShell would print it."""
    if element.tag != f"{_SPACE}Obj":
        return element.text or ""
    for found in (element.find(f"{_SPACE}ToString"), element.find(f".//{_SPACE}S")):
        if found is not None and found.text:
            return found.text
    return ""


def _unescaped(text: str) -> str:
    """``_x000D_`` and its like: UTF-16 code units, perhaps both halves of one character."""
    return _ESCAPES.sub(
        lambda found: (
            b"".join(
                int(unit, 16).to_bytes(2, "little") for unit in re.findall("x(.{4})", found[0])
            )
        ).decode("utf-16-le", "replace"),
        text,
    )
