"""The evidence archive: what was wanted, what was done, what was found, and what is there now."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.signatures import InLog
from lab.inventory import loader
from lab.lifecycle.archive import write_archive
from lab.lifecycle.hurry import hurried
from lab.lifecycle.scrub import holds_private_key, scrub, secret_values
from lab.lifecycle.session import OpenLab
from lab.lifecycle.subject import Subject
from lab.matrix.explain.question import known
from lab.plan.canonical import plain
from lab.providers.provider import Evidence, LabHandle
from lab.state.directory import make_private
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.lock import EVIDENCE, RUNS
from lab.state.rows import LabRow

SECONDS = 60.0
"""For all of an archive."""
CLUSTER_SECONDS = 360.0
"""The same where a lab has a cluster: its nodes' logs alone take minutes if they are emulated."""
KEPT = 5
"""Archives in a lab's own directory; older ones make room."""
KNOWN = "known.txt"
"""What is known of the lines in the logs: cause, cure and line, each with its place."""
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

    Raises
    ------
    UsageError
        When there is something at that path that is no file.
    StateError
        When the archive cannot be written.

    """
    subject = subject_of(opened)
    path = path / archive_name(subject) if path.is_dir() else path
    write(subject, path, _USERS)
    return path


def subject_of(opened: OpenLab) -> Subject:
    """The lab that was opened."""
    row = opened.store.lab(opened.name)
    assert row is not None, "it was opened by its row"
    return Subject(opened.handle, row, opened.plan, opened.intent, opened.provider, opened.store)


def archive_name(subject: Subject) -> str:
    """``overlay-evidence-20261121-093911.tar.gz``, in UTC; never the name of another one."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(subject.store.now()))
    return f"{subject.handle.name}-evidence-{moment}.tar.gz"


def write(subject: Subject, path: Path, elsewhere: str = ELSEWHERE) -> None:
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


def keep(subject: Subject) -> Path:
    """Write an archive into the lab's own directory, which keeps the last few of them.

    Raises
    ------
    StateError
        When it cannot be written.

    """
    directory = subject.handle.directory / EVIDENCE
    make_private(directory)
    path = directory / archive_name(subject)
    write(subject, path)
    with guarded_files(f"removing old archives from '{directory}'"):
        kept = sorted(directory.glob("*.tar.gz"), key=lambda file: (file.stat().st_mtime, file))
        for old in kept[:-KEPT]:
            old.unlink()
    return path


def keep_because(subject: Subject, trouble: str) -> str:
    """Keep evidence of what went wrong; says where it is, or why it is not. Never raises."""
    try:
        path = keep(replace(subject, row=_newest(subject), trouble=trouble))
    except KeyboardInterrupt:
        return "no evidence was gathered: told to stop"
    except Exception as error:  # noqa: BLE001  whatever it is, it must not hide the trouble itself
        return f"no evidence could be gathered: {error}"
    return f"evidence is in '{path}'"


def _newest(subject: Subject) -> LabRow:
    return subject.store.lab(subject.handle.name) or subject.row


def secrets_of(lab: LabHandle) -> Iterator[bytes]:
    """Whatever may not be seen by anyone: the lab's token, keys and secrets, the inventory's."""
    yield lab.token.encode()
    yield from _of_inventory()
    for path in sorted(lab.directory.rglob("*")):
        inner = path.relative_to(lab.directory).parts
        if inner[0] in {RUNS, EVIDENCE} or not path.is_file():
            continue
        try:
            content = path.read_bytes() if path.stat().st_size <= _SECRET_BYTES else b""
        except OSError:  # what we may not read is in no piece of ours either
            continue
        if SECRETS in inner[:-1] or holds_private_key(content):
            yield from secret_values(content)


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


def _pieces(subject: Subject, deadline: Deadline) -> Iterator[Evidence]:
    for path, make in _own(subject).items():
        yield _piece(path, make)
    yield from _last_run(subject)
    provider = subject.provider
    logged: list[InLog] = []
    for made in hurried(
        provider.name, lambda: provider.evidence(subject.handle, subject.intent), deadline
    ):
        piece = Evidence(f"{provider.name}/{made.path}", made.content)
        yield piece
        logged += known((piece,))
    text = "".join(str(one) for one in logged) or "nothing in the logs is known\n"
    yield Evidence(KNOWN, text.encode())


def _own(subject: Subject) -> Mapping[str, Callable[[], str]]:
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


def _journal(subject: Subject) -> object:
    name, store = subject.handle.name, subject.store
    return {
        "lab": plain(replace(subject.row, scenario_text="", token="")),
        "steps": plain(store.steps(name)),
        "resources": plain(store.resources(name)),
        "runs": plain(store.runs(name)),
    }


def _last_run(subject: Subject) -> Iterator[Evidence]:
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

    packages = ("hybridlab", "libvirt-python", "paramiko", "cryptography", "pycdlib", "pytest")
    return {
        "packages": {package: of(package) for package in packages},
        "python": sys.version,
        "kernel": " ".join(os.uname()[::2]),
        "system": _system(),
    }


def _system() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
