"""The evidence archive: what was wanted, what was done, what was found, and what is there now."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import platform
import queue
import re
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from lab._deadline import Deadline
from lab._errors import LabError, UsageError
from lab.explain.question import known
from lab.facts.signatures import InLog
from lab.inventory import loader
from lab.lifecycle.compilation import EvidenceSubject
from lab.lifecycle.session import OpenLab
from lab.plan.canonical import plain
from lab.providers.provider import SLOW_EVIDENCE_SECONDS, Evidence, LabHandle
from lab.state.directory import make_private
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import PRIVATE, open_output, read_private
from lab.state.lock import EVIDENCE, RUNS
from lab.state.stamps import in_order, stamp

PIECE_BYTES = 16 << 20
"""What is longer is cut, and its end kept: that is where a log says what went wrong."""
_ODD = re.compile(r"[^A-Za-z0-9._@+=,:-]")


def member_name(path: str) -> str:
    """The path as it stands in the archive: relative, without ``..``, of harmless characters."""
    parts = [_ODD.sub("_", part) for part in path.split("/") if part not in {"", ".", ".."}]
    return "/".join(parts) or "unnamed"


def shortened(content: bytes) -> bytes:
    """The content, or the end of it below a line that says how much is missing."""
    missing = len(content) - PIECE_BYTES
    if missing <= 0:
        return content
    return b"[the first %d bytes are left out]\n" % missing + content[missing:]


def write_archive(  # noqa: PLR0913, PLR0917  what, from what, and where else
    path: Path,
    top: str,
    pieces: Iterable[Evidence],
    clean: Callable[[bytes], bytes],
    moment: float,
    elsewhere: str = ELSEWHERE,
) -> None:
    """Write every piece below the directory ``top`` of a new archive.

    ``path``: the file; it has mode 0600. ``top``: name of the directory that unpacking makes.
    ``pieces``: in the order in which they are written; of two with one path the second is numbered.
    ``clean``: what every content goes through before it is written. ``moment``: seconds since 1970:
    when all members were changed last. ``elsewhere``: what else can be tried when it cannot be
    written; see ``guarded_files``.

    Raises UsageError when there is a device, a pipe or the like at that path. Raises StateError
    when it cannot be written; there is no file then.
    """
    doing = f"writing '{path}'"
    with guarded_files(doing, elsewhere):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(doing, "it is not a regular file", "name a regular file")
    with (
        guarded_files(doing, elsewhere),
        open_output(path, doing) as draft,
        gzip.GzipFile(fileobj=draft, mode="wb", compresslevel=6, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        names: set[str] = set()
        for piece in pieces:
            name = _unused(member_name(piece.path), names)
            _add(archive, f"{top}/{name}", shortened(clean(piece.content)), moment)


def _unused(name: str, names: set[str]) -> str:
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name}.{number}"
    names.add(free)
    return free


def _add(archive: tarfile.TarFile, name: str, content: bytes, moment: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), PRIVATE, int(moment)
    archive.addfile(member, io.BytesIO(content))


SLACK_SECONDS = 2.0
"""How much later than promised a piece may come."""
_LOOK_SECONDS = 0.1
"""How often one whose piece nobody takes looks whether anybody still wants it."""


class _TimeBoxed:
    """Pieces on their way from the thread that makes them."""

    def __init__(self, start: Callable[[], Iterable[Evidence]]) -> None:
        self._start = start
        self._made: queue.Queue[Evidence | None] = queue.Queue(maxsize=1)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evidence", daemon=True)

    def pieces(self, source: str, deadline: Deadline) -> Iterator[Evidence]:
        self._thread.start()
        try:
            while piece := self._next(source, deadline):
                yield piece
        finally:
            self._left.set()
            self._thread.join(2 * _LOOK_SECONDS)

    def _next(self, source: str, deadline: Deadline) -> Evidence | None:
        if self._left.is_set():
            return None
        patience = min(deadline.left(), SLOW_EVIDENCE_SECONDS + SLACK_SECONDS)
        try:
            return self._made.get(timeout=patience)
        except queue.Empty:
            self._left.set()
        if deadline.left() == 0.0:
            why = f"the time limit of all of it was reached: {deadline.seconds:g} s"
        else:
            why = f"'{source}' made no further piece within {patience:g} s"
        return Evidence("stopped.txt", f"{why}\n".encode())

    def _work(self) -> None:
        try:
            for piece in self._start():
                self._offer(piece)
                if self._left.is_set():
                    return
        except Exception as error:  # noqa: BLE001  it promised none; whatever it is, it is recorded
            self._offer(Evidence("stopped.txt", f"{type(error).__name__}: {error}\n".encode()))
        self._offer(None)

    def _offer(self, piece: Evidence | None) -> None:
        while not self._left.is_set():
            try:
                self._made.put(piece, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return


def time_boxed(
    source: str, start: Callable[[], Iterable[Evidence]], deadline: Deadline
) -> Iterator[Evidence]:
    """Every piece that comes in time, and one more that says why there are no others.

    The pieces are made on a thread of their own. One that is stuck is left behind; it ends with
    this process.

    ``source``: who makes them, for messages: ``"libvirt"``. ``start``: begins to make them.
    ``deadline``: for all of them. Each has ``SLOW_EVIDENCE_SECONDS`` besides.
    """
    return _TimeBoxed(start).pieces(source, deadline)


GONE = b"[scrubbed]"
SHORTEST = 4
"""Bytes. A secret that is shorter is no secret, and would tear holes into every text."""
_LINE = 16
"""From this length on a line of a secret of several lines is a secret by itself."""
_BINARY = 1024
"""So much of a file is looked at for a zero byte, by which text is told from anything else."""

_WORDS = rb"pass(?:word|wd|phrase)|secret|token|api[-_]?key|certificate[-_]key|credentials?"
_ARMOUR = (
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
    rb"(?:\s|\\[nr]|(?:Proc-Type|DEK-Info):[^\n\\]*)*"
    rb"(?:\s|\\[nr]|[a-z0-9+/=])*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?"
)
"""A private key, torn or whole, its line ends real or written as a backslash and n."""
_VALUE = (
    rb"((?:" + _WORDS + rb")(?:[-_](?:hash|value|data))?[\"']?(?: ?[:=] ?|(?<=--token) ))"
    rb"(?:(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n])+(?P=quote)|[^\s\"',;&<>{}\[\]]+)"
)
"""``password: x``, ``"token": "x"``, ``ADMIN_PASSWORD=x``, ``passwd='x'``, ``--token x``."""
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), put)
    for pattern, put in (
        (_ARMOUR, GONE),
        (_VALUE, rb"\1\g<quote>" + GONE + rb"\g<quote>"),
        # the key in a kubeconfig, base64 of its armour
        (rb"(client-key-data[\"']?: *[\"']?)[a-z0-9+/=]+", rb"\1" + GONE),
        (rb"(authorization[\"']?: *[\"']?(?:bearer|basic) +)[^\s\"']+", rb"\1" + GONE),
        # user:password@ of an address
        (rb"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", rb"\1" + GONE),
        # $6$salt$hash as in /etc/shadow
        (rb"\$(?:1|2[abxy]?|5|6|7|y|gy)\$[./a-z0-9=,$]{12,}", GONE),
        # a kubeadm bootstrap token
        (rb"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", GONE),
    )
)


def scrub(content: bytes, secrets: Iterable[bytes] = ()) -> bytes:
    """The content without those secrets, and in text without what looks like one.

    A secret is also found as JSON, XML, addresses and base64 write it. What looks like one:
    private keys in armour, values of keys called ``password``, ``token`` and the like,
    passwords in addresses, password hashes, kubeadm's tokens.
    """
    for secret in _forms(secrets):
        content = content.replace(secret, GONE)
    if b"\0" in content[:_BINARY]:
        return content
    for pattern, put in _PATTERNS:
        content = pattern.sub(put, content)
    return content


def secret_values(file: bytes) -> Iterator[bytes]:
    """What must not be seen of a file that holds a secret: all of it, and each long line."""
    whole = file.strip()
    yield whole
    for line in whole.splitlines():
        if len(line.strip()) >= _LINE and not line.startswith(b"-----"):
            yield line.strip()


def holds_private_key(file: bytes) -> bool:
    """Check whether a private key in armour is in it."""
    return b"PRIVATE KEY-----" in file


def _forms(secrets: Iterable[bytes]) -> list[bytes]:
    """Every way to write the secrets, the longest first, so that no part spoils a whole."""
    found: set[bytes] = set()
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        found.update((secret, base64.b64encode(secret)))
        text = secret.decode("utf-8", errors="surrogateescape")
        if secret.isascii():
            quoted = (json.dumps(text)[1:-1], escape(text), quote(text), quote(text, safe=""))
            found.update(form.encode() for form in quoted)
    return sorted(found, key=lambda form: (-len(form), form))


SECONDS = 60.0
"""For all of an archive."""
CLUSTER_SECONDS = 360.0
"""The same where a lab has a cluster: its nodes' logs alone take minutes if they are emulated."""
KEPT = 5
"""Archives in a lab's own directory; older ones make room."""
KNOWN = "known.txt"
"""What is known of the lines in the logs: cause, hint and line, each with its place."""
SECRETS = "secrets"
"""A directory of this name in a lab's directory holds nothing but secrets, one a file."""
_USERS = "or name another file with --output"
"""Where else an archive can go that the user asked for."""
_OF_A_RUN = ("result.json", "junit.xml", "report.html")
_SECRET_BYTES = 1 << 20
"""A larger file is no secret."""


