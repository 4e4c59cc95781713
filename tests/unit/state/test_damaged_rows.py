"""Values in the journal that this program never wrote: an error that says which, or a row."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from lab._errors import StateError
from lab.state.rows import CellRow, LabRow, RunRow
from lab.state.store import FILE, Store

LAB = LabRow("a", "overlay", "text", "a.yaml", "fake", "11", "up", 1.0, 2.0, "d")
RUN = RunRow("r1", "a", "11", "overlay", "fake", "2026-11-21", 1.5, True, {"pass": 1})
NUMBERS = ("abc", b"\xff", float("inf"), "1e999")
COLUMNS = {
    "labs": ("scenario_text", "scenario_path", "token", "status", "created", "updated", "detail"),
    "steps": ("digest", "state", "at"),
    "resources": ("state",),
    "runs": ("started", "seconds", "green", "counts"),
    "cells": ("family", "verdict", "latency"),
    "faults": ("name", "node", "peer", "state", "at", "observed"),
}
OPTIONS = ([], 5, "nonsense", {"windows_rules_off": 5}, {"windows_rules_off": [1]}, {"only": {}})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "state") as opened:
        opened.put_lab(LAB)
        opened.intend_step("a", 0, "first", "d1")
        opened.intend("a", [("node", "n1")])
        opened.record_run(RUN, [CellRow("c", "pod-pod", "pass", 1.0, "")])
        opened.intend_fault("a", "11", "wrong-vni", node="n1", peer="")
        yield opened


def put(store: Store, table: str, column: str, value: object) -> None:
    with closing(sqlite3.connect(store.directory / FILE)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))


def read_all(store: Store) -> None:
    store.lab("a")
    store.labs()
    store.steps("a")
    store.resources("a")
    store.runs("a")
    store.cells("r1")
    store.faults("a")


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in COLUMNS for column in COLUMNS[table]]
)
def test_a_value_of_another_type_is_named_with_its_column(store, table, column):
    put(store, table, column, b"\xff")
    with pytest.raises(StateError, match=rf"state\.db' is damaged .*'{column}'") as caught:
        read_all(store)
    assert "lab down NAME" in caught.value.hint


@pytest.mark.parametrize("value", NUMBERS)
def test_a_time_is_a_finite_number(store, value):
    put(store, "labs", "updated", value)
    with pytest.raises(StateError, match="'updated'"):
        store.labs()


@pytest.mark.parametrize("options", OPTIONS)
def test_options_are_what_a_lab_can_be_asked_for(store, options):
    put(store, "labs", "options", json.dumps(options))
    with pytest.raises(StateError, match="'options'"):
        store.lab("a")


def test_options_of_a_later_version_are_read(store):
    put(store, "labs", "options", json.dumps({"new": [1], "windows_rules_off": ["a"]}))
    found = store.lab("a")
    assert found
    assert found.options["new"] == [1]
