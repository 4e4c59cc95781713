"""WS-Management messages: parsing of requests, and texts of replies."""

from __future__ import annotations

import base64
import re
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
WSMAN = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
FAULT = "http://schemas.microsoft.com/wbem/wsman/1/wsmanfault"
SOAP = "http://www.w3.org/2003/05/soap-envelope"
ADDRESSING = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
TRANSFER = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
CMD = f"{SHELL}/cmd"

TIMED_OUT = 2150858793
SHELL_NOT_FOUND = 2150858843
TOO_MANY_SHELLS = 2150859173
TOO_MANY_COMMANDS = 2150859174
ABORTED = 995
_SECONDS = re.compile(r"PT(?:(\d+)M)?(?:([\d.]+)S)?")


class FaultError(Exception):
    """A fault as the server's reply."""

    def __init__(self, code: int, reason: str, subcode: str = "w:InternalError") -> None:
        super().__init__(reason)
        self.code, self.reason, self.subcode = code, reason, subcode


@dataclass(frozen=True)
class Asking:
    """A request."""

    root: ET.Element

    @property
    def action(self) -> str:
        """Last part: ``Create``, ``Command``, ``Send``, ``Receive``, ``Signal``, ``Delete``."""
        return self.header("Action", ADDRESSING).rsplit("/", 1)[-1]

    @property
    def message(self) -> str:
        return self.header("MessageID", ADDRESSING)

    @property
    def shell(self) -> str:
        return self._text(f".//{{{WSMAN}}}Selector[@Name='ShellId']")

    @property
    def timeout(self) -> float:
        """OperationTimeout, in seconds."""
        found = _SECONDS.fullmatch(self.header("OperationTimeout", WSMAN))
        return int(found[1] or 0) * 60 + float(found[2] or 0) if found else 60.0

    def header(self, name: str, space: str) -> str:
        return self._text(f"{{{SOAP}}}Header/{{{space}}}{name}").strip()

    def option(self, name: str) -> str:
        return self._text(f".//{{{WSMAN}}}Option[@Name='{name}']")

    def body(self, name: str) -> ET.Element:
        """An element that must be there."""
        return next(self.root.iter(f"{{{SHELL}}}{name}"))

    def body_text(self, name: str) -> str:
        return self._text(f".//{{{SHELL}}}{name}")

    def _text(self, path: str) -> str:
        return self.root.findtext(path, "")


def created(asking: Asking, shell: str) -> str:
    return _envelope(
        asking,
        f"{TRANSFER}/CreateResponse",
        f'<x:ResourceCreated xmlns:x="{TRANSFER}"><a:Address>http://double/wsman</a:Address>'
        f"<a:ReferenceParameters><w:ResourceURI>{CMD}</w:ResourceURI><w:SelectorSet>"
        f'<w:Selector Name="ShellId">{shell}</w:Selector></w:SelectorSet>'
        f"</a:ReferenceParameters></x:ResourceCreated>"
        f"<rsp:Shell><rsp:ShellId>{shell}</rsp:ShellId></rsp:Shell>",
    )


def commanded(asking: Asking, command: str) -> str:
    return _envelope(
        asking,
        f"{SHELL}/CommandResponse",
        f"<rsp:CommandResponse><rsp:CommandId>{command}</rsp:CommandId></rsp:CommandResponse>",
    )


def received(
    asking: Asking, command: str, streams: Iterable[tuple[str, bytes]], code: int | None
) -> str:
    parts = [
        f'<rsp:Stream Name="{name}" CommandId="{command}">{base64.b64encode(data).decode()}'
        "</rsp:Stream>"
        for name, data in streams
        if data
    ]
    if code is not None:
        parts += [
            f'<rsp:Stream Name="{name}" CommandId="{command}" End="true"></rsp:Stream>'
            for name in ("stdout", "stderr")
        ]
    state = "Done" if code is not None else "Running"
    exit_code = f"<rsp:ExitCode>{code}</rsp:ExitCode>" if code is not None else ""
    parts.append(
        f'<rsp:CommandState CommandId="{command}" State="{SHELL}/CommandState/{state}">'
        f"{exit_code}</rsp:CommandState>"
    )
    return _envelope(
        asking,
        f"{SHELL}/ReceiveResponse",
        f"<rsp:ReceiveResponse>{''.join(parts)}</rsp:ReceiveResponse>",
    )


def done(asking: Asking) -> str:
    """The reply to Send, Signal and Delete."""
    if asking.action == "Delete":
        return _envelope(asking, f"{TRANSFER}/DeleteResponse", "")
    name = f"{asking.action}Response"
    return _envelope(asking, f"{SHELL}/{name}", f"<rsp:{name}/>")


def fault(asking: Asking, error: FaultError) -> str:
    return _envelope(
        asking,
        f"{ADDRESSING}/fault",
        f"<s:Fault><s:Code><s:Value>s:Receiver</s:Value><s:Subcode><s:Value>{error.subcode}"
        f'</s:Value></s:Subcode></s:Code><s:Reason><s:Text xml:lang="en-US">'
        f'{escape(error.reason)}</s:Text></s:Reason><s:Detail><f:WSManFault xmlns:f="{FAULT}" '
        f'Code="{error.code}" Machine="double"><f:Message>{escape(error.reason)}</f:Message>'
        "</f:WSManFault></s:Detail></s:Fault>",
    )


def _envelope(asking: Asking, action: str, body: str) -> str:
    return (
        f'<s:Envelope xml:lang="en-US" xmlns:s="{SOAP}" xmlns:a="{ADDRESSING}" '
        f'xmlns:w="{WSMAN}" xmlns:rsp="{SHELL}"><s:Header><a:Action>{action}</a:Action>'
        f"<a:MessageID>uuid:{str(uuid.uuid4()).upper()}</a:MessageID>"
        f"<a:RelatesTo>{asking.message}</a:RelatesTo></s:Header>"
        f"<s:Body>{body}</s:Body></s:Envelope>"
    )