def gather(opened: OpenLab, path: Path) -> Path:
    """Write the evidence of a lab into that archive, or a new one in that directory; its path.

    Takes at most a minute, with a cluster at most six. What cannot be had is a piece that says why.

    Raises UsageError when there is something at that path that is no file. Raises StateError when
    the archive cannot be written.
    """
    subject = subject_of(opened)
    path = path / archive_name(subject, path) if path.is_dir() else path
    write(subject, path, _USERS)
    return path


def subject_of(opened: OpenLab) -> EvidenceSubject:
    """The lab that was opened."""
    row = opened.store.lab(opened.name)
    assert row is not None, "it was opened by its row"
    return EvidenceSubject(
        opened.handle, row, opened.plan, opened.intent, opened.provider, opened.store
    )


def archive_name(subject: EvidenceSubject, directory: Path) -> str:
    """``overlay-evidence-20261121-093911.tar.gz``, in UTC; behind those in the directory."""
    begin = f"{subject.handle.name}-evidence-"
    others = (path.name.removeprefix(begin) for path in directory.glob(f"{begin}*"))
    return f"{begin}{in_order(stamp(subject.store.now()), others)}.tar.gz"


def write(subject: EvidenceSubject, path: Path, elsewhere: str = ELSEWHERE) -> None:
    """Write the archive to that path; see :func:`gather`, and ``guarded_files`` of the last."""
    hidden = tuple(secrets_of(subject.handle))
    write_archive(
        path,
        f"{subject.handle.name}-evidence",
        _pieces(subject, Deadline(CLUSTER_SECONDS if subject.intent.kubernetes else SECONDS)),
        lambda content: scrub(content, hidden),
        subject.store.now(),
        elsewhere,
    )


