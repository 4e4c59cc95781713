"""libvirt URIs: which are supported, and why others are not. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from lab.scenario.findings import alternatives, did_you_mean, quoted
from lab.scenario.values import wrong

LOCAL = "qemu:///system"
PARAMETERS = {
    "qemu": ("socket", "mode"),
    "qemu+unix": ("socket", "mode"),
    "qemu+ssh": ("keyfile", "no_verify", "no_tty", "command", "socket", "netcat", "proxy", "mode"),
    "qemu+tls": ("pkipath", "no_verify", "tls_priority"),
}
"""Supported schemes, with their parameters from libvirt's manual."""

_REMOTE = frozenset({"qemu+ssh", "qemu+tls"})
_REFUSED = {
    "test": ("is libvirt's test driver, which runs no machines", f"write {quoted(LOCAL)}"),
    "qemu+tcp": ("is not encrypted", 'write "qemu+tls://..." or "qemu+ssh://..."'),
    "qemu+libssh": ("would ask on the terminal instead of failing", 'write "qemu+ssh://..."'),
    "qemu+libssh2": ("would ask on the terminal instead of failing", 'write "qemu+ssh://..."'),
}
_PORTS = {"qemu+ssh": 22, "qemu+tls": 16514}
_WORD = re.compile(r"[A-Za-z0-9_:][^\s\x00-\x20\x7f\"'\\%;`$|&<>(){}*?!#]*")
"""A valid host, whose address may begin with a colon, or user."""
_ABSOLUTE = ("keyfile", "socket", "pkipath", "command")


@dataclass(frozen=True, slots=True)
class Uri:
    """A parsed libvirt URI."""

    scheme: str
    host: str | None
    """None for this machine."""
    port: int | None
    user: str | None
    path: str
    parameters: tuple[tuple[str, str], ...]

    def parameter(self, name: str) -> str | None:
        """The value of a parameter."""
        return dict(self.parameters).get(name)


def parse(written: str) -> Uri:
    """Parse a URI that :func:`check` has accepted."""
    parts = urlsplit(written)
    return Uri(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        path=parts.path,
        parameters=tuple(parse_qsl(parts.query, keep_blank_values=True)),
    )


def place(written: str) -> tuple[object, ...]:
    """A key that is equal for two URIs of the same libvirtd."""
    uri = parse(written)
    port = uri.port or _PORTS.get(uri.scheme)
    return uri.host, port, uri.parameter("socket"), uri.host and uri.scheme


def check(written: str) -> str:
    """Check that a URI is supported, and return it.

    Raises PydanticCustomError of type ``"wrong"``, with the error and a hint.
    """
    try:
        parts = urlsplit(written)
        uri = parse(written)
    except ValueError as error:
        raise wrong(f"this is not a URI: {error}", f"write it like {quoted(LOCAL)}") from None
    if parts.password is not None:
        message = "this URI has a password in plain text"
        raise wrong(message, 'remove it, and log in with a key: "...?keyfile=/path/of/the/key"')
    _check_scheme(uri, written)
    _check_place(uri, written)
    _check_words(uri)
    for name, value in uri.parameters:
        known = PARAMETERS[uri.scheme]
        if name not in known:
            message = f"{quoted(name)} is not a parameter of {quoted(uri.scheme)}"
            raise wrong(message, did_you_mean(name, known, f"it has {', '.join(known)}"))
        if name in _ABSOLUTE and not value.startswith(("/", "~/")):
            message = f"the {name} {quoted(value)} is not an absolute path"
            raise wrong(message, "write one that begins with /")
    return written


def _check_scheme(uri: Uri, written: str) -> None:
    if uri.scheme in _REFUSED:
        why, hint = _REFUSED[uri.scheme]
        raise wrong(f"{quoted(uri.scheme)} {why}", hint)
    if uri.scheme not in PARAMETERS:
        message = f"{quoted(uri.scheme or written)} is not a supported kind of hypervisor"
        served = alternatives(f"{scheme}://" for scheme in PARAMETERS)
        raise wrong(message, did_you_mean(uri.scheme, PARAMETERS, f"begin it with {served}"))


def _check_words(uri: Uri) -> None:
    """Refuse a host or user that ``ssh`` or its configuration would not treat as a name."""
    for noun, value in (("host", uri.host), ("user", uri.user)):
        if value is not None and not _WORD.fullmatch(value):
            message = f"the {noun} {quoted(value)} of the URI is not a name of a {noun}"
            raise wrong(
                message, "begin it with a letter, a digit or _, and write it without spaces"
            )


def _check_place(uri: Uri, written: str) -> None:
    if uri.scheme in _REMOTE and not uri.host:
        example = f"{uri.scheme}://host.example/system"
        raise wrong(f"{quoted(written)} has no host", f"write it like {quoted(example)}")
    if uri.scheme not in _REMOTE and uri.host:
        message = f"{quoted(uri.scheme)} is for this machine, and the URI names a host"
        better = quoted(f"qemu+ssh://{uri.host}/system")
        raise wrong(message, f"write {better}, or {quoted(LOCAL)}")
    if uri.path == "/session":
        message = "a libvirt session cannot make networks"
        raise wrong(message, f"write {quoted(written.replace('/session', '/system', 1))}")
    if uri.path != "/system":
        message = f"the path {quoted(uri.path)} of the URI is not /system"
        raise wrong(message, f"write it like {quoted(LOCAL)}")
