"""Downloads by curl: they continue after interruptions, and only verified files are stored.

Addresses and options reach curl on its standard input, accounts through the user's ``~/.netrc``, so
neither is on a command line.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.shells import programs
from lab.shells.programs import MORE_ROOM

_CONNECT_SECONDS = 60
"""Seconds to connect, and for the whole of a small file."""
_TRIES = 5
"""Connections in a row that may break without receiving a byte."""
_WINDOW_SECONDS = 300
_FLOOR = 4096
"""Lowest rate in bytes per second over each window: a trickling server could take years."""
_LONGEST_SECONDS = 7 * 86400.0
"""Seconds for a whole download: an installation medium at 14 KiB/s."""
_LARGEST = 64 << 30
"""Limit in bytes for a file of unknown size; installation media have 8 GiB at most."""
_REPORT_SECONDS = 5.0
_MIB = 1 << 20
_SMALL = 1 << 22
"""Largest checksum list that is read; Ubuntu's has 4 KiB."""
_BUSY_TRIES, _BUSY_SECONDS = 4, 120
"""Number and seconds of curl's retries on a busy server (429, 503).

Shorter than the window: a retry starts over, and a slow transfer has received something.
"""
_BAD_RANGE = 416
_WRITE_FAILED, _TOO_SLOW, _CANNOT_RESUME, _TOO_LARGE = 23, 28, 33, 63
"""Exit codes of curl; see its manual page."""
_DIGITS = 18
"""Digits of a plausible length."""
_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_LOCAL_FILE = (
    "look at 'mirrors' and 'proxies' of the inventory, or name a local file there: "
    '[images.NAME] path = "..."'
)
_OWN_DIGEST = "if you trust it, write its sha256 into the inventory: [images.NAME] sha256 = ..."
_LENGTHS = {64: "sha256", 128: "sha512"}
"""Name of the hash algorithm by number of hex digits."""
_GNU = re.compile(r"^\\?([0-9a-fA-F]{64,128})\s[ *](.+)$")
_BSD = re.compile(r"^SHA\d+ \((.+)\) = ([0-9a-fA-F]{64,128})$")


@dataclass(frozen=True, slots=True)
class Web:
    """How addresses are reached: the inventory's mirrors and proxies."""

    mirrors: Mapping[str, str]
    proxies: Mapping[str, str]
    """Empty to use the environment's."""
    instead: str = _LOCAL_FILE
    """Hint for an address that does not answer."""
    trusting: str = _OWN_DIGEST
    """Hint for unexpected content."""

    def text(self, url: str, action: str) -> str:
        """Download a small text file.

        Raises PreflightError when it cannot be downloaded.
        """
        with programs.unnamed_file() as body:
            options = {"max-time": _CONNECT_SECONDS, "max-filesize": _SMALL}

            def watch(_: Mapping[str, str]) -> None:
                if (size := _size(body)) > _SMALL:  # older versions of curl read on
                    raise _too_large(self, action, size, _SMALL)

            answer = _run_curl(self, url, body, action, options, watch)
            if answer.code == _TOO_LARGE:  # newer versions also count what arrives
                raise _too_large(self, action, _size(body), _SMALL)
            if answer.code:
                raise self.refused(url, action, answer.message)
            content = body.read_bytes()
        return content[:_SMALL].decode("utf-8", errors="replace")

    def refused(self, url: str, action: str, message: str) -> PreflightError:
        """The error for an address that does not answer or does not have the file."""
        address = rewrite_url(url, self.mirrors)
        through = f" (for {url})" if address != url else ""
        return PreflightError(action, f"{address}{through}: {message}", self.instead)

    def environment(self) -> dict[str, str]:
        """Proxy environment variables for a program; empty to keep the user's own."""
        if not self.proxies:
            return {}
        cleared = {name: "" for variable in _VARIABLES for name in (variable, variable.upper())}
        named = {"http_proxy": "http", "https_proxy": "https", "no_proxy": "no_proxy"}
        return cleared | {name: self.proxies.get(key, "") for name, key in named.items()}


