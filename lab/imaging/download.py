"""Downloads that go on where they broke off, and are what they must be or not there at all."""

from __future__ import annotations

import hashlib
import http.client
import netrc
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from lab._errors import BrokenError, PreflightError
from lab.imaging.job import MORE_ROOM
from lab.imaging.patience import Answer, Http, Https, within
from lab.imaging.source import rewritten

_STALL_SECONDS = 60.0
"""Without a byte for so long the connection counts as broken."""
_TRIES = 5
"""Connections that may break one after the other without bringing a byte."""
_WINDOW_SECONDS = 300.0
_FLOOR = 4096
"""Bytes a second, over each window: a server that drips would keep a download for years."""
_LARGEST = 64 << 30
"""Bytes of a file whose size nobody says; installation media have 8 GiB at most."""
_CHUNK = 1 << 20
_TELL_SECONDS = 5.0
_MIB = 1 << 20
_SMALL = 1 << 22
"""Largest list of digests that is read; Ubuntu's has 4 KiB."""
_PARTIAL_CONTENT = 206
_BAD_RANGE = 416
_BUSY = frozenset({429, 503})
"""What a server answers that will have time later; it may say when (RFC 9110, 10.2.3)."""
_PATIENCE_SECONDS = 60.0
"""Longest pause before a busy server is asked again."""
_LOCAL_FILE = (
    "look at 'mirrors' and 'proxies' of the inventory, or name a local file there: "
    '[images.NAME] path = "..."'
)
_OWN_DIGEST = "if you trust it, write its sha256 into the inventory: [images.NAME] sha256 = ..."


