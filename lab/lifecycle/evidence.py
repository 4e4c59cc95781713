"""The evidence archive: scenario, plan and journal, results, and the current state of the lab."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import platform
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from lab._deadline import Deadline
from lab._errors import LabError, UsageError, os_words
from lab.explain.known_lines import find_known_lines
from lab.facts.signatures import InLog
from lab.inventory import loader
from lab.lifecycle.open_lab import OpenLab
from lab.plan.canonical import plain
from lab.plan.plan import Plan
from lab.providers.provider import SLOW_EVIDENCE_SECONDS, Evidence, LabHandle, Provider
from lab.shells.parallel import run_jobs
from lab.state.directory import make_private
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import PRIVATE, open_output, read_private, read_regular
from lab.state.lock import EVIDENCE, RUNS
from lab.state.rows import LabRow
from lab.state.stamps import in_order, stamp
from lab.state.store import Store
from lab.topology.intent import Intent

PIECE_BYTES = 16 << 20
"""Longest piece; of a longer one only the end is kept, where a log has the error."""
_ODD = re.compile(r"[^A-Za-z0-9._@+=,:-]")


def member_name(path: str) -> str:
    """The path inside the archive: relative, without ``..``, with harmless characters only."""
    parts = [_ODD.sub("_", part) for part in path.split("/") if part not in {"", ".", ".."}]
    return "/".join(parts) or "unnamed"


def shorten(content: bytes) -> bytes:
    """The content; if too long, its end, after a line that says how much is missing."""
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

    ``path``: the file; its mode is 0600. ``top``: name of the directory that unpacking creates.
    ``pieces``: in the order of writing; a second one with the same path gets a number. ``clean``:
    applied to every content before it is written. ``moment``: seconds since 1970; modification time
    of all members. ``elsewhere``: hint if the archive cannot be written; see ``guarded_files``.

    Raises UsageError when ``path`` exists and is not a regular file. Raises StateError when the
    archive cannot be written; then no file is left.
    """
    action = f"writing '{path}'"
    with guarded_files(action, elsewhere):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(action, "it is not a regular file", "name a regular file")
    with (
        guarded_files(action, elsewhere),
        open_output(path, action) as draft,
        gzip.GzipFile(fileobj=draft, mode="wb", compresslevel=6, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        names: set[str] = set()
        for piece in pieces:
            name = _unused_name(member_name(piece.path), names)
            _add(archive, f"{top}/{name}", shorten(clean(piece.content)), moment)


def _unused_name(name: str, names: set[str]) -> str:
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
"""Allowance for a piece beyond its time limit."""


def in_time(
    source: str, start: Callable[[], Iterable[Evidence]], deadline: Deadline
) -> Iterator[Evidence]:
    """The pieces that arrive in time; if time runs out or one fails, a last one that says why.

    Each is made on a thread. A stuck thread is abandoned; it ends with this process.

    ``source``: who makes them, for messages: ``"libvirt"``. ``start``: returns the pieces.
    ``deadline``: for all of them. Each piece is also limited to ``SLOW_EVIDENCE_SECONDS``.
    """
    pieces: Iterator[Evidence] | None = None
    own = deadline

    def make() -> Evidence | None:
        nonlocal pieces
        pieces = pieces or iter(start())
        return next(pieces, None)

    def piece() -> Evidence | None:
        nonlocal own
        own = Deadline(min(deadline.left(), SLOW_EVIDENCE_SECONDS + SLACK_SECONDS))
        return run_jobs({"": {source: make}}, {}, own)[source]

    try:
        yield from iter(piece, None)
    except Exception as error:  # noqa: BLE001  any error is recorded in the archive
        why = f"{type(error).__name__}: {error}"
        if deadline.left() == 0.0:
            why = f"the time limit for all evidence was reached: {deadline.seconds:g} s"
        elif own.left() == 0.0:
            why = f"'{source}' delivered nothing more within {own.seconds:g} s"
        yield Evidence("stopped.txt", f"{why}\n".encode())


GONE = b"[scrubbed]"
SHORTEST = 4
"""Bytes. Shorter values are not treated as secrets: they would match in every text."""
_LINE = 16
"""Bytes. A line of at least this length in a multi-line secret is a secret by itself."""
_BINARY = 1024
"""Bytes at the beginning of a file; a zero byte among them means that it is not text."""

_WORDS = rb"pass(?:word|wd|phrase)|secret|token|api[-_]?key|certificate[-_]key|credentials?"
_ARMOUR = (
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"
    rb"(?:\s|\\[nr]|(?:Proc-Type|DEK-Info):[^\n\\]*)*"
    rb"(?:\s|\\[nr]|[A-Za-z0-9+/=])*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?"
)
"""A PEM private key, whole or cut off, with real line ends or ``\\n``."""
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
        # the key in a kubeconfig: base64 of PEM
        (rb"(client-key-data[\"']?: *[\"']?)[a-z0-9+/=]+", rb"\1" + GONE),
        (rb"(authorization[\"']?: *[\"']?(?:bearer|basic) +)[^\s\"']+", rb"\1" + GONE),
        # user:password@ in a URL
        (rb"(\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", rb"\1" + GONE),
        # $6$salt$hash as in /etc/shadow
        (rb"\$(?:1|2[abxy]?|5|6|7|y|gy)\$[./a-z0-9=,$]{12,}", GONE),
        # a kubeadm bootstrap token
        (rb"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", GONE),
    )
)


