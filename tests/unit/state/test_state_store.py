"""The journal: its rows, its changes, and what is said of damage."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from processes import run_program

from lab._errors import StateError, UsageError
from lab.state.rows import LabRow, ResourceRow, RunRow
from lab.state.store import FILE, MIGRATIONS, VERSION, Store, version

LAB = LabRow("a", "overlay", "text", "a.yaml", "fake", "t1", "starting", 1.0, 2.0, "d", {"x": [1]})
RUN = RunRow("20261121-1", "a", "t1", "overlay", "fake", "2026-11-21", 1.5, False, {"pass": 1})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "state", now=lambda: 50.0) as opened:
        yield opened


def test_a_lab_comes_back_as_it_was_written_and_is_remembered_when_it_is_down(store):
    store.put_lab(LAB)
    assert store.lab("a") == LAB
    assert store.labs() == (LAB,)
    assert store.lab("b") is None
    with pytest.raises(sqlite3.IntegrityError):
        store.put_lab(replace(LAB, name="b"))  # no two labs have one token
    store.set_status("a", "down")
    assert store.labs() == ()
    assert store.lab("a") == replace(LAB, status="down", updated=50.0)


def test_steps_are_intended_then_done_and_kept_in_order(store):
    store.put_lab(LAB)
    store.intend_step("a", 1, "second", "d2")
    store.intend_step("a", 0, "first", "d1")
    store.finish_step("a", "first")
    with pytest.raises(ValueError, match="never started"):
        store.finish_step("a", "never")
    assert [(s.name, s.state, s.digest) for s in store.steps("a")] == [
        ("first", "done", "d1"),
        ("second", "intended", "d2"),
    ]
    store.keep_steps("a", ["first"])
    assert [s.name for s in store.steps("a")] == ["first"]


def test_only_what_was_intended_is_made(store):
    store.put_lab(LAB)
    store.intend_resources("a", [("node", "n1")])
    store.mark_resources_gone("a")
    store.intend_resources("a", [("node", "n2")])
    store.mark_resources_made("a")
    assert store.resources("a") == (
        ResourceRow("node", "n1", "gone"),
        ResourceRow("node", "n2", "made"),
    )


def test_a_run_is_use_of_its_lab_and_outlives_it(store):
    store.put_lab(LAB)
    store.record_run(RUN)
    assert store.lab("a") == replace(LAB, updated=50.0)
    store.set_status("a", "down")
    assert store.runs("a") == (replace(RUN, number=1),)
    with pytest.raises(sqlite3.IntegrityError):
        store.record_run(RUN)


def test_a_change_is_all_or_nothing(store):
    def interrupted():
        with store.change("trying"):
            store.put_lab(LAB)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.labs() == ()
    store.put_lab(LAB)
    assert store.labs() == (LAB,)


def test_the_files_are_for_their_owner_alone(store):
    store.put_lab(LAB)
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.directory.iterdir()}
    assert set(found) >= {"state.db", "state.db-wal"}
    assert set(found.values()) == {0o600}
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


def test_a_newer_state_file_is_refused_with_both_versions_and_stays_as_it_is(tmp_path):
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw, raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StateError, match=rf"version 99.*up to {VERSION}") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 4
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw, raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (99,)
    raw.close()
    assert "upgrade" in caught.value.hint
    assert "HYBRIDLAB_STATE" in caught.value.hint


def test_runs_of_an_earlier_version_keep_their_order(tmp_path):
    ids = ["20261121-101500-c", "20261121-101501-a", "20261122-000000-b"]
    with closing(sqlite3.connect(tmp_path / FILE)) as raw, raw:
        raw.executescript(f"{''.join(MIGRATIONS[:3])} PRAGMA user_version = 3;")
        for lab in ("b", "a"):
            rows = [(f"{run}{lab}", lab, "t", "o", "fake", run, 1.0, 1, "{}") for run in ids[::-1]]
            raw.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    with Store(tmp_path) as store:
        store.record_run(replace(RUN, id="19700101-000000"))
        assert [run.id for run in store.runs("a")] == [
            *(f"{run}a" for run in ids),
            "19700101-000000",
        ]
        assert [run.id for run in store.runs("b")] == [f"{run}b" for run in ids]
        assert [run.number for run in store.runs("a")] == [1, 2, 3, 4]


@pytest.mark.parametrize("keep", [0, 100], ids=["no database at all", "only the header is left"])
def test_a_damaged_state_file_is_named_with_the_way_out(tmp_path, keep):
    with Store(tmp_path) as store:
        store.put_lab(LAB)
    path = tmp_path / "state.db"
    path.write_bytes(path.read_bytes()[:keep] + b"damaged " * 4096)
    with pytest.raises(StateError, match="is damaged") as caught, Store(tmp_path) as store:
        store.labs()
    assert f"mv {path} {path}.damaged" in caught.value.hint
    assert "lab gc" in caught.value.hint


def test_a_state_file_locked_for_too_long_is_a_state_error_and_nothing_is_lost(tmp_path):
    with Store(tmp_path, busy_seconds=0.05) as store:
        store.put_lab(LAB)
        other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="held by another process") as caught:
            store.set_status("a", "up")
        assert "fuser" in caught.value.hint
        other.execute("ROLLBACK")
        other.close()
        assert store.lab("a") == LAB
        store.set_status("a", "up")


def test_many_processes_can_open_a_new_state_directory_at_once(tmp_path):
    script = (
        "import sys; from pathlib import Path; from lab.state.store import Store; "
        "s = Store(Path(sys.argv[1])); s.labs(); s.close()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "new")]) for _ in range(6)
    ]
    assert [process.wait(30) for process in started] == [0] * 6


IN_A_SMALL_DISK = """
import os, sys
from pathlib import Path
from lab._errors import StateError, UsageError
from lab.state.rows import LabRow, RunRow
from lab.state.store import Store