@dataclass(frozen=True, slots=True)
class Web:
    """How addresses are reached: the inventory's mirrors and proxies."""

    mirrors: Mapping[str, str]
    proxies: Mapping[str, str]
    """Empty for what the environment says."""
    instead: str = _LOCAL_FILE
    """What to try when an address does not answer."""
    trusting: str = _OWN_DIGEST
    """What to try when the content is another one."""

    def open(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Ask for an address, again if it is busy; raises what urllib raises.

        All of the answer must come within a minute, unless it may take its time.
        """
        tries = 0
        while True:
            try:
                return self._opened(url, headers)
            except urllib.error.HTTPError as error:
                tries += 1
                if error.code not in _BUSY or tries == _TRIES:
                    raise
                error.close()
                time.sleep(_pause(error.headers.get("Retry-After"), tries))

    def _opened(self, url: str, headers: Mapping[str, str]) -> Answer:
        asked = rewritten(url, self.mirrors)
        request = urllib.request.Request(asked, headers={**_account(asked), **headers})  # noqa: S310  http or https: the schema and the inventory allow nothing else
        ways = (_Redirects(), Http(), Https(), *self._handlers(asked))
        opener = urllib.request.build_opener(*ways)
        try:
            with within(_STALL_SECONDS):
                opened: Answer = opener.open(request, timeout=_STALL_SECONDS)
        except ValueError as error:  # of a redirect
            raise urllib.error.URLError(f"it leads to what is no address ({error})") from error
        return opened

    def text(self, url: str, doing: str) -> str:
        """A small text file.

        Raises
        ------
        PreflightError
            When it cannot be had.

        """
        return self.small(url, doing)[0].decode("utf-8", errors="replace")

    def small(self, url: str, doing: str) -> tuple[bytes, http.client.HTTPMessage]:
        """A small file, whole, and what its server says of it. Raises as :meth:`text`."""
        try:
            with self.open(url, {}) as answer:
                content = answer.read(_SMALL)
                if answer.length:  # Python takes a part for the whole where it is told how much
                    raise http.client.IncompleteRead(content, answer.length)
                return content, answer.headers
        except (OSError, http.client.HTTPException) as error:
            raise self.refused(url, doing, error) from error

    def refused(self, url: str, doing: str, error: Exception) -> PreflightError:
        """The error for an address that did not answer, or not with what was asked."""
        asked = rewritten(url, self.mirrors)
        through = f" (for {url})" if asked != url else ""
        if isinstance(error, urllib.error.HTTPError):
            said = f"{error.code} {error.reason}"
            error.close()
        else:
            said = str(error.reason if isinstance(error, urllib.error.URLError) else error)
        return PreflightError(
            doing,
            f"{asked}{through}: {said or type(error).__name__}",
            self.instead,
        )

    def _handlers(self, asked: str) -> tuple[Any, ...]:
        if not self.proxies:
            return ()
        without = self.proxies.get("no_proxy", "")
        host = urlsplit(asked).netloc.rpartition("@")[2]
        bypassed = urllib.request.proxy_bypass_environment(host, {"no": without})  # type: ignore[attr-defined]
        used = {name: url for name, url in self.proxies.items() if name in {"http", "https"}}
        return (urllib.request.ProxyHandler({} if bypassed else used),)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect; an account or a token is for the host that it was meant for alone."""

    def redirect_request(  # noqa: PLR0913, PLR0917  as urllib calls it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _place(newurl) != _place(req.full_url):
            following.remove_header("Authorization")
        return following


def _place(url: str) -> tuple[str, str]:
    return urlsplit(url)[:2]


def _pause(retry_after: str | None, tries: int) -> float:
    """Seconds until a busy server is asked again: its own word, or twice as long each time."""
    said = (retry_after or "").strip()
    return min(float(said) if said.isdecimal() else 2.0**tries, _PATIENCE_SECONDS)


def _account(url: str) -> dict[str, str]:
    """The header for a host that the user's ``~/.netrc`` has a password for."""
    try:
        found = netrc.netrc().authenticators(urlsplit(url).hostname or "")
    except (OSError, netrc.NetrcParseError):
        return {}
    if found is None:
        return {}
    from base64 import b64encode  # noqa: PLC0415  few hosts ask for a password

    return {"Authorization": "Basic " + b64encode(f"{found[0]}:{found[2]}".encode()).decode()}


@dataclass
class _Pace:
    """What has come since when, over all connections of one download."""

    doing: str
    there: int
    since: float = field(default_factory=time.monotonic)

    def keep(self, got: int) -> None:
        """Go on with so many bytes. BrokenError where too few have come in a window's time."""
        now = time.monotonic()
        seconds, came = now - self.since, got - self.there
        if came >= 0 and seconds < _WINDOW_SECONDS:
            return
        if 0 <= came < _FLOOR * seconds:
            raise BrokenError(
                self.doing,
                f"it drips: {came:,} bytes in {seconds:.0f} s; {got:,} bytes are there",
                "do the same again: it goes on from there; 'mirrors' of the inventory name "
                "another server",
            )
        self.there, self.since = got, now  # a window is over, or all of it comes anew


def fetch(  # noqa: PLR0913, PLR0917  what is had from where, and what it must be
    web: Web,
    url: str,
    target: Path,
    digest: str,
    tell: Callable[[str], None],
    size: int | None = None,
) -> None:
    """Download a file, whole and checked, going on with what an earlier try has left.

    Parameters
    ----------
    target
        Where it goes; its part is beside it, with ``.part`` at its end.
    digest
        ``sha256:`` or ``sha512:`` and hex.
    size
        Bytes that it must have; None where only its server says that.

    Raises
    ------
    PreflightError
        When the address does not answer, the disk is full, or the content is another one or
        larger: what was expected and what came. The part is removed then.
    BrokenError
        When the connection breaks again and again, or what comes is next to nothing; the part
        stays, and the next try goes on.

    """
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    resumed = part.exists() and part.stat().st_size > 0
    _receive(web, url, part, tell, size)
    found = hashed(part, digest.partition(":")[0])
    if found != digest and resumed:
        tell("what was there of it was of something else; downloading all of it anew")
        part.unlink()
        _receive(web, url, part, tell, size)
        found = hashed(part, digest.partition(":")[0])
    if found != digest:
        part.unlink()
        raise mismatch(f"downloading {url}", digest, found, web.trusting)
    part.replace(target)


def mismatch(doing: str, expected: str, actual: str, cure: str = _OWN_DIGEST) -> PreflightError:
    """The error for content that is not what it must be."""
    return PreflightError(
        doing,
        f"it is not what it must be: expected {expected}, and it is {actual}",
        cure,
    )


def hashed(path: Path, algorithm: str) -> str:
    """``sha256:`` and hex of a file's content."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _receive(web: Web, url: str, part: Path, tell: Callable[[str], None], size: int | None) -> None:
    """Fill the part to its end, over as many connections as it takes."""
    doing = f"downloading {url}"
    tries = 0
    most = part.stat().st_size if part.exists() else 0
    pace = _Pace(doing, most)
    while True:
        try:
            if _connection(web, url, part, tell, size, pace):
                return
            said = "the connection broke off"
        except urllib.error.HTTPError as error:
            raise web.refused(url, doing, error) from error
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            if not part.exists():
                raise web.refused(url, doing, error) from error
            said = str(error) or type(error).__name__
        after = part.stat().st_size if part.exists() else 0
        tries = 0 if after > most else tries + 1
        most = max(most, after)
        if tries == _TRIES:
            raise BrokenError(
                doing,
                f"{said}, {_TRIES} times without a byte more; {after:,} bytes are there",
                "do the same again: it goes on from there",
            )
        time.sleep(min(tries, 1))


def _connection(  # noqa: PLR0913, PLR0917  one of several that fill a part
    web: Web, url: str, part: Path, tell: Callable[[str], None], size: int | None, pace: _Pace
) -> bool:
    """One connection's worth; whether the part is whole now."""
    there = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={there}-"} if there else {}
    try:
        answer = web.open(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != _BAD_RANGE or not there:
            raise
        error.close()
        whole = error.headers.get("Content-Range", "").rpartition("/")[2] == str(there)
        if not whole:
            part.unlink()
        return whole
    with answer:
        answer.take_time()
        goes_on = answer.status == _PARTIAL_CONTENT and _starts_at(answer, there)
        there = there if goes_on else 0
        total = there + answer.length if answer.length is not None else None
        limit = _LARGEST if size is None else size
        if total is None or total <= limit:
            _room(part, (total or 0) - there)
            with part.open("ab" if goes_on else "wb") as out:
                for got in _copied(answer, out, there, total, tell):
                    pace.keep(got)
                    there = got
                    if got > limit:
                        break
    if max(there, total or 0) > limit:
        part.unlink(missing_ok=True)
        raise PreflightError(
            pace.doing,
            f"it has {max(there, total or 0):,} bytes or more, and must have {limit:,} at most",
            web.trusting,
        )
    return total is None or there == total


def _starts_at(answer: http.client.HTTPResponse, there: int) -> bool:
    return answer.headers.get("Content-Range", "").startswith(f"bytes {there}-")


def _copied(
    answer: http.client.HTTPResponse,
    out: IO[bytes],
    got: int,
    total: int | None,
    tell: Callable[[str], None],
) -> Iterator[int]:
    """Copy the answer; after each piece how much is there."""
    told = time.monotonic()
    while data := answer.read1(_CHUNK):
        out.write(data)
        got += len(data)
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            of = f" of {total / _MIB:.0f}" if total else ""
            tell(f"downloading, {got / _MIB:.0f}{of} MiB")
        yield got


def _room(part: Path, more: int) -> None:
    status = os.statvfs(part.parent)
    free = status.f_bavail * status.f_frsize
    if more > free:
        raise PreflightError(
            f"downloading to '{part.parent}'",
            f"{more / _MIB:.0f} MiB are still to come, and {free / _MIB:.0f} MiB are free",
            MORE_ROOM,
        )