def scrub(content: bytes, secrets: Iterable[bytes] = ()) -> bytes:
    """The content without the given secrets and, in text, without anything that looks like one.

    Secrets are also found as encoded in JSON, XML, URLs and base64. Text looks like a secret if it
    is a PEM private key, the value of a key such as ``password`` or ``token``, a password in a URL,
    a password hash, or a kubeadm token.
    """
    return _scrub_forms(_list_forms(secrets), content)


def _scrub_forms(forms: Iterable[bytes], content: bytes) -> bytes:
    for form in forms:
        content = content.replace(form, GONE)
    if b"\0" in content[:_BINARY]:
        return content
    for pattern, put in _PATTERNS:
        content = pattern.sub(put, content)
    return content


def secret_values(file: bytes) -> Iterator[bytes]:
    """The secrets in a file that holds one: its whole content, and each long line."""
    whole = file.strip()
    yield whole
    for line in whole.splitlines():
        if len(line.strip()) >= _LINE and not line.startswith(b"-----"):
            yield line.strip()


def key_values(file: bytes) -> Iterator[bytes]:
    """The private keys in a file of any kind, and each long line of them.

    Programs that read keys have only the words around one.
    """
    for key in re.finditer(_ARMOUR, file):
        whole, *lines = secret_values(key[0])
        if lines:
            yield from (whole, *lines)


def _list_forms(secrets: Iterable[bytes]) -> list[bytes]:
    """Every encoding of the secrets, longest first: a whole is replaced before its parts."""
    forms: set[bytes] = set()
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        forms.update((secret, base64.b64encode(secret)))
        text = secret.decode("utf-8", errors="surrogateescape")
        if secret.isascii():
            quoted = (json.dumps(text)[1:-1], escape(text), quote(text), quote(text, safe=""))
            forms.update(form.encode() for form in quoted)
    return sorted(forms, key=lambda form: (-len(form), form))


SECONDS = 60.0
"""Time limit of a whole archive."""
CLUSTER_SECONDS = 360.0
"""Time limit with a cluster: the logs of emulated nodes alone take minutes."""
KEPT = 5
"""Archives kept in a lab's directory; older ones are removed."""
KNOWN = "known.txt"
"""File with the known error lines in the logs: place, line, cause and hint."""
SECRETS = "secrets"
"""A directory of this name in a lab's directory has only secrets, one per file."""
_USERS = "or name another file with --output"
"""Hint if an archive that the user requested cannot be written."""
_OF_A_RUN = ("result.json", "junit.xml", "report.html")
_SECRET_BYTES = 1 << 20
"""Larger files are not searched for secrets."""