disk, what = Path(sys.argv[1]), sys.argv[2]
run = RunRow("r", "a", "t1", "overlay", "fake", "2026", 1.0, True, {"x" * 1_000_000: 1})

def expect(call):
    try:
        call()
    except StateError as error:
        print(error.happened, "|", error.hint)
    else:
        sys.exit("no StateError")

def fill():
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass

if what == "new":
    fill()
    expect(lambda: Store(disk / "state"))
elif what == "read-only":
    Store(disk / "state").close()
    os.system(f"mount -o remount,ro {disk}")
    expect(lambda: Store(disk / "state"))
elif what == "lock":
    from lab.state.lock import lab_lock
    Store(disk / "state").close()
    os.system(f"mount -o remount,ro {disk}")
    expect(lambda: lab_lock(disk / "state" / "labs" / "a", "lab up a").__enter__())
else:
    store = Store(disk / "state")
    store.put_lab(LabRow("a", "overlay", "", "", "fake", "t1", "up", 1.0, 2.0, "d"))
    if what == "reopened":
        store.close()
        fill()
        expect(lambda: Store(disk / "state").set_status("a", "broken"))
    else:
        fill()
        expect(lambda: store.record_run(run))
        assert store.runs("a") == () and store.lab("a").status == "up"
        (disk / "filler").unlink()
        store.set_status("a", "broken")
        store.close()
    (disk / "filler").unlink(missing_ok=True)
    with Store(disk / "state") as store:
        assert store.lab("a").name == "a", "the lab is lost"