def keep(subject: EvidenceSubject) -> Path:
    """Write an archive into the lab's own directory, which keeps the last few of them.

    Raises StateError when it cannot be written.
    """
    directory = subject.handle.directory / EVIDENCE
    make_private(directory)
    path = directory / archive_name(subject, directory)
    write(subject, path)
    with guarded_files(f"removing old archives from '{directory}'"):
        kept = sorted(directory.glob("*.tar.gz"))
        for old in kept[:-KEPT]:
            old.unlink()
    return path


def keep_because(subject: EvidenceSubject, trouble: str) -> str:
    """Keep evidence of what went wrong; says where it is, or why it is not. Never raises."""
    try:
        newest = subject.store.lab(subject.handle.name) or subject.row
        path = keep(replace(subject, row=newest, trouble=trouble))
    except KeyboardInterrupt:
        return "no evidence was gathered: stopped"
    except Exception as error:  # noqa: BLE001  whatever it is, it must not hide the trouble itself
        return f"no evidence could be gathered: {error}"
    return f"evidence is in '{path}'"


def secrets_of(lab: LabHandle) -> Iterator[bytes]:
    """Whatever may not be seen by anyone: the lab's token, keys and secrets, the inventory's."""
    yield lab.token.encode()
    yield from _of_inventory()
    for path in _files_of(lab.directory):
        try:
            content = read_private(path) if path.stat().st_size <= _SECRET_BYTES else b""
        except OSError:  # what we may not read is in no piece either
            continue
        if SECRETS in path.relative_to(lab.directory).parts[:-1] or holds_private_key(content):
            yield from secret_values(content)


