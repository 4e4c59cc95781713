"""What commands print with --json is what `lab schema DOCUMENT` says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lab_command import Lab

from lab.cli.show import DOCUMENTS as NAMED
from lab.lifecycle.documents import DOCUMENTS, document_schema

SMALL = str(Path(__file__).parents[1] / "small.yaml")


def errors(name: str, document: Any) -> list[str]:
    schema = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return [
        f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(document)
    ]


def printed(lab: Lab, *words: str, code: int | None = 0) -> Any:
    return json.loads(lab.run(*words, "--json", code=code).stdout)


def test_the_command_names_every_document():
    assert sorted(NAMED) == sorted(DOCUMENTS)


def test_each_command_prints_what_its_schema_says(lab, tmp_path):
    lab.run("up", SMALL, "--name", "a")
    wrong = [errors("result", printed(lab, "test", "a"))]
    lab.run("fault", "a", "tunnel-udp-dropped", "--node", "worker")
    wrong += [errors("result", printed(lab, "test", "a", code=1))]
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nnodes: []\n")
    commands: Sequence[tuple[str, int | None, tuple[str, ...]]] = (
        ("result", 0, ("report", "a")),
        ("diff", 1, ("diff", "a~1", "a")),
        ("explain", 1, ("explain", "a", "master-p1", "worker-p1")),
        ("explain", 0, ("explain", "a", "worker-p1", "worker")),
        ("plan", 0, ("plan", SMALL)),
        ("status", 0, ("status", "a")),
        ("status", 1, ("status", "a", "--deep")),
        ("list", 0, ("status",)),
        ("list", 0, ("list",)),
        ("doctor", None, ("doctor",)),
        ("validate", 2, ("validate", "overlay", str(bad))),
    )
    wrong += [errors(name, printed(lab, *words, code=code)) for name, code, words in commands]
    inventory = tmp_path / "lab.toml"
    inventory.write_text("[hypervisors.a]\nuri = 5\n")
    work: Sequence[tuple[str, int | None, tuple[str, ...]]] = (
        ("up", 0, ("up", SMALL, "--name", "b")),
        ("up", 0, ("up", SMALL, "--name", "b", "--dry-run")),
        ("repair", 1, ("repair", "a", "worker", "--commands")),
        ("heal", 0, ("heal", "a")),
        ("repair", 0, ("repair", "a", "worker")),
        ("fault", 0, ("fault", "b", "packet-loss", "--node", "worker")),
        ("faults", 0, ("fault", "--list")),
        ("faults", 0, ("fault", "b", "--list")),
        ("capture", 0, ("capture", "a", "master-p1", "worker-p1")),
        ("graph", 0, ("graph", "a")),
        ("inventory", 2, ("inventory", "check", str(inventory))),
        ("gc", 0, ("gc", "--keep-runs", "1")),
        ("down", 0, ("down", "b")),
    )
    wrong += [errors(name, printed(lab, *words, code=code)) for name, code, words in work]
    events = lab.run("events", "a", "--json").stdout.splitlines()
    wrong += [errors("events", json.loads(line)) for line in events]
    assert events
    assert [error for several in wrong for error in several] == []
    assert errors("down", printed(lab, "down", "--all")) == []


@pytest.mark.slow
def test_the_summary_of_a_night_is_what_its_schema_says(lab, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nnodes: []\n")
    words = ("nightly", SMALL, str(bad), "--provider", "netns", "--output", str(tmp_path / "n"))
    night = printed(lab, *words, code=3)
    assert errors("summary", night) == []
    assert json.loads((tmp_path / "n" / "summary.json").read_text()) == night


def test_a_document_that_is_not_as_promised_is_noticed():
    told = " ".join(errors("summary", {"green": "yes", "seconds": -1, "before": 7}))
    assert "'yes' is not of type 'boolean'" in told
    assert "-1 is less than the minimum" in told
    assert "$.before: 7 is not valid" in told
    assert "'scenarios' is a required property" in told
