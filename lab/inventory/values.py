"""Single values of an inventory file: text in, checked value out.

Every function raises :class:`pydantic_core.PydanticCustomError` of type ``"wrong"``, like those of
:mod:`lab.scenario.values`.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from urllib.parse import urlsplit

from lab.scenario.findings import did_you_mean, quoted
from lab.scenario.values import cidr, text, wrong

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>[smhdw])")


def seconds(text: str) -> float | None:
    """Parse a number with a unit (s, m, h, d, w) into seconds; None if it is not one."""
    match = _DURATION.fullmatch(text.strip().lower())
    return float(match["number"]) * UNITS[match["unit"]] if match else None


SHA256 = r"^[0-9a-fA-F]{64}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
EXPIRY = r"^[0-9]+(\.[0-9]+)?[smhdw]$"
SMALLEST_RANGE = 24
"""Prefix length of a lab's part of the management range."""
_SCHEMES = ("https", "http", "file")
_DIGEST_NAMES = ("sha256:", "sha256=")
_PRIVATE = tuple(
    IPv4Network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""The private ranges of RFC 1918, and the shared range of RFC 6598."""


def word(value: object) -> str:
    """One line of text that is not empty, such as an owner."""
    written = text(value).strip()
    if not written:
        raise wrong("this text is empty", "write some, or delete the key")
    if not written.isprintable():
        raise wrong("this text has characters that cannot be printed", "write it on one line")
    return written


def expiry(value: object) -> float:
    """Parse a time such as ``"2d"`` into seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise wrong(f"{value} has no unit", f"write it with one, such as {quoted(f'{value:g}d')}")
    duration = seconds(text(value))
    if not duration:
        message = f"{quoted(value)} is not a time"
        raise wrong(message, 'write a number and one of s, m, h, d, w, such as "2d"')
    return duration


def management(value: object) -> IPv4Network:
    """A private range with room for at least one lab."""
    network = cidr(value)
    if not any(network.subnet_of(private) for private in _PRIVATE):
        message = f"{quoted(network)} is not a private range"
        raise wrong(message, "take one of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 (RFC 1918)")
    if network.prefixlen > SMALLEST_RANGE:
        message = f"{quoted(network)} is too small: each lab takes a /{SMALLEST_RANGE} of it"
        raise wrong(message, 'write a wider one, such as "10.201.0.0/16"')
    return network


def absolute(value: object) -> str:
    """An absolute path on a hypervisor."""
    written = text(value).strip()
    if not written.startswith("/"):
        message = f"{quoted(written)} is not an absolute path"
        raise wrong(message, "write one that begins with /")
    parts = [part for part in written.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise wrong(f'{quoted(written)} holds ".."', "write it out")
    if not parts:
        raise wrong(f"{quoted(written)} cannot hold disks", "name a directory below it")
    return "/" + "/".join(parts)  # as libvirt normalizes it


def path(value: object) -> str:
    """A local path: absolute, starting with ``~/``, or relative to the inventory file."""
    written = text(value).strip()
    if not written or "\0" in written:
        raise wrong("this path is empty", "write the path of a file")
    if written.startswith("~") and not written.startswith("~/"):
        message = f"{quoted(written)} is in another user's home"
        raise wrong(message, "write the path out")
    return written


def url(value: object) -> str:
    """An address of http, https or file, without a password."""
    written = text(value).strip()
    try:
        parts = urlsplit(written)
        place = parts.hostname
    except ValueError as error:
        raise wrong(f"this is not an address: {error}", 'write it like "https://..."') from None
    if parts.password is not None:
        message = "this address has a password in plain text"
        raise wrong(message, "remove it, and put it into ~/.netrc, mode 0600")
    if parts.scheme not in _SCHEMES:
        near = did_you_mean(parts.scheme, _SCHEMES, "begin it with https://, http:// or file://")
        if not parts.scheme:
            near = 'write it like "https://...", or "file:///..." for a file'
        raise wrong(f"{quoted(written)} is not an address that can be fetched", near)
    if not place and parts.scheme != "file":
        raise wrong(f"{quoted(written)} has no host", 'write it like "https://..."')
    return written


def proxy(value: object) -> str:
    """The address of a proxy, without a password."""
    written = text(value).strip()
    try:
        parts = urlsplit(written)
        place = parts.hostname, parts.port
    except ValueError as error:
        raise wrong(
            f"this is not an address: {error}", 'write it like "http://proxy:3128"'
        ) from None
    if parts.password is not None:
        message = "this address has a password in plain text"
        hint = "delete the key, and set http_proxy and https_proxy in the environment instead"
        raise wrong(message, hint)
    if parts.scheme not in {"http", "https"} or not place[0]:
        raise wrong(
            f"{quoted(written)} is not a proxy", 'write it like "http://proxy.example:3128"'
        )
    return written


def sha256(value: object) -> str:
    """Sixty-four hexadecimal digits, in lower case."""
    written = text(value).strip()
    if re.fullmatch(SHA256, written):
        return written.lower()
    bare = written
    for prefix in _DIGEST_NAMES:
        bare = bare.removeprefix(prefix)
    if re.fullmatch(SHA256, bare):
        raise wrong(
            (f"{quoted(written)} has more than hexadecimal digits"), "write only the 64 digits"
        )
    message = f"{quoted(written)} is not a SHA-256: it has {len(bare)} characters"
    raise wrong(message, "write the 64 hexadecimal digits that sha256sum prints")


def variable(value: object) -> str:
    """The name of an environment variable."""
    written = text(value).strip()
    if not re.fullmatch(VARIABLE, written.removeprefix("$")):
        message = "this is not a name of an environment variable"
        raise wrong(message, 'write one such as "WINDOWS_ADMIN_PASSWORD", never the secret itself')
    if written.startswith("$"):
        raise wrong("the name has a dollar sign", f"write {quoted(written[1:])}")
    return written


def tag(value: object) -> str:
    """One tag of a hypervisor."""
    written = text(value).strip()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", written):
        message = f"{quoted(written)} is not a tag"
        raise wrong(message, 'use letters, digits, ".", "_" and "-"')
    return written