def fetch(  # noqa: PLR0913, PLR0917  an address, a target and the expected content
    web: Web,
    url: str,
    target: Path,
    digest: str | None,
    tell: Callable[[str], None],
    size: int | None = None,
) -> None:
    """Download a file completely and verify it; continues an interrupted attempt.

    ``target``: path of the file; the partial one lies beside it with the ending ``.part``.
    ``digest``: ``sha256:`` or ``sha512:`` and hex; None if unknown. ``size``: expected bytes; None
    if only the server knows.

    Raises PreflightError when the address does not answer, the disk is full, or the content is
    larger or different: what was expected and received. The partial file is then removed. Raises
    BrokenError when the connection breaks repeatedly or is too slow; the partial file stays, and
    the next attempt continues.
    """
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    if digest is None:
        part.unlink(missing_ok=True)
        _receive(web, url, part, tell, size)
        part.replace(target)
        return
    algorithm = digest.partition(":")[0]
    resumed = part.exists() and part.stat().st_size > 0
    if not resumed or hash_file(part, algorithm) != digest:
        _receive(web, url, part, tell, size)
    actual = hash_file(part, algorithm)
    if actual != digest and resumed:
        tell("the partial download belongs to another file; starting over")
        part.unlink()
        _receive(web, url, part, tell, size)
        actual = hash_file(part, algorithm)
    if actual != digest:
        part.unlink()
        raise mismatch(f"downloading {url}", digest, actual, web.trusting)
    part.replace(target)


def mismatch(action: str, expected: str, actual: str, hint: str = _OWN_DIGEST) -> PreflightError:
    """The error for content that does not match its digest."""
    return PreflightError(
        action,
        f"wrong content: expected {expected}, got {actual}",
        hint,
    )


def hash_file(path: Path, algorithm: str) -> str:
    """``sha256:`` and hex of a file's content."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one run of curl."""

    code: int
    """Its exit code."""
    status: int
    """HTTP status; 0 without an answer."""
    message: str
    """The error message."""
    fields: Mapping[str, str]
    """Header fields of the last answer, lower-case names."""


