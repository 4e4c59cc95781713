"""The journal: one SQLite file that records what was intended, created and found.

To survive ``kill -9``, a creation is recorded before it starts, and a removal after it is done.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab._deadline import Deadline
from lab._errors import StateError
from lab.state.directory import lab_directory, make_own
from lab.state.failure import damaged, guarded_database
from lab.state.rows import (
    DamagedRowError,
    FaultRow,
    LabRow,
    LabState,
    ResourceRow,
    Row,
    RunRow,
    StepRow,
    columns_of,
    row_of,
    values_of,
)

_LABS, _FAULTS, _RUNS = columns_of(LabRow), columns_of(FaultRow), columns_of(RunRow)


class Store:
    """The state directory and the journal in it.

    Every method raises :class:`~lab._errors.StateError` when the file cannot be read or
    written; earlier content is then unchanged. A method that changes something is one transaction,
    or part of the one that :meth:`change` holds open.

    ``directory``: the state directory; created with mode 0700 if it does not exist. ``now``: the
    wall clock: seconds since 1970. ``busy_seconds``: how long to wait for another process's
    transaction; None for :data:`BUSY_SECONDS`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        now: Callable[[], float] = time.time,
        busy_seconds: float | None = None,
    ) -> None:

        make_own(directory)
        self.directory = directory
        self.path = directory / FILE
        self.now = now
        self._deep = False
        with self._guarded("opening the journal"):
            wait = BUSY_SECONDS if busy_seconds is None else busy_seconds
            self._connection: sqlite3.Connection = connect(self.path, wait)
            try:
                ensure(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise
        # A command uses its lab's journal until it ends; Python 3.13 warns of a connection that is
        # collected open.
        weakref.finalize(self, _close_unused, self._connection).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._guarded("closing the journal"):
            self._connection.close()

    def lab_directory(self, name: str) -> Path:
        """The lab's directory. Not created here."""
        return lab_directory(self.directory, name)

    def run_directory(self, lab: str, run: str) -> Path:
        """The directory of a run's reports; it outlives the lab. Not created here."""
        return self.lab_directory(lab) / "runs" / run

    @contextmanager
    def change(self, action: str) -> Iterator[None]:
        """Make the changes in the block one transaction."""
        if self._deep:
            yield
            return
        with self._guarded(action):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._deep = True
                yield
                self._connection.execute("COMMIT")
            finally:
                self._deep = False
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    # Labs

    def lab(self, name: str) -> LabRow | None:
        """The lab of this name, even if it is down; None if there never was one."""
        rows = self._labs("WHERE name = ?", name)
        return rows[0] if rows else None

    def labs(self) -> tuple[LabRow, ...]:
        """Every lab that is not down, by name."""
        return self._labs("WHERE status <> 'down' ORDER BY name")

    def put_lab(self, row: LabRow) -> None:
        """Write the lab, replacing an earlier one of the same name."""
        values = values_of(row)
        updates = ", ".join(f"{column} = excluded.{column}" for column in _LABS.split(", ")[1:])
        self._write(
            f"recording the lab '{row.name}'",
            f"INSERT INTO labs ({_LABS}) VALUES ({', '.join('?' * len(values))}) "  # noqa: S608  only our own column names
            f"ON CONFLICT (name) DO UPDATE SET {updates}",
            [values],
        )

    def set_status(self, name: str, status: LabState, detail: str = "") -> None:
        """Write the lab's state and the current time."""
        self._write(
            f"recording that the lab '{name}' is '{status}'",
            "UPDATE labs SET status = ?, detail = ?, updated = ? WHERE name = ?",
            [(status, detail, self.now(), name)],
        )

    # Steps

    def steps(self, lab: str) -> tuple[StepRow, ...]:
        """The lab's steps, in order."""
        return self._of_lab(StepRow, "steps", lab, "position")

    def keep_steps(self, lab: str, kept: Iterable[str]) -> None:
        """Delete every step of the lab except those in ``kept``."""
        names = set(kept)
        dropped = [(lab, step.name) for step in self.steps(lab) if step.name not in names]
        self._write(
            f"forgetting steps of the lab '{lab}'",
            "DELETE FROM steps WHERE lab = ? AND name = ?",
            dropped,
        )

    def intend_step(self, lab: str, position: int, name: str, digest: str) -> None:
        """Record that the step is about to run."""
        self._write(
            f"recording step '{name}' of the lab '{lab}'",
            "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, 'intended', ?)",
            [(lab, position, name, digest, self.now())],
        )

    def finish_step(self, lab: str, name: str) -> None:
        """Record that the step is done. ValueError if it was never intended."""
        changed = self._write(
            f"recording that step '{name}' of the lab '{lab}' is done",
            "UPDATE steps SET state = 'done', at = ? WHERE lab = ? AND name = ?",
            [(self.now(), lab, name)],
        )
        if changed != 1:
            raise ValueError(f"step '{name}' of '{lab}' is done, but was never started")

    # Resources

    def resources(self, lab: str) -> tuple[ResourceRow, ...]:
        """The lab's resources, by kind and name."""
        return self._of_lab(ResourceRow, "resources", lab, "kind, name")

    def intend_resources(self, lab: str, resources: Iterable[tuple[str, str]]) -> None:
        """Record resources that are about to be created, as (kind, name)."""
        self._write(
            f"recording the resources of lab '{lab}'",
            "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, 'intended')",
            [(lab, kind, name) for kind, name in resources],
        )

    def mark_resources_made(self, lab: str) -> None:
        """Record that all intended resources are created."""
        self._write(
            f"recording that lab '{lab}' is made",
            "UPDATE resources SET state = 'made' WHERE lab = ? AND state = 'intended'",
            [(lab,)],
        )

    def mark_resources_gone(self, lab: str) -> None:
        """Record that nothing of the lab is left."""
        self._write(
            f"recording that lab '{lab}' is gone",
            "UPDATE resources SET state = 'gone' WHERE lab = ?",
            [(lab,)],
        )

    # Runs

    def record_run(self, run: RunRow) -> int:
        """Write a run, and that its lab was used; a loss of power does not undo it.

        Returns its number.
        """
        action = f"recording the run '{run.id}'"
        with self._guarded(action):
            self._connection.execute("PRAGMA synchronous = FULL")
        with self.change(action):
            number = max((row.number for row in self.runs(run.lab)), default=0) + 1
            self._write(
                action,
                f"INSERT INTO runs ({_RUNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  the same
                [values_of(replace(run, number=number))],
            )
            self._write(
                action, "UPDATE labs SET updated = ? WHERE name = ?", [(self.now(), run.lab)]
            )
        return number

    def runs(self, lab: str) -> tuple[RunRow, ...]:
        """The runs of labs of this name, oldest first."""
        return self._of_lab(RunRow, "runs", lab, "number")

    def labs_with_runs(self) -> tuple[str, ...]:
        """Names of all labs that have runs, even if the lab is gone."""
        rows = self._read("reading the runs", "SELECT DISTINCT lab FROM runs ORDER BY lab", ())
        return tuple(str(row[0]) for row in rows)

    def forget_runs(self, runs: Iterable[str]) -> None:
        """Delete runs."""
        ids = [(run,) for run in runs]
        self._write("forgetting runs", "DELETE FROM runs WHERE id = ?", ids)

    # Faults: recorded before anything is broken, deleted once healed

    def faults(self, lab: str) -> tuple[FaultRow, ...]:
        """Every recorded fault of labs of this name, in order."""
        return self._of_lab(FaultRow, "faults", lab, "number")

    def live_faults(self, lab: str, token: str) -> tuple[FaultRow, ...]:
        """The faults that the lab with this token still has."""
        return tuple(row for row in self.faults(lab) if row.token == token)

    def intend_fault(  # noqa: PLR0913  a fault is all of these
        self, lab: str, token: str, name: str, *, node: str, peer: str, observed: str = ""
    ) -> int:
        """Record that a fault is about to be injected; return its number."""
        action = f"recording fault '{name}' of the lab '{lab}'"
        with self.change(action):
            number = max((fault.number for fault in self.faults(lab)), default=0) + 1
            self._write(
                action,
                f"INSERT INTO faults (lab, {_FAULTS}) "  # noqa: S608  the same
                "VALUES (?, ?, ?, ?, ?, ?, 'intended', ?, ?)",
                [(lab, number, token, name, node, peer, self.now(), observed)],
            )
        return number

    def finish_fault(self, lab: str, number: int) -> None:
        """Record that the fault is injected."""
        self._write(
            f"recording that fault {number} is in the lab '{lab}'",
            "UPDATE faults SET state = 'done' WHERE lab = ? AND number = ?",
            [(lab, number)],
        )

    def disown_faults(self, lab: str) -> None:
        """Record that no fault of the lab remains in its machines: all are rebuilt."""
        self._write(
            f"recording that the lab '{lab}' has no fault",
            "UPDATE faults SET token = '' WHERE lab = ?",
            [(lab,)],
        )

    def forget_fault(self, lab: str, number: int) -> None:
        """Delete the fault, which is healed."""
        self._write(
            f"recording that fault {number} is out of the lab '{lab}'",
            "DELETE FROM faults WHERE lab = ? AND number = ?",
            [(lab, number)],
        )

    def _labs(self, where: str, *values: str) -> tuple[LabRow, ...]:
        query = f"SELECT {_LABS} FROM labs {where}"  # noqa: S608  only our own column names
        return self._rows(LabRow, "reading the labs", query, values)

    def _of_lab(self, kind: type[Row], table: str, lab: str, order: str) -> tuple[Row, ...]:
        query = f"SELECT {columns_of(kind)} FROM {table} WHERE lab = ? ORDER BY {order}"  # noqa: S608  the same
        return self._rows(kind, f"reading the {table} of the lab '{lab}'", query, (lab,))

    def _rows(
        self, kind: type[Row], action: str, query: str, values: tuple[str, ...]
    ) -> tuple[Row, ...]:
        """The rows of a query, with checked values."""
        rows = self._read(action, query, values)
        try:
            return tuple(row_of(kind, row) for row in rows)
        except DamagedRowError as error:
            raise damaged(action, self.path, str(error)) from error

    def _read(self, action: str, query: str, values: tuple[str, ...]) -> list[Any]:
        with self._guarded(action):
            return self._connection.execute(query, values).fetchall()

    def _write(self, action: str, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Run the statement for every row in the current change; return the number of rows hit."""
        with self.change(action):
            return self._connection.executemany(statement, rows).rowcount

    def _guarded(self, action: str) -> Any:
        return guarded_database(action, self.path)


FILE = "state.db"
SETUP_SECONDS = 10.0
"""Wait for another process that is creating the tables (takes milliseconds)."""
BUSY_SECONDS = 5.0
"""Default wait for another process's transaction (one takes milliseconds)."""

MIGRATIONS = (
    # Only earlier versions write cells, and nothing reads them: they are in each result.json.
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
    # Undo commands are derived from a fault's name and place: none is stored.
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
    # Until now runs were sorted by their ids, which begin with the time.
    """
    ALTER TABLE runs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
    UPDATE runs SET number =
        (SELECT count(*) FROM runs AS other WHERE other.lab = runs.lab AND other.id <= runs.id);
    DROP INDEX runs_of_lab;
    CREATE UNIQUE INDEX runs_of_lab ON runs (lab, number);
    """,
)
"""Script N migrates a state file from version N to version N + 1."""
VERSION = len(MIGRATIONS)


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect to the state file, which is created with mode 0600 if it does not exist.

    Raises sqlite3.DatabaseError, OSError unchanged from SQLite and the file system; the caller
    converts them.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        # In WAL mode, NORMAL loses nothing if a process is killed, only on a power loss, which a
        # lab of namespaces does not survive either; its runs do, see record_run.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _close_unused(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # such as that it was opened in another thread
        connection.close()


def _make_private(path: Path) -> None:
    """Create the file with mode 0600, unless it exists.

    An existing file is never opened here: closing a descriptor of it would drop the locks of every
    connection of this process, and another process could then remove the write-ahead log under them
    (SQLite, How To Corrupt An SQLite Database File, 2.2).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path)) from None
        return
    os.close(descriptor)


def ensure(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the state file to this version's tables.

    Raises StateError when the file is from a newer version, or another process does not finish
    migrating it.
    """
    number = version(connection)
    if number > VERSION:
        raise StateError(
            f"opening the state file '{path}'",
            f"it has version {number}, and this version of lab supports up to {VERSION}",
            "upgrade lab to the version that wrote it, or point HYBRIDLAB_STATE at another "
            "directory",
        )
    if number < VERSION:
        _run_alone(path.with_name("setup.lock"), lambda: _migrate(connection))


def version(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 for a new file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    for number in range(version(connection), VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1}; COMMIT;"
        )


def _run_alone(path: Path, work: Callable[[], None]) -> None:
    """Call ``work`` while no other process does: switching to WAL does not wait by itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        Deadline(SETUP_SECONDS).wait(
            "waiting for another process to make the state file's tables",
            lambda: _try_lock(descriptor),
            hint=f"find out which with 'fuser -v {path}'",
        )
        work()
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
