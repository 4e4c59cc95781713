"""Results and manifests that others have sent: checked as a whole before anything is done.

``HYBRIDLAB_MUTATIONS`` says how many broken files are tried, and ``HYBRIDLAB_SEED`` which.
"""

import copy
import json
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from unit.reports.made_runs import FAILOVER, SAMPLED, intent_of, made_run

from lab._errors import PreflightError, UsageError
from lab.cli.main import main
from lab.facts.difference import Difference
from lab.machines.bundle.manifest import Blob, ContainerImage, Layer, Manifest, Program, decode
from lab.matrix.verdict import RunResult
from lab.providers.workloads import WorkloadResult
from lab.reports.result import to_json, to_text
from lab.scenario.loader import find

COUNT = int(os.environ.get("HYBRIDLAB_MUTATIONS", "300"))
SEED = int(os.environ.get("HYBRIDLAB_SEED", "1"))
CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
ESCAPES = "\x1b[2J\x1b]0;owned\x07"
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 10**30, -(10**400), float("nan"), float("inf")),
    *("", "x", "1.36", "../../x", "/etc/passwd", "a\nb: c", "\0", "\ud800", "\u202e", "9" * 50),
    *(ESCAPES, "x" * 5000, "linux", "netns", "2026-11-21T10:15:00+00:00"),
    *([], {}, [None], [[]], {"a": 1}, {"": None}, ["x"]),
)
FINDING = Difference(
    "link-down", "node-link-down", "worker2", "card eth0", "up", "down", "x", "y", "worker2", 7
)


@cache
def a_run() -> RunResult:
    """Of everything that a result has, a little."""
    run = made_run("mixed")
    cells = [result for result in run.results if result.cell.id == CELL] + list(run.results[::400])
    return replace(
        run,
        results=tuple(replace(cell, finding=FINDING) for cell in cells[:6]),
        scenario_text=find("overlay").read_text(),
        failover=FAILOVER,
        coverage=SAMPLED,
        workloads=(WorkloadResult("win1", "secret", "fail", "no"),),
        hosts=(("worker1", "hypervisor-01"),),
    )


def _paths(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _paths(tree[key], (*above, key))


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def broken(tree: Any, chance: random.Random) -> Iterator[str]:
    """The tree with one to three parts gone, doubled, exchanged or replaced, as JSON, for ever."""
    paths = list(_paths(tree))

    def other(made: Any, old: Any) -> Any:
        found = [_at(tree, path) for path in chance.sample(paths, 20)]
        alike = [one for one in (*JUNK, *found) if type(one) is type(old)]
        return chance.choice(alike if chance.random() < 0.5 and alike else [*JUNK, *found, made])

    while True:
        made = copy.deepcopy(tree)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            path = chance.choice(paths)
            try:
                above, key = _at(made, path[:-1]), path[-1]
                if chance.random() < 0.2:
                    del above[key]
                else:
                    above[key] = copy.deepcopy(other(made, above[key]))
            except (KeyError, IndexError, TypeError):
                continue  # it went with another part
        text = json.dumps(made)
        at = chance.randrange(len(text))
        yield text if chance.random() < 0.9 else text[:at] + chance.choice('"{}[],\0') + text[at:]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "above" / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(to_text(a_run(), intent_of()))
    return tmp_path


@pytest.fixture
def ended(capsys):
    """The exit code of a command, whose words have nothing in them that paints."""

    def run(*words):
        with pytest.raises(SystemExit) as end:
            main(words)
        told = "".join(capsys.readouterr())
        assert not {letter for letter in told if letter < " " or "\x7f" <= letter < "\xa0"} - {"\n"}
        assert end.value.code != 70, told
        assert isinstance(end.value.code, int)
        return end.value.code

    return run


# SECURITY.md: A result file is data.
@pytest.mark.parametrize("stored", [False, True], ids=["whole cells", "as stored"])
def test_a_broken_result_is_wrong_usage_and_writes_nothing_elsewhere(place, ended, *, stored):
    text = to_text(a_run(), intent_of())
    tree = json.loads(text) if stored else to_json(a_run(), intent_of())
    mutations = broken(json.loads(json.dumps(tree)), random.Random(SEED))
    codes = set()
    for number in range(COUNT // 2):
        (place / "bad.json").write_text(next(mutations), errors="surrogatepass")
        if number % 4:
            two = ("good.json", "bad.json")[:: 1 if number % 2 else -1]
            codes.add(ended("diff", *two))
        else:
            codes.add(ended("repro", "bad.json", CELL, "--dry-run"))
        assert {path.name for path in place.iterdir()} <= {"good.json", "bad.json", "above"}
        assert {path.name for path in place.glob("above/*")} <= {"state"}
    assert codes <= {0, 1, 2}
    assert 2 in codes


# SECURITY.md: A result file is data.
@pytest.mark.parametrize("dry", [True, False])
def test_no_path_is_taken_from_a_result(place, ended, *, dry):
    for scenario in ("/../../../../victim", "../x", "/etc/x", "a/b", "x\n"):
        text = to_text(replace(a_run(), scenario=scenario, provider="fake"), intent_of())
        (place / "bad.json").write_text(text)
        assert ended("repro", "bad.json", CELL, *(["--dry-run"] if dry else [])) == 2
    assert not list(place.rglob("*.yaml"))


def test_a_scenario_in_a_result_is_read_before_anything_is_written(place, ended):
    text = to_text(replace(a_run(), scenario_text="name: [\n"), intent_of())
    (place / "bad.json").write_text(text)
    assert ended("repro", "bad.json", CELL, "--dry-run") == 2
    assert not list(place.rglob("*.yaml"))


def test_a_broken_manifest_of_a_bundle_is_refused():
    blob = Blob("a" * 64, 7)
    whole = Manifest(
        (("containerd", "2.3.7"), ("kubernetes", "1.36.1")),
        (Program("kubelet", "kubernetes", "linux", blob, "upstream"),),
        (
            ContainerImage(
                "registry.k8s.io/pause:3.10", "linux", None, blob, blob, (Layer("x", blob),), "y"
            ),
        ),
    )
    text = whole.encoded()
    assert decode(text, "it") == whole
    mutations = broken(json.loads(text), random.Random(SEED))
    refused = 0
    for _ in range(COUNT):
        made = next(mutations)
        with suppress(ValueError):  # written as the lab writes it, or it is refused for that
            made = json.dumps(json.loads(made), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        content = made.encode(errors="surrogatepass")
        try:
            assert decode(content, "it").encoded() == content
        except PreflightError as error:
            assert error.doing == "reading the bundle's 'it'"  # noqa: PT017  some are harmless
            refused += 1
    assert refused > COUNT // 2


@pytest.mark.parametrize("name", ["x\n0 cells changed", "x\u202egnp"])
def test_a_name_that_could_pass_for_lines_of_ours_is_refused(tmp_path, capsys, name):
    run = a_run()
    first = run.results[0]
    cells = (replace(first, cell=replace(first.cell, id=name)),)
    file = tmp_path / "odd.json"
    for forged in (replace(run, results=cells), replace(run, run=name)):
        file.write_text(to_text(forged, intent_of()))
        with pytest.raises(SystemExit) as ended:
            main(["diff", str(file), str(file)])
        assert ended.value.code == UsageError.exit_code
        refusal = capsys.readouterr().err
        assert "has a name that no" in refusal
        assert name not in refusal