def _run_curl(  # noqa: PLR0913, PLR0917  each is part of the request
    web: Web,
    url: str,
    output: Path,
    action: str,
    options: Mapping[str, object],
    watch: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> _Answer:
    """Run curl once; ``watch`` is called every second with the answer's header fields."""
    address = rewrite_url(url, web.mirrors)
    if not address.isprintable():
        raise web.refused(url, action, "the address contains control characters")
    programs.need(action, "curl", "setpriv")
    ending: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith("answer "):
            ending[:] = line.split(maxsplit=3)[1:]
        else:
            watch(_fields(head))

    with programs.unnamed_file() as config, programs.unnamed_file() as head:
        lines = {
            "url": address,
            "output": output,
            "dump-header": head,
            "proto": "=http,https",
            "proto-redir": "=http,https",
            "max-redirs": 10,
            "connect-timeout": _CONNECT_SECONDS,
            "retry": _BUSY_TRIES,
            "retry-max-time": _BUSY_SECONDS,
            "write-out": "\nanswer %{exitcode} %{http_code} %{errormsg}\n",
            **options,
        }
        flags = ("fail", "globoff", "location", "netrc-optional", "no-buffer", "show-error")
        text = "\n".join(
            (*flags, *(f"{key} = {_quote(str(value))}" for key, value in lines.items()))
        )
        config.write_text(text + "\n")
        ends = Deadline(_LONGEST_SECONDS)
        command = ("curl", "--disable", "--config", "-")
        try:
            programs.run(
                action,
                command,
                ends,
                on_line=on_line,
                environment=web.environment(),
                redirection=programs.Redirection(stdin=config),
            )
        except DeadlineError:
            raise
        except BrokenError:
            if not ending:
                raise
        code, status, *rest = ending
        fields = _fields(head)
        failed = fields and int(status) >= HTTPStatus.BAD_REQUEST
        message = _phrase(int(status)) if failed else "".join(rest)
        return _Answer(int(code), int(status), message, fields)


def _quote(text: str) -> str:
    """Quote a value for curl's configuration file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _fields(head: Path) -> dict[str, str]:
    """Header fields of the last answer."""
    last = head.read_text(encoding="utf-8", errors="replace").rpartition("HTTP/")[2]
    parts = (line.partition(":") for line in last.splitlines()[1:])
    return {name.strip().lower(): value.strip() for name, _, value in parts}


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _receive(web: Web, url: str, part: Path, tell: Callable[[str], None], size: int | None) -> None:
    """Complete the partial file, over as many connections as necessary."""
    action = f"downloading {url}"
    limit = _LARGEST if size is None else size
    reported, began = time.monotonic(), 0

    def watch(fields: Mapping[str, str]) -> None:
        nonlocal reported
        size = _size(part)
        if size > limit:
            part.unlink()
            raise _too_large(web, action, size, limit)
        if time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            length = _length(fields)
            total = "" if length is None else f" of {(began + length) / _MIB:.0f}"
            tell(f"downloading, {size / _MIB:.0f}{total} MiB")

    def fetch() -> _Answer:
        nonlocal began
        began, free = _size(part), _free(part)
        options = {
            "continue-at": "-",
            "speed-limit": _FLOOR,
            "speed-time": _WINDOW_SECONDS,
            "max-filesize": max(1, min(limit - began, free)),
        }
        answer = _run_curl(web, url, part, action, options, watch)
        _check_size(web, action, part, answer, limit)
        return answer

    tries, most = 0, _size(part)
    # curl takes a refused range for the end of the file
    while (answer := fetch()).code or answer.status == _BAD_RANGE:
        restart = began and (answer.code == _CANNOT_RESUME or answer.status == _BAD_RANGE)
        if restart:
            part.unlink()
        after = _size(part)
        tries = 0 if after > most else tries + 1
        most = max(most, after)
        refused = after == 0 or answer.status >= HTTPStatus.BAD_REQUEST
        if refused and (not restart or tries == _TRIES):
            raise web.refused(url, action, answer.message)
        if answer.code == _TOO_SLOW or tries == _TRIES:
            raise BrokenError(
                action,
                f"{answer.message}; {after:,} bytes were received",
                "repeat the command: it continues from there; 'mirrors' in the inventory can name "
                "another server",
            )
        time.sleep(min(tries, 1))
    part.touch()  # curl creates no file for an empty one


def _check_size(web: Web, action: str, part: Path, answer: _Answer, limit: int) -> None:
    """Check that the partial file is not larger than the file, and that the disk has room."""
    length_now = _size(part)
    length = _length(answer.fields)
    whole = length_now + (_LARGEST + 1 if length is None else length)
    if length_now > limit or (answer.code == _TOO_LARGE and whole > limit):
        part.unlink(missing_ok=True)
        raise _too_large(web, action, max(length_now, whole), limit)
    if answer.code in {_WRITE_FAILED, _TOO_LARGE}:
        raise PreflightError(
            f"downloading to '{part.parent}'",
            f"{_free(part) / _MIB:.0f} MiB are free, and {whole / _MIB:.0f} MiB are needed",
            MORE_ROOM,
        )


def _too_large(web: Web, action: str, size: int, limit: int) -> PreflightError:
    """The error for a file that exceeds its limit."""
    happened = f"it has {size:,} bytes or more; the limit is {limit:,}"
    return PreflightError(action, happened, web.trusting)


def _length(fields: Mapping[str, str]) -> int | None:
    """The length in an answer's header, in bytes; None without one."""
    length = fields.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) < _DIGITS else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _free(part: Path) -> int:
    status = os.statvfs(part.parent)
    return status.f_bavail * status.f_frsize


def rewrite_url(url: str, mirrors: Mapping[str, str]) -> str:
    """The address after mirrors; the longest matching prefix wins."""
    fitting = [start for start in mirrors if url.startswith(start)]
    if not fitting:
        return url
    start = max(fitting, key=len)
    return mirrors[start] + url.removeprefix(start)


def find_digest(checksums: str, name: str) -> str | None:
    """A file's digest in a vendor's list, in GNU's or BSD's format; None if not listed."""
    for line in checksums.splitlines():
        if match := _GNU.match(line.strip()):
            digest, file = match.groups()
        elif match := _BSD.match(line.strip()):
            file, digest = match.groups()
        else:
            continue
        if file.rpartition("/")[2] == name and len(digest) in _LENGTHS:
            return f"{_LENGTHS[len(digest)]}:{digest.lower()}"
    return None