"""


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("new", "full"),
        ("open", "the disk is full"),
        ("reopened", "full"),
        ("read-only", "read-only"),
        ("lock", "read-only"),
    ],
)
def test_a_disk_that_takes_no_more_is_a_state_error_and_nothing_is_lost(tmp_path, what, says):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "script.py"
    script.write_text(IN_A_SMALL_DISK)
    shell = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" "$3" "$1" "$4"'
    isolated = ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "sh"]
    ended = run_program(
        [*isolated, str(disk), sys.executable, str(script), what],
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin:/sbin"},
    )
    if "unshare" in ended.stderr:
        pytest.skip(f"no mount namespace here: {ended.stderr.strip()}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert says in ended.stdout
    assert "HYBRIDLAB_STATE" in ended.stdout
    assert list(disk.iterdir()) == []


def test_a_second_connection_does_not_drop_the_locks_of_the_first(tmp_path):
    """Lost locks let another process delete the log of changes: the file is damaged then."""
    asks_who_holds_it = (
        "import fcntl, struct, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0x40000002, 510, 0)\n"
        "found = struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, lock))\n"
        "print(found[4] if found[0] != fcntl.F_UNLCK else 0)\n"
    )
    with Store(tmp_path / "state") as first:
        first.labs()
        with Store(tmp_path / "state") as second:
            second.labs()
            done = run_program([sys.executable, "-c", asks_who_holds_it, str(first.path)])
            assert int(done.stdout) == os.getpid()


def test_a_name_that_is_no_utf8_is_refused_and_nothing_is_written(tmp_path):
    odd = os.fsdecode(b"l\xfcb.yaml")
    with Store(tmp_path) as store:
        for act in (lambda: store.lab(odd), lambda: store.put_lab(replace(LAB, scenario_path=odd))):
            with pytest.raises(UsageError, match="is not UTF-8"):
                act()
        assert store.labs() == ()


LAB_ROW = LabRow("a", "overlay", "text", "a.yaml", "fake", "11", "up", 1.0, 2.0, "d")
RUN_ROW = RunRow("r1", "a", "11", "overlay", "fake", "2026-11-21", 1.5, True, {"pass": 1})
NUMBERS = ("abc", b"\xff", float("inf"), "1e999")
COLUMNS = {
    "labs": ("scenario_text", "scenario_path", "token", "status", "created", "updated", "detail"),
    "steps": ("digest", "state", "at"),
    "resources": ("state",),
    "runs": ("started", "seconds", "green", "counts"),
    "faults": ("name", "node", "peer", "state", "at", "observed"),
}
OPTIONS = ([], 5, "nonsense", {"windows_rules_off": 5}, {"windows_rules_off": [1]}, {"only": {}})


@pytest.fixture
def filled_store(tmp_path):
    with Store(tmp_path / "state") as opened:
        opened.put_lab(LAB_ROW)
        opened.intend_step("a", 0, "first", "d1")
        opened.intend_resources("a", [("node", "n1")])
        opened.record_run(RUN_ROW)
        opened.intend_fault("a", "11", "wrong-vni", node="n1", peer="")
        yield opened


def put(filled_store: Store, table: str, column: str, value: object) -> None:
    with closing(sqlite3.connect(filled_store.directory / FILE)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))


def read_all(filled_store: Store) -> None:
    filled_store.lab("a")
    filled_store.labs()
    filled_store.steps("a")
    filled_store.resources("a")
    filled_store.runs("a")
    filled_store.faults("a")


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in COLUMNS for column in COLUMNS[table]]
)
def test_a_value_of_another_type_is_named_with_its_column(filled_store, table, column):
    put(filled_store, table, column, b"\xff")
    with pytest.raises(StateError, match=rf"state\.db' is damaged .*'{column}'") as caught:
        read_all(filled_store)
    assert "lab down NAME" in caught.value.hint


@pytest.mark.parametrize("value", NUMBERS)
def test_a_time_is_a_finite_number(filled_store, value):
    put(filled_store, "labs", "updated", value)
    with pytest.raises(StateError, match="'updated'"):
        filled_store.labs()


@pytest.mark.parametrize("options", OPTIONS)
def test_options_are_what_a_lab_can_be_asked_for(filled_store, options):
    put(filled_store, "labs", "options", json.dumps(options))
    with pytest.raises(StateError, match="'options'"):
        filled_store.lab("a")


def test_options_of_a_later_version_are_read(filled_store):
    put(filled_store, "labs", "options", json.dumps({"new": [1], "windows_rules_off": ["a"]}))
    found = filled_store.lab("a")
    assert found
    assert found.options["new"] == [1]


@pytest.mark.parametrize("earlier", range(VERSION))
def test_a_state_file_of_each_earlier_version_becomes_one_of_this_version(tmp_path, earlier):
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        for script in MIGRATIONS[:earlier]:
            raw.executescript(script)
        raw.execute(f"PRAGMA user_version = {earlier}")
    with Store(tmp_path) as store:
        store.put_lab(LAB)
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        assert version(raw) == VERSION
    with Store(tmp_path) as store:
        assert store.labs() == (LAB,)


def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.state.store.MIGRATIONS", (*MIGRATIONS, "not SQL"))
    monkeypatch.setattr("lab.state.store.VERSION", VERSION + 1)
    with pytest.raises(StateError):
        Store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        assert version(raw) == VERSION
