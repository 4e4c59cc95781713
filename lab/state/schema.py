"""The tables, version by version, and how a state file gets them."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import StateError

FILE = "state.db"
SETUP_SECONDS = 10.0
"""How long to wait for another process that is just making the tables (takes milliseconds)."""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process's transaction (ours take milliseconds)."""

MIGRATIONS = (
    """
    CREATE TABLE labs (
        name TEXT PRIMARY KEY,
        scenario TEXT NOT NULL,
        scenario_text TEXT NOT NULL,
        scenario_path TEXT NOT NULL,
        provider TEXT NOT NULL,
        token TEXT NOT NULL UNIQUE,
        status TEXT NOT NULL CHECK
            (status IN ('starting', 'up', 'broken', 'interrupted', 'going', 'down')),
        created REAL NOT NULL,
        updated REAL NOT NULL,
        plan_digest TEXT NOT NULL,
        options TEXT NOT NULL,
        detail TEXT NOT NULL
    );
    CREATE TABLE steps (
        lab TEXT NOT NULL REFERENCES labs (name) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('intended', 'done')),
        at REAL NOT NULL,
        PRIMARY KEY (lab, name)
    ) WITHOUT ROWID;
    CREATE TABLE resources (
        lab TEXT NOT NULL REFERENCES labs (name) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('intended', 'made', 'gone')),
        PRIMARY KEY (lab, kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        lab TEXT NOT NULL,
        token TEXT NOT NULL,
        scenario TEXT NOT NULL,
        provider TEXT NOT NULL,
        started TEXT NOT NULL,
        seconds REAL NOT NULL,
        green INTEGER NOT NULL,
        counts TEXT NOT NULL
    );
    CREATE INDEX runs_of_lab ON runs (lab, id);
    CREATE TABLE cells (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        family TEXT NOT NULL,
        verdict TEXT NOT NULL,
        latency REAL,
        detail TEXT NOT NULL,
        PRIMARY KEY (run, id)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE faults (
        lab TEXT NOT NULL REFERENCES labs (name) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        token TEXT NOT NULL,
        name TEXT NOT NULL,
        node TEXT NOT NULL,
        peer TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('intended', 'done')),
        at REAL NOT NULL,
        undo TEXT NOT NULL,
        PRIMARY KEY (lab, number)
    ) WITHOUT ROWID;
    """,
    # What takes a fault out is worked out from its name and place: no command is kept.
    """
    CREATE TABLE faults_of_labs (
        lab TEXT NOT NULL REFERENCES labs (name) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        token TEXT NOT NULL,
        name TEXT NOT NULL,
        node TEXT NOT NULL,
        peer TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('intended', 'done')),
        at REAL NOT NULL,
        observed TEXT NOT NULL,
        PRIMARY KEY (lab, number)
    ) WITHOUT ROWID;
    INSERT INTO faults_of_labs
        SELECT lab, number, token, name, node, peer, state, at, '' FROM faults;
    DROP TABLE faults;
    ALTER TABLE faults_of_labs RENAME TO faults;
    """,
)
"""Script number N takes a state file from version N to version N + 1."""
VERSION = len(MIGRATIONS)


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """A connection to the state file, which is made with mode 0600 if it is not there.

    Raises
    ------
    sqlite3.DatabaseError, OSError
        As SQLite and the file system say; the caller puts them into words.

    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    # In WAL mode NORMAL loses nothing to a killed process, only to a loss of power, and a lab
    # of namespaces does not outlive that either.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _make_private(path: Path) -> None:
    """Make the file with mode 0600, unless it is there.

    One that is there is never opened here: closing any descriptor of it would drop the locks
    of every connection that this process has, and another process would then take the log of
    changes away from under them (SQLite, How To Corrupt An SQLite Database File, 2.2).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path)) from None
        return
    os.close(descriptor)


def ensure(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the state file to this version's tables.

    Raises
    ------
    StateError
        When the file is from a newer version, or another process does not get done with this.

    """
    found = version(connection)
    if found > VERSION:
        raise StateError(
            f"opening the state file '{path}'",
            f"it has version {found}, and this lab knows versions up to {VERSION}",
            "upgrade this lab to the one that wrote it, or point HYBRIDLAB_STATE at another "
            "directory",
        )
    if found < VERSION:
        _alone(path.with_name("setup.lock"), lambda: _migrate(connection))


def version(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 for a new file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    for number in range(version(connection), VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1}; COMMIT;"
        )


def _alone(path: Path, work: Callable[[], None]) -> None:
    """Do the work while no other process does: the change to WAL does not wait by itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        Deadline(SETUP_SECONDS).wait(
            "waiting for another process to make the state file's tables",
            lambda: _locked(descriptor),
            hint=f"see who with 'fuser -v {path}'",
        )
        work()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