def _files_of(lab: Path) -> Iterator[Path]:
    """All in a lab's directory but runs and evidence, while its machines write and remove files."""
    for directory, inner, names in os.walk(lab):
        if Path(directory) == lab:
            inner[:] = {*inner} - {RUNS, EVIDENCE}
        yield from (Path(directory, name) for name in names)


def _of_inventory() -> Iterator[bytes]:
    try:
        inventory = loader.current(os.environ, Path.cwd())
    except (LabError, OSError):  # an inventory that cannot be read has told nobody a secret
        return
    for secret in inventory.secrets.values() if inventory else ():
        if secret.environment:
            yield os.environ.get(secret.environment, "").encode(errors="surrogateescape")
        if secret.file:
            with suppress(OSError):  # the same
                yield from secret_values(secret.file.read_bytes())


def _pieces(subject: EvidenceSubject, deadline: Deadline) -> Iterator[Evidence]:
    for path, make in _own(subject).items():
        yield _piece(path, make)
    yield from _last_run(subject)
    provider = subject.provider
    logged: list[InLog] = []
    for made in time_boxed(
        provider.name, lambda: provider.evidence(subject.handle, subject.intent), deadline
    ):
        piece = Evidence(f"{provider.name}/{made.path}", made.content)
        yield piece
        logged += known((piece,))
    text = "".join(str(one) for one in logged) or "no known line in the logs\n"
    yield Evidence(KNOWN, text.encode())


def _own(subject: EvidenceSubject) -> Mapping[str, Callable[[], str]]:
    return {
        "trouble.txt": lambda: f"{subject.trouble or 'none: it was asked for'}\n",
        "versions.json": lambda: _json(_versions()),
        "scenario.yaml": lambda: subject.row.scenario_text,
        "plan.json": lambda: _json(plain(subject.plan)),
        "intent.json": lambda: _json(plain(subject.intent)),
        "journal.json": lambda: _json(_journal(subject)),
    }


def _piece(path: str, make: Callable[[], str]) -> Evidence:
    try:
        return Evidence(path, make().encode(errors="replace"))
    except Exception as error:  # noqa: BLE001  what keeps one piece away must not take the others
        return Evidence(f"{path}.missing", f"{type(error).__name__}: {error}\n".encode())


def _journal(subject: EvidenceSubject) -> object:
    name, store = subject.handle.name, subject.store
    return {
        "lab": plain(replace(subject.row, scenario_text="", token="")),
        "steps": plain(store.steps(name)),
        "resources": plain(store.resources(name)),
        "runs": plain(store.runs(name)),
    }


def _last_run(subject: EvidenceSubject) -> Iterator[Evidence]:
    runs = subject.store.runs(subject.handle.name)
    if not runs:
        return
    directory = subject.store.run_directory(subject.handle.name, runs[-1].id)
    for name in _OF_A_RUN:
        path = directory / name
        if path.exists():
            yield _piece(f"runs/{runs[-1].id}/{name}", partial(path.read_text, "utf-8", "replace"))


def _versions() -> dict[str, object]:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  slow to import

    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    packages = ("hybridlab", "libvirt-python", "paramiko", "cryptography", "pycdlib", "pytest")
    return {
        "packages": {package: of(package) for package in packages},
        "python": sys.version,
        "kernel": " ".join(os.uname()[::2]),
        "system": system,
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
