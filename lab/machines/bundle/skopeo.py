"""Reads container registries through skopeo."""

from __future__ import annotations

import json
import netrc
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.machines.images.download import Web, rewrite_url
from lab.shells import programs
from lab.shells.programs import MORE_ROOM

_TRIES = 4
_SECONDS = 300.0
"""Seconds for a document; layers get more time."""
_FLOOR = 16 << 10
"""Lowest average rate of a layer download, in bytes per second."""
_LONGEST_SECONDS = 7 * 86400.0
_OTHER_FILES = 64 << 20
"""Bytes; larger than any of skopeo's own files, of which the digest cache is the largest."""
_FULL = "no space left on device"
_SHOWN = 1000
"""Characters kept of skopeo's message, which may quote the registry's answer."""
_FATAL = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Repository:
    """The images of one name in a registry."""

    action: str
    name: str
    """The name without a tag: ``docker://registry.k8s.io/pause``."""
    layout: Path
    """The OCI layout that layers are copied into; its path has no colon."""
    web: Web
    account: tuple[str, ...] = ()
    """``--authfile`` with its argument, or empty."""
    verified: bool = True
    """False for a registry without TLS."""

    def document(self, reference: str, *options: str) -> bytes:
        """A manifest or an index, unchanged; with ``--config``, an image's configuration.

        ``reference``: ``:TAG`` or ``@sha256:...``.

        Raises PreflightError when it cannot be fetched.
        """
        how = ("--raw", f"--retry-times={_TRIES}", *self.account, *self._tls("--tls-verify"))
        with programs.unnamed_file() as output:
            words = (*how, *options, f"{self.name}{reference}")
            self._run("inspect", words, _SECONDS, _OTHER_FILES, output)
            return output.read_bytes()

    def copy_layers(self, reference: str, sizes: Sequence[int]) -> None:
        """Copy an image's layers into the layout; skopeo skips blobs that exist.

        ``sizes``: bytes of each layer, from the manifest.

        Raises BrokenError when the download fails (complete layers stay); PreflightError when the
        disk is full, or the registry sends more than the largest layer.
        """
        how = (f"--retry-times={_TRIES}", *self.account, *self._tls("--src-tls-verify"))
        as_they_are = "--dest-oci-accept-uncompressed-layers"
        ends = (f"{self.name}{reference}", f"oci:{self.layout}:image")
        seconds = min(_SECONDS + sum(sizes) / _FLOOR, _LONGEST_SECONDS)
        limit = max(sizes) + _OTHER_FILES
        try:
            self._run("copy", (*how, as_they_are, *ends), seconds, limit)
        except programs.FileLimitError as error:
            raise PreflightError(
                self.action,
                f"its registry sends a layer of more than {limit:,} bytes, and the largest one in "
                f"its manifest has {max(sizes):,}",
                self.web.trusting,
            ) from error
        finally:
            for unfinished in self.layout.glob("oci-put-blob*"):
                unfinished.unlink(missing_ok=True)

    def _tls(self, option: str) -> tuple[str, ...]:
        return () if self.verified else (f"{option}=false",)

    def _run(
        self,
        verb: str,
        words: tuple[str, ...],
        seconds: float,
        file_limit: int,
        output: Path | None = None,
    ) -> None:
        programs.need(self.action, "skopeo", "setpriv", "prlimit")
        messages: list[str] = []

        def on_line(line: str) -> None:
            if match := _FATAL.search(line):
                messages.append(re.sub(r"\\(.)", r"\1", match[1]))

        try:
            programs.run(
                self.action,
                ("skopeo", "--insecure-policy", f"--tmpdir={self.layout}", verb, *words),
                Deadline(seconds),
                on_line=on_line,
                environment=self.web.environment(),
                redirection=programs.Redirection(output=output),
                file_limit=file_limit,
            )
        except (DeadlineError, programs.FileLimitError):
            raise
        except BrokenError as error:
            happened = messages[-1] if messages else error.happened
            if _FULL in happened:
                raise PreflightError(self.action, "the disk is full", MORE_ROOM) from error
            kind = BrokenError if verb == "copy" else PreflightError
            raise kind(self.action, happened[:_SHOWN], self.web.instead) from error


@contextmanager
def repository(web: Web, url: str, action: str, into: Path) -> Iterator[Repository]:
    """A repository of a registry, through mirrors and proxies, with the account of ``~/.netrc``.

    ``url``: ``https://registry.k8s.io/v2/pause/``, the address that mirrors replace. ``into``: the
    OCI layout that layers are copied into.

    Raises PreflightError when its mirror has a path prefix, which registries do not support.
    """
    address = urlsplit(rewrite_url(url, web.mirrors))
    if not address.path.startswith("/v2/"):
        raise PreflightError(
            action,
            f"its mirror is {address.geturl()}, but a registry has '/v2/' at its root",
            f'name a registry: [mirrors] "https://{urlsplit(url).netloc}/v2/" = '
            f'"{address.scheme}://{address.netloc}/v2/..."',
        )
    with ExitStack() as opened:
        layout = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, layout)
        account: tuple[str, ...] = ()
        if content := _account(address.hostname or "", address.netloc):
            file = opened.enter_context(programs.unnamed_file())
            file.write_text(content)
            account = (f"--authfile={file}",)
        yield Repository(
            action,
            f"docker://{address.netloc}/{address.path.removeprefix('/v2/').strip('/')}",
            Path(f"/proc/{os.getpid()}/fd/{layout}"),
            web,
            account,
            address.scheme == "https",
        )


def _account(host: str, netloc: str) -> str:
    """The account for a registry in ``~/.netrc``, as skopeo reads it; empty without one."""
    try:
        login = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    if login is None:
        return ""
    pair = b64encode(f"{login[0]}:{login[2]}".encode()).decode()
    return json.dumps({"auths": {netloc: {"auth": pair}}})