def gather(opened: OpenLab, path: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """Write the evidence of a lab to ``path``, a file or directory; return the file.

    Takes at most a minute, with a cluster at most six. For evidence that is unavailable, a piece
    says why, and so does ``say``.

    Raises UsageError when ``path`` exists and is neither. Raises StateError when the archive cannot
    be written.
    """
    subject = subject_of(opened)
    path = path / archive_name(subject, [path]) if path.is_dir() else path
    write(subject, path, _USERS, say)
    return path


@dataclass(frozen=True, slots=True)
class EvidenceSubject:
    """Everything known about one lab, whether up, half up or broken."""

    handle: LabHandle
    row: LabRow
    plan: Plan
    intent: Intent
    provider: Provider
    store: Store
    trouble: str = ""
    """The failure that evidence is gathered for; empty if the user asked for it."""


def subject_of(opened: OpenLab) -> EvidenceSubject:
    """The opened lab as the subject of an archive."""
    row = opened.store.lab(opened.name)
    assert row is not None, "it was opened by its row"
    return EvidenceSubject(
        opened.handle, row, opened.plan, opened.intent, opened.provider, opened.store
    )


def archive_name(subject: EvidenceSubject, directories: Iterable[Path]) -> str:
    """``overlay-evidence-20261121-093911.tar.gz``, in UTC; later than those in the directories."""
    mark = "-evidence-"
    archives = (path for directory in directories for path in directory.glob(f"*{mark}*.tar.gz"))
    others = (path.name.rpartition(mark)[2] for path in archives)
    return f"{subject.handle.name}{mark}{in_order(stamp(subject.store.now()), others)}.tar.gz"


def write(
    subject: EvidenceSubject,
    path: Path,
    elsewhere: str = ELSEWHERE,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the archive to ``path``; see :func:`gather`, and :func:`write_archive`."""
    hidden = _list_forms(secrets_of(subject.handle))  # once: a lab with a cluster has hundreds
    write_archive(
        path,
        f"{subject.handle.name}-evidence",
        _name_missing(
            _gather_pieces(
                subject, Deadline(CLUSTER_SECONDS if subject.intent.kubernetes else SECONDS)
            ),
            say,
        ),
        partial(_scrub_forms, hidden),
        subject.store.now(),
        elsewhere,
    )


_MISSING = ".missing"
"""Ends the path of a piece that says why there is no such evidence."""


def _name_missing(pieces: Iterable[Evidence], say: Callable[[str], None]) -> Iterator[Evidence]:
    """The pieces; of what is missing, its path and the reason are said."""
    for piece in pieces:
        if piece.path.endswith(_MISSING):
            reason = piece.content.decode(errors="replace").strip()
            say(f"note: not in the archive: {piece.path.removesuffix(_MISSING)}: {reason}")
        yield piece


def keep(subject: EvidenceSubject) -> Path:
    """Write an archive into the lab's directory, which keeps the last ``KEPT``.

    Raises StateError when it cannot be written.
    """
    directory = subject.handle.directory / EVIDENCE
    make_private(directory)
    shelves = subject.store.directory.glob(f"labs/*/{EVIDENCE}")  # 'lab gc' counts all labs'
    path = directory / archive_name(subject, shelves)
    write(subject, path)
    with guarded_files(f"removing old archives from '{directory}'"):
        kept = sorted(directory.glob("*.tar.gz"))
        for old in kept[:-KEPT]:
            old.unlink()
    return path


def keep_because(subject: EvidenceSubject, trouble: str) -> str:
    """Keep evidence of a failure; return where it is, or why there is none. Never raises."""
    try:
        newest = subject.store.lab(subject.handle.name) or subject.row
        path = keep(replace(subject, row=newest, trouble=trouble))
    except KeyboardInterrupt:
        return "no evidence was gathered: stopped"
    except Exception as error:  # noqa: BLE001  it must not hide the original failure
        return f"no evidence could be gathered: {error}"
    return f"evidence is in '{path}'"


def secrets_of(lab: LabHandle) -> Iterator[bytes]:
    """Every secret: the lab's token, keys and secrets, and those of the inventory."""
    yield lab.token.encode()
    yield from _of_inventory()
    for path in _files_of(lab.directory):
        try:
            content = read_private(path) if _is_own(path.stat()) else b""
        except OSError:  # an unreadable file is in no piece either
            continue
        secret = SECRETS in path.relative_to(lab.directory).parts[:-1]
        yield from (secret_values if secret else key_values)(content)


def _is_own(file: os.stat_result) -> bool:
    """Whether a file may have a secret of the lab.

    One with a second name is shared with other labs: it came out of an image.
    """
    return file.st_nlink == 1 and file.st_size <= _SECRET_BYTES


def _files_of(lab: Path) -> Iterator[Path]:
    """Files in a lab's directory except runs and evidence; they may change meanwhile."""
    for directory, inner, names in os.walk(lab):
        if Path(directory) == lab:
            inner[:] = {*inner} - {RUNS, EVIDENCE}
        yield from (Path(directory, name) for name in names)


def _of_inventory() -> Iterator[bytes]:
    try:
        inventory = loader.current(os.environ, Path.cwd())
    except (LabError, OSError):  # no secret can come from an inventory that cannot be read
        return
    for secret in inventory.secrets.values() if inventory else ():
        if secret.environment:
            yield os.environ.get(secret.environment, "").encode(errors="surrogateescape")
        if secret.file:
            with suppress(OSError):  # an unreadable secret is in no piece
                yield from secret_values(read_regular(secret.file))


def _gather_pieces(subject: EvidenceSubject, deadline: Deadline) -> Iterator[Evidence]:
    for path, make in _own_pieces(subject).items():
        yield _make_piece(path, make)
    yield from _last_run(subject)
    provider = subject.provider
    logged: list[InLog] = []
    for made in in_time(
        provider.name, lambda: provider.evidence(subject.handle, subject.intent), deadline
    ):
        piece = Evidence(f"{provider.name}/{made.path}", made.content)
        yield piece
        logged += find_known_lines((piece,))
    text = "".join(str(line) for line in logged) or "no known line in the logs\n"
    yield Evidence(KNOWN, text.encode())


def _own_pieces(subject: EvidenceSubject) -> Mapping[str, Callable[[], str]]:
    return {
        "trouble.txt": lambda: f"{subject.trouble or 'none: gathered on request'}\n",
        "versions.json": lambda: _json(_collect_versions()),
        "scenario.yaml": lambda: subject.row.scenario_text,
        "plan.json": lambda: _json(plain(subject.plan)),
        "intent.json": lambda: _json(plain(subject.intent)),
        "journal.json": lambda: _json(_read_journal(subject)),
    }


def _make_piece(path: str, make: Callable[[], str]) -> Evidence:
    try:
        return Evidence(path, make().encode(errors="replace"))
    except OSError as error:
        return Evidence(f"{path}{_MISSING}", f"{os_words(error)}\n".encode())
    except Exception as error:  # noqa: BLE001  one failure must not prevent the other pieces
        return Evidence(f"{path}{_MISSING}", f"{type(error).__name__}: {error}\n".encode())


def _read_journal(subject: EvidenceSubject) -> object:
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
        if os.path.lexists(path):
            yield _make_piece(f"runs/{runs[-1].id}/{name}", partial(_text_of, path))


def _text_of(path: Path) -> str:
    return read_regular(path).decode(errors="replace")


def _collect_versions() -> dict[str, object]:
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
